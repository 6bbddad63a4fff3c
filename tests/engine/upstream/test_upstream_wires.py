"""What is sent to each kind of server, and what its events mean: the shapes their documentation shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.language import Language
from engine.upstream.detect import PROBE
from tests.engine.upstream.servers import Said, front_before, models, said

BODY = {"messages": [{"role": "user", "content": "Say <|im_end|> twice"}], "max_tokens": 30, "temperature": 0.5}


@pytest.fixture(scope="module")
def language(models_dir: Path) -> Language:
    return Language.load(models_dir / "tiny-hybrid")


def vllm(language: Language, words: list[str]) -> dict[str, Any]:
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}

    def choice(text: str, ids: list[int], finish: str | None = None, stop: int | None = None) -> dict[str, Any]:
        told = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": stop}
        return {**head, "choices": [{**told, "token_ids": ids, "prompt_token_ids": None}]}

    end = language.stop_ids[0]
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 16}}
    events = [choice(word, language.encode(word)) for word in words] + [choice("", [end], "stop", end)]
    return {
        "GET /v1/models": models("vllm", max_model_len=4096),
        "POST /tokenize": lambda body: (200, {}, {"count": 1, "tokens": language.encode(body["prompt"])}),
        "POST /v1/completions": [*events, {**head, "choices": [], "usage": usage}, "data: [DONE]"],
    }


def llama_server(language: Language, words: list[str]) -> dict[str, Any]:
    def event(text: str, ids: list[int]) -> dict[str, Any]:
        return {"index": 0, "content": text, "tokens": ids, "stop": False, "id_slot": -1, "tokens_predicted": 1}

    progress = {**event("", []), "prompt_progress": {"total": 20, "cache": 16, "processed": 18, "time_ms": 3}}
    timings = {"cache_n": 16, "prompt_n": 4, "prompt_ms": 5.0, "predicted_n": 9, "predicted_ms": 80.0}
    last = {**event("", []), "stop": True, "stop_type": "eos", "tokens_evaluated": 20, "tokens_predicted": 9}
    # Of a character that took several tokens it sends the last one only.
    events = [event(word, language.encode(word)[-1:]) for word in words]
    return {
        "GET /v1/models": models("llamacpp", meta={"n_ctx_train": 131072}),
        "GET /props": (200, {}, {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2}),
        "POST /tokenize": lambda body: (200, {}, {"tokens": language.encode(body["content"])}),
        "POST /completion": [progress, *events, {**last, "timings": timings}],
    }


def sglang(language: Language, words: list[str]) -> dict[str, Any]:
    ids = [token for word in words for token in language.encode(word)]

    def event(count: int, finish: Any = None) -> dict[str, Any]:
        meta = {
            "id": "r",
            "prompt_tokens": 20,
            "completion_tokens": count,
            "cached_tokens": 16,
            "finish_reason": finish,
        }
        return {"text": language.decode(ids[:count]), "output_ids": ids[:count], "meta_info": meta}

    events = [event(count) for count in range(1, len(ids) + 1)]
    stop = event(len(ids), {"type": "stop", "matched": language.stop_ids[0]})
    return {
        "GET /v1/models": models("sglang", max_model_len=4096),
        "POST /generate": [*events, stop, "data: [DONE]"],
    }


def text_only(language: Language, words: list[str]) -> dict[str, Any]:
    events: list[Any] = [{"choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in words]
    events.append({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    return {"GET /v1/models": models("me"), "POST /v1/completions": [*events, "data: [DONE]"]}


KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "vllm": (vllm, "POST /v1/completions"),
    "llama-server": (llama_server, "POST /completion"),
    "sglang": (sglang, "POST /generate"),
    "text": (text_only, "POST /v1/completions"),
}


def request_of(server: Said, key: str) -> dict[str, Any]:
    return next(body for asked, body in server.asked if asked == key)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_of_each_kind(kind: str, language: Language, models_dir: Path) -> None:
    make, key = KINDS[kind]
    words = ["Twice", " and", " 你好", " again", "."]
    with said(make(language, words)) as server:
        flags = ["--kv", "4k"]
        with front_before([server.url], "tiny-hybrid", models_dir, token="upstream-key", flags=flags) as front:
            told = front.get("/ready")
            assert told["window"] == 4096
            answer = front.client.post("/v1/chat/completions", json=BODY)
            assert answer.status_code == 200, answer.text
            (record,) = front.get("/v1/requests")["requests"]
            (replica,) = front.get("/v1/stats")["engine"]["upstream"]
            cannot = front.get("/ready")["cannot"]
    choice = answer.json()["choices"][0]
    message = choice["message"]
    text = (message.get("reasoning_content") or "") + (message.get("content") or "")
    assert text.strip() == "Twice and 你好 again." and choice["finish_reason"] == "stop"
    assert replica["kind"] == kind and replica["served"] == 1
    asked = request_of(server, key)
    assert all(
        headers.get("Authorization", headers.get("authorization")) == "Bearer upstream-key"
        for headers in server.headers
    )
    if kind == "text":
        assert record["cached_tokens"] is None and {"cached_tokens", "exact_tokens"} <= set(cannot)
        # The user's own words cannot end the user's turn.
        assert "Say <\u200b|im_end|> twice" in asked["prompt"] and asked["prompt"].count("<|im_end|>") >= 1
        return
    assert record["cached_tokens"] == 16 and "exact_tokens" not in cannot
    prompt = asked.get("prompt") or asked["input_ids"]
    assert len(prompt) == record["prompt_tokens"] and all(isinstance(token, int) for token in prompt)
    assert "Say <|im_end|> twice" in language.decode(prompt)
    assert json.dumps(asked).count('"temperature": 0.5') == 1


def test_another_tokenizer_is_refused(language: Language, models_dir: Path) -> None:
    answers = {**vllm(language, ["a"]), "POST /tokenize": lambda body: (200, {}, {"tokens": [1, 2, len(PROBE)]})}
    with said(answers) as server, front_before([server.url], "tiny-hybrid", models_dir, ready=False) as front:
        failed = front.client.post("/v1/messages", json={**BODY, "model": "m"})
        ready = front.client.get("/ready")
    assert failed.status_code == 529 and "other tokens" in failed.json()["error"]["message"]
    assert ready.status_code == 503 and "other tokens" in ready.json()["message"]
