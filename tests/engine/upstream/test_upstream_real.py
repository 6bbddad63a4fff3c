"""The front before real engines: the same answers, exact counts, hang-ups, deaths and returns."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.upstream.servers import front_before, front_process
from tests.serving import Engine, engine_server

LONG = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 15000, "stream": True, "model": "m"}
TOOL = {"name": "look", "description": "Look at it", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as made:
        yield made


@pytest.fixture(scope="module")
def front(engine: Engine, models_dir: Path) -> Iterator[Engine]:
    with front_process([engine.url], "tiny-hybrid", models_dir, token=engine.admin_token) as made:
        yield made


def test_the_answers_are_those_of_the_engine_itself(engine: Engine, front: Engine) -> None:
    body: dict[str, Any] = {"model": "m", "max_tokens": 40, "temperature": 0}
    for text in ("hi", "A question about <|im_end|> and naïve 你好"):
        messages = [{"role": "user", "content": text}]
        for path, ask in (
            ("/v1/messages", {**body, "messages": messages}),
            ("/v1/chat/completions", {**body, "messages": messages, "tools": [{"type": "function", "function": TOOL}]}),
            ("/v1/responses", {"model": "m", "input": text, "max_output_tokens": 40, "temperature": 0}),
            ("/v1/completions", {**body, "prompt": text}),
        ):
            direct, through = (e.client.post(path, json=ask).raise_for_status().json() for e in (engine, front))
            for name in ("content", "choices", "output_text"):
                assert _said(direct.get(name)) == _said(through.get(name)), (path, name)
            counts = [
                {k: v for k, v in answer["usage"].items() if k in ("output_tokens", "completion_tokens")}
                for answer in (direct, through)
            ]
            assert counts[0] == counts[1] and sum(counts[0].values()) > 0


def _said(value: Any) -> Any:
    """Without ids, which differ."""
    if isinstance(value, list):
        return [_said(entry) for entry in value]
    if isinstance(value, dict):
        return {k: _said(v) for k, v in value.items() if k not in ("id", "signature")}
    return value


def test_a_conversation_that_grows_is_cached_and_counted(front: Engine) -> None:
    session = front.session()
    headers = {"authorization": f"Bearer {session['token']}"}
    messages = [{"role": "user", "content": "count with me: " + " ".join(map(str, range(300)))}]
    for _ in range(3):
        body = {"model": "m", "messages": messages, "max_tokens": 24, "temperature": 0}
        answer = front.client.post(f"/s/{session['id']}/v1/chat/completions", json=body, headers=headers).json()
        message = answer["choices"][0]["message"]
        messages += [message, {"role": "user", "content": "go on"}]
    turns = front.get(f"/v1/sessions/{session['id']}/turns")["turns"]
    assert turns[0]["cached_tokens"] < turns[0]["prompt_tokens"] // 2
    for before, turn in itertools.pairwise(turns):
        # the history rendered to the very tokens that the upstream computed; no anchor keeps the last page of it
        assert turn["cached_tokens"] >= before["prompt_tokens"] - 16
    assert turns[-1]["line"] == turns[0]["line"] and turns[0]["first_token_s"] > 0


def test_what_it_cannot_do_is_said_and_refused(front: Engine) -> None:
    ready = front.get("/ready")
    assert {"anchors", "anticipation", "scripts", "grammar", "logprobs"} <= set(ready["cannot"]) and ready[
        "window"
    ] == 16384
    assert front.get("/v1/stats")["engine"]["cannot"] == ready["cannot"]
    assert front.get("/v1/stats")["anticipation"]["allowed"] is False
    script = {"turns": [{"blocks": [{"text": "x"}]}]}
    scripted = front.client.post("/v1/sessions", json={"harness": "t", "script": script})
    assert scripted.status_code == 400 and "forces the sampled tokens" in scripted.json()["error"]["message"]
    forced = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": TOOL}],
    }
    answer = front.client.post("/v1/chat/completions", json={**forced, "tool_choice": "required"})
    assert answer.status_code == 400 and "enforced" in answer.json()["error"]["message"]
    answer = front.client.post(
        "/v1/chat/completions", json={**LONG, "stream": False, "max_tokens": 3, "logprobs": True}
    )
    assert answer.status_code == 400


def test_a_hang_up_stops_the_upstream(engine: Engine, front: Engine) -> None:
    with front.client.stream("POST", "/v1/messages", json=LONG) as answer:
        next(line for line in answer.iter_lines() if '"content_block_delta"' in line)
    assert engine.wait_idle()["at_worker"] == 0 and front.wait_idle()["at_worker"] == 0
    assert front.get("/v1/requests?limit=1")["requests"][0]["end"] == "client_gone"


def test_an_upstream_that_dies_in_mid_stream(engine: Engine, models_dir: Path) -> None:
    with contextlib.ExitStack() as stack:
        victim = stack.enter_context(engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]))
        pair = [victim, engine]
        keys = " ".join(one.admin_token for one in pair)
        front = stack.enter_context(front_before([one.url for one in pair], "tiny-hybrid", models_dir, token=keys))
        replicas = front.get("/v1/stats")["engine"]["upstream"]
        assert all(one["live"] for one in replicas), replicas
        # a conversation stays where it began, another one goes where less was done
        talks = [[{"role": "user", "content": f"{name} " * 300}] for name in ("one", "other")]
        for _ in range(2):
            for talk in talks:
                body = {"model": "m", "messages": talk, "max_tokens": 8, "temperature": 0}
                answer = front.client.post("/v1/chat/completions", json=body).raise_for_status().json()
                talk += [answer["choices"][0]["message"], {"role": "user", "content": "go on"}]
        replicas = front.get("/v1/stats")["engine"]["upstream"]
        assert [one["served"] for one in replicas] == [2, 2] and all(one["cached_tokens"] > 300 for one in replicas)
        with front.client.stream("POST", "/v1/messages", json={**LONG, "messages": talks[0]}) as answer:
            events = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
            assert next(event for event in events if event["type"] == "content_block_delta")
            pair[0].process.kill()
            last = list(events)[-1]
        assert last["type"] == "error" and "Send the request again" in last["error"]["message"], last
        body = {"model": "m", "messages": talks[0], "max_tokens": 8}
        assert front.client.post("/v1/chat/completions", json=body).status_code == 200
        gone, alive = front.get("/v1/stats")["engine"]["upstream"]
        assert (gone["failed"] >= 1, alive["served"]) == (True, 3)
        ready = front.get("/ready")
        assert ready["state"] == "ready"
        os.kill(pair[1].worker_pid(), signal.SIGKILL)  # an upstream that is only restarting itself
        deadline = time.monotonic() + 180
        while (answer := front.client.post("/v1/chat/completions", json=body)).status_code != 200:
            assert int(answer.headers["retry-after"]) > 0 and time.monotonic() < deadline, answer.text
            time.sleep(0.5)


def test_the_key_is_wrong(engine: Engine, models_dir: Path) -> None:
    with front_before([engine.url], "tiny-hybrid", models_dir, token="not-it", ready=False) as front:
        answer = front.client.post("/v1/chat/completions", json={**LONG, "stream": False})
        told = json.dumps(front.client.get("/ready").json())
    assert answer.status_code == 503 and "FT_UPSTREAM_TOKEN" in answer.text and int(answer.headers["retry-after"]) > 0
    assert "not-it" not in answer.text + told


def test_a_folder_without_weights_is_enough(engine: Engine, models_dir: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "chat_template.jinja", "config.json"):
        (tmp_path / name).write_bytes((models_dir / "tiny-hybrid" / name).read_bytes())
    end = json.loads((models_dir / "tiny-hybrid" / "ftw.json").read_text())["eos_token_ids"]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": end, "do_sample": False}))
    ask = {**LONG, "stream": False, "max_tokens": 30, "temperature": 0}
    with front_before([engine.url], str(tmp_path), models_dir, token=engine.admin_token) as front:
        through = front.client.post("/v1/messages", json=ask).raise_for_status().json()
    direct = engine.client.post("/v1/messages", json=ask).json()
    assert _said(through["content"]) == _said(direct["content"]) and through["usage"]["input_tokens"] > 0
