"""Numbers out of range, halves of characters, wrong methods: refused at the door, and nobody else notices."""

from __future__ import annotations

import json
import re
import socket
import threading
import time

import httpx
import pytest

from engine.api.fields import _parse
from engine.errors import BadRequest
from engine.front import sessions
from engine.front.supervision.pending import Pending
from engine.prompt.edits import template as templates
from engine.protocol import Sampling, Submit
from tests.serving import Engine

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "field",
    [
        '"seed": 1180591620717411303424',
        '"seed": -1180591620717411303424',
        '"top_k": 100000000000000000000',
        '"max_tokens": 1e300',
        '"temperature": NaN',
        '"temperature": Infinity',
        '"top_p": 1e999',
        '"presence_penalty": -1e999',
        '"repetition_penalty": ' + "9" * 400,
        '"logit_bias": {"5": NaN}',
        '"logit_bias": {"5": Infinity}',
        '"logit_bias": {"5": 1e60}',
        '"logit_bias": {"-1": 1}',
        '"logit_bias": {"999999": 1}',
        '"logit_bias": {"5": true}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"])
def test_a_number_out_of_range_is_refused_and_leaves_nothing(engine: Engine, path: str, field: str) -> None:
    name = field.split('"')[1]
    if path == "/v1/responses":
        field = field.replace('"max_tokens"', '"max_output_tokens"')
    worker = engine.worker_pid()
    text = '{"messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi", ' + field + "}"
    answer = engine.client.post(path, content=text, headers=JSON)
    assert answer.status_code == 400, (name, answer.text)
    stats = engine.get("/v1/stats")
    assert (stats["running"], stats["at_worker"], engine.worker_pid()) == (0, 0, worker)


def test_what_the_wire_cannot_carry_is_refused_before_it_is_registered() -> None:
    with pytest.raises(BadRequest, match="handed to the worker"):
        Pending(Submit("r", [1], 1, sampling=Sampling(seed=2**70)))
    with pytest.raises(BadRequest, match="over the limit"):
        Pending(Submit("r", [1], 1, grammar="x" * (65 << 20)))


@pytest.mark.parametrize(
    "field", ['"watchdog_s": NaN', '"watchdog_s": 1e999', '"window": 1e400', '"config": {"x": NaN}']
)
def test_a_session_with_no_number_is_refused_and_the_others_are_listed(engine: Engine, field: str) -> None:
    answer = engine.client.post("/v1/sessions", content='{"harness": "x", ' + field + "}", headers=JSON)
    assert answer.status_code == 400, answer.text
    assert engine.client.get("/v1/sessions").status_code == 200


@pytest.mark.parametrize("half", [b"\\udcff", b"\xed\xb3\xbf"])
def test_half_a_character_harms_nobody(engine: Engine, half: bytes) -> None:
    """A folder with a name that is no UTF-8, and a text that an agent cut inside an emoji."""
    for name in (b"project", b"name", b"harness"):
        body = b'{"' + name + b'": "/tmp/' + half + b'"}'
        answer = engine.client.post("/v1/sessions", content=body, headers=JSON)
        assert answer.status_code == 201, answer.text
    assert "/tmp/\ufffd" in engine.client.get("/v1/sessions").text
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        message = b'[{"role": "user", "content": "cut ' + half + b'"}]'
        body = b'{"model": "' + half + b'", "max_tokens": 2, "max_output_tokens": 2, "input": %b, "messages": %b}'
        answer = engine.client.post(path, content=body % (message, message), headers=JSON)
        assert answer.status_code == 200, answer.text


def test_counts_in_addresses(engine: Engine) -> None:
    for query in ("limit=-1", "limit=" + "9" * 5000, "limit=²"):
        assert engine.client.get(f"/v1/requests?{query}").status_code == 400
    assert engine.client.get("/v1/engine/events?after=" + "9" * 5000).status_code == 400


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/sessions/x/turns", "/v1/stats"])
def test_a_wrong_method_is_405_with_what_would_be_right(engine: Engine, path: str) -> None:
    answer = engine.client.request("PUT", path, json={})
    assert answer.status_code == 405
    assert answer.headers["allow"]
    assert "does not take this method" in answer.json()["error"]["message"]


def test_whole_characters_are_not_touched_by_the_repair() -> None:
    body = {"a": ["grün 😀 ok", {"😀": "\\ud83d"}], "n": 1.5, "big": 2**62}
    assert _parse(json.dumps(body).encode(), "") == body
    assert _parse(b'{"a": "\\ud83d|\\ude00"}', "") == {"a": "\ufffd|\ufffd"}


@pytest.mark.parametrize(
    ("size", "least"), [(1_200_000, 200_000), (12_000_000, 12_000_000 // 81)], ids=["tokenised", "refused unread"]
)
def test_a_huge_prompt_stalls_nobody(engine: Engine, size: int, least: int) -> None:
    text = "the quick brown fox jumps " * (size // 26)
    answers: list[httpx.Response] = []

    def ask() -> None:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 5}
        answers.append(httpx.post(engine.url + "/v1/messages", json=body, headers=engine.client.headers, timeout=120))

    asking = threading.Thread(target=ask)
    began, worst = time.monotonic(), 0.0
    asking.start()
    while asking.is_alive():
        asked = time.monotonic()
        assert engine.client.get("/health").status_code == 200
        worst = max(worst, time.monotonic() - asked)
        time.sleep(0.02)
    asking.join()
    found = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", answers[0].json()["error"]["message"])
    assert answers[0].status_code == 400 and found and int(found[1]) >= least > int(found[2])
    assert worst < max(1.0, (time.monotonic() - began) / 2)


def test_a_body_over_the_limit_is_413_in_each_dialect(engine: Engine) -> None:
    body = b'{"messages": "' + b"x" * (64 << 20) + b'"}'
    answer = engine.client.post("/v1/messages", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")
    answer = engine.client.post("/v1/chat/completions", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("length", [str((64 << 20) + 1), "9" * 18])
def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent(engine: Engine, length: str) -> None:
    for path, kind in (("/v1/messages", "request_too_large"), ("/v1/chat/completions", "body_too_large")):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
        head += f"Authorization: {engine.client.headers['authorization']}\r\nContent-Type: application/json\r\n\r\n"
        with socket.create_connection(("127.0.0.1", httpx.URL(engine.url).port), timeout=30) as wire:
            wire.sendall(head.encode())
            answer = b""
            while kind.encode() not in answer and (part := wire.recv(65536)):
                answer += part
        assert answer.startswith(b"HTTP/1.1 413 ") and kind.encode() in answer, answer


def test_at_the_cap_the_idle_session_unused_for_longest_goes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    registry = sessions.Sessions("admin", templates.find("", False))
    first, second, third = (registry.create({}) for _ in range(3))
    assert registry.evict() is None
    first.running, second.last_request = 1, time.time() + 5
    fourth = registry.create({})
    assert registry.evict() == third.id and registry.evict() is None
    assert registry.all() == [first, second, fourth]
    assert registry.authenticate(third.id, third.token) is None
    for session in registry.all():
        session.running = 1
    with pytest.raises(BadRequest, match="busy"):
        registry.create({})
    # And over HTTP, past the real cap.
    kept = engine.session()["id"]
    for _ in range(1024):
        last = engine.session()["id"]
    listed = [s["id"] for s in engine.get("/v1/sessions")["sessions"]]
    assert len(listed) == 1024 and kept not in listed and last in listed
