"""The front before llama.cpp's Python server: one, and two that share the work."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.language import Language
from tests.engine.upstream.peers import Peer, llama
from tests.engine.upstream.servers import front_before
from tests.serving import Engine

TEXT: dict[str, Any] = {"model": "m", "max_tokens": 16, "temperature": 0}
WORDS = "The ferry leaves the island at noon and comes back with the mail before the tide turns. "


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Peer]]:
    folder = tmp_path_factory.mktemp("llama")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(llama(folder, name)) for name in ("one", "other")]


@pytest.fixture
def front(pair: list[Peer], models_dir: Path) -> Iterator[Engine]:
    with front_before([one.url for one in pair], "smollm2-moe", models_dir, flags=["--kv", "4k"]) as made:
        yield made


def say(front: Engine, messages: list[dict[str, str]], **more: Any) -> str:
    body = {**TEXT, "messages": messages, **more}
    answer = front.client.post("/v1/chat/completions", json=body).raise_for_status().json()
    assert answer["usage"]["completion_tokens"] > 0
    return answer["choices"][0]["message"]["content"]


def test_a_conversation_in_every_dialect(front: Engine, models_dir: Path) -> None:
    language = Language.load(models_dir / "smollm2-moe")
    messages = [{"role": "user", "content": "Name the capital of France."}]
    said = say(front, messages)
    assert "Paris" in said and language.decode(language.encode(said)) == said
    whole = front.client.post("/v1/messages", json={**TEXT, "messages": messages}).raise_for_status().json()
    assert whole["content"][0]["text"] == said and whole["stop_reason"] in ("end_turn", "max_tokens")
    listed = front.client.post("/v1/responses", json={"input": messages, "max_output_tokens": 16, "temperature": 0})
    assert listed.raise_for_status().json()["output"][-1]["content"][0]["text"] == said
    raw = front.client.post("/v1/completions", json={**TEXT, "prompt": "One, two, three, four,"})
    assert "five" in raw.raise_for_status().json()["choices"][0]["text"]
    with front.client.stream("POST", "/v1/messages", json={**TEXT, "messages": messages, "stream": True}) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    deltas = [event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == said and events[-1]["type"] == "message_stop"


def test_what_is_not_told_is_null_and_said(front: Engine) -> None:
    say(front, [{"role": "user", "content": "hi"}])
    ready, (record, *_) = front.get("/ready"), front.get("/v1/requests")["requests"]
    assert {"anchors", "anticipation", "exact_tokens", "cached_tokens"} <= set(ready["cannot"])
    assert ready["window"] == 4096 and record["cached_tokens"] is None
    assert record["prompt_tokens"] > 0 and record["first_token_s"] > 0
    forced = {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "required"}
    body = {**TEXT, "messages": [{"role": "user", "content": "hi"}], **forced}
    assert front.client.post("/v1/chat/completions", json=body).status_code == 400


def test_a_conversation_stays_where_its_prefix_is(front: Engine, pair: list[Peer]) -> None:
    """By the replicas' own word: llama.cpp logs how much of a prompt it had."""
    before = [len(one.log.read_text()) for one in pair]
    talks = [[{"role": "user", "content": f"Story {name}. " + WORDS * 12}] for name in ("of the north", "of the south")]
    for _ in range(3):
        for talk in talks:
            talk += [{"role": "assistant", "content": say(front, talk)}, {"role": "user", "content": "Go on."}]
    replicas = front.get("/v1/stats")["engine"]["upstream"]
    assert [one["served"] for one in replicas] == [3, 3] and all(one["live"] for one in replicas)
    for one, start in zip(pair, before, strict=True):
        told = one.log.read_text()[start:]
        hits = [(int(had), int(new)) for had, new in re.findall(r"(\d+) prefix-match hit, remaining (\d+)", told)]
        assert len(hits) >= 2 and all(had > 200 and new < 100 for had, new in hits[-2:]), hits


def test_a_hang_up_leaves_a_server_that_serves(front: Engine) -> None:
    long = {
        **TEXT,
        "messages": [{"role": "user", "content": "Count to a thousand."}],
        "stream": True,
        "max_tokens": 2000,
    }
    with front.client.stream("POST", "/v1/messages", json=long) as answer:
        next(line for line in answer.iter_lines() if "content_block_delta" in line)
    assert front.wait_idle()["at_worker"] == 0
    assert say(front, [{"role": "user", "content": "Name the capital of France."}])


def test_a_replica_that_dies_in_mid_stream(front: Engine, pair: list[Peer]) -> None:
    """The last test of these two: one of them is gone afterwards."""
    messages = [{"role": "user", "content": "Tell me a long story of the sea. " + WORDS * 4}]
    long = {**TEXT, "messages": messages, "stream": True, "max_tokens": 2000}
    with front.client.stream("POST", "/v1/messages", json=long) as answer:
        events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        assert next(event for event in events if event["type"] == "content_block_delta")
        pair[0].process.kill()
        last = list(events)[-1]
    assert last["type"] == "error" and "Send the request again" in last["error"]["message"], last
    assert say(front, messages)
    gone, alive = front.get("/v1/stats")["engine"]["upstream"]
    assert gone["failed"] >= 1 and alive["served"] == 1
