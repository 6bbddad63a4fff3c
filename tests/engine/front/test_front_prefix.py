"""How much of a prompt is computed again, end to end on a hybrid model, and what the records say about it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Engine, engine_server

DECLARED = {"schema": "edits/1", "harness": "test", "versions": ">=0", "wire": {}}
FRAME = 8  # tokens of a role header that two blocks share, or of the generation prefix


@pytest.fixture(scope="module")
def engine(models_dir: Path) -> Iterator[Engine]:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "48k", "--anticipate", "off"]) as engine:
        yield engine


class Client:
    """A session; `ask` returns the answer and the request's record."""

    def __init__(self, engine: Engine, **fields: Any) -> None:
        self.engine = engine
        self.session = engine.session(**fields)
        self.id = self.session["id"]

    def ask(self, messages: list[dict[str, Any]], path: str = "chat/completions", **fields: Any) -> tuple[Any, Any]:
        body = {"model": "m", "max_tokens": 8, "messages": messages, **fields}
        auth = {"authorization": f"Bearer {self.session['token']}"}
        answer = self.engine.client.post(f"/s/{self.id}/v1/{path}", json=body, headers=auth)
        assert answer.status_code == 200, answer.text
        return answer.json(), self.engine.get(f"/v1/sessions/{self.id}/turns?texts=1")["turns"][-1]


def computed(record: dict[str, Any]) -> int:
    return int(record["replayed_tokens"] + record["new_tokens"])


def behind(record: dict[str, Any]) -> int:
    """Tokens behind the break: what any exact scheme has to compute."""
    return int(record["prompt_tokens"] - record["broke_at"]["token"])


def test_a_trailing_reminder_that_changes_costs_itself_and_what_follows(engine: Engine) -> None:
    """Case 16."""
    client = Client(engine)
    history = [{"role": "system", "content": f"{client.id} static text of a system. " * 40}]
    for i in range(5):
        history.append({"role": "user", "content": f"question {i} " * 50})
        reminder = {"role": "system", "content": f"<reminder> {i} o'clock, {i} things are open. " * 5}
        answer, record = client.ask([*history, reminder])
        history.append(answer["choices"][0]["message"])
        if i:
            assert record["broke_at"]["kind"] == "system" and record["broke_at"]["message"] == 2 * i
            assert computed(record) <= behind(record) + FRAME
            assert f"{i - 1} o'clock" in record["texts"]["old"]


@pytest.mark.parametrize("words", [1_000, 4_000, 11_000])
def test_a_static_head_is_kept_at_every_size(engine: Engine, words: int) -> None:
    """Case 33: nine tenths static, and a tail that changes."""
    client = Client(engine)
    head = {"role": "system", "content": client.id + " static" * words}
    for i in range(3):
        _, record = client.ask([head, {"role": "user", "content": f"tail {i} " * (words // 40)}])
        assert i == 0 or computed(record) <= behind(record) + FRAME


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("tokens", [23_000, 112_000, 258_000])
def test_a_static_head_is_kept_up_to_the_window(models_dir: Path, tokens: int) -> None:
    """Case 33 at its full sizes, or what the window holds of them."""
    flags = ["--kv", "264k", "--anticipate", "off"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as large:
        window = int(large.get("/ready")["window"])
        client = Client(large)
        client.engine.client.timeout = 2400
        words = min(tokens, window - 2_000)
        head = {"role": "system", "content": client.id + " static" * (words * 9 // 10)}
        for i in range(2):
            _, record = client.ask([head, {"role": "user", "content": f"tail {i} " + "words " * (words // 10 - 100)}])
            assert record["prompt_tokens"] > words * 9 // 10
            assert i == 0 or computed(record) <= behind(record) + FRAME


def test_reuse_reaches_the_point_where_two_turns_differ(engine: Engine) -> None:
    """Case 34: they differ in their last 500 tokens."""
    client = Client(engine)
    start = [
        {"role": "system", "content": f"{client.id} static text of a system. " * 40},
        {"role": "user", "content": "start " * 300},
        {"role": "assistant", "content": "yes " * 100},
    ]
    for i in range(3):
        _, record = client.ask([*start, {"role": "user", "content": f"variant {i} " + f"word{i} " * 240}])
        if i:
            assert 480 < behind(record) < 760 and computed(record) <= behind(record) + FRAME
            assert record["broke_at"]["message"] == 3 and record["broke_at"]["kind"] == "user"


def test_after_a_reply_that_reached_its_limit_nothing_is_replayed(engine: Engine) -> None:
    client = Client(engine)
    history: list[dict[str, Any]] = [{"role": "system", "content": "Text of a system with a limit. " * 20}]
    before: dict[str, Any] = {}
    for i in range(8):
        history.append({"role": "user", "content": f"question {i} " * 20})
        answer, record = client.ask(history, max_tokens=24, temperature=1.5, seed=i, reasoning_effort="none")
        assert answer["choices"][0]["finish_reason"] == "length"
        history.append(answer["choices"][0]["message"])
        if i:
            computed_before = before["prompt_tokens"] + before["output_tokens"] - 1  # the last was never an input
            assert record["replayed_tokens"] == 0 and record["cached_tokens"] == computed_before
        before = record


@pytest.mark.parametrize("declared", [True, False])
def test_a_date_that_changes_in_the_system_text(engine: Engine, declared: bool) -> None:
    """Case 41: the first midnight finds a checkpoint where the client declared one, the second in any case."""
    edge = "system.re('Today is').start"
    rule = {"id": "date", "op": "replace_head", "at": [edge], "known": "event", "when": "day_changed"}
    keep = {"edge": edge, "class": "head", "quota": 2}
    client = Client(engine, declaration={**DECLARED, "rule": [rule], "keep": [keep]} if declared else None)
    for i, day in enumerate(("Monday", "Tuesday", "Wednesday")):
        system = f"{client.id} static line\n" * 60 + f"Today is {day}.\n" + "rules line\n" * 100
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "go on " * 100}]
        _, record = client.ask(messages)
        if i:
            assert record["broke_at"]["kind"] == "system"
            assert "Today is" in record["texts"]["old"] and f"Today is {day}" in record["texts"]["new"]
            exact = computed(record) <= behind(record) + 8
            assert exact or (i == 1 and not declared)
        if i and declared:
            assert record["broke_at"]["edge"] == edge


def test_a_side_request_leaves_the_main_line_alone(engine: Engine) -> None:
    """Case 31, with a declared title request: it has a line of its own, and so its own history of breaks."""
    side = {"kind": "title", "match": {"tools": 0, "system_re": "^Make a title"}, "head": "own"}
    client = Client(engine, declaration={**DECLARED, "side": [side]})
    history = [
        {"role": "system", "content": f"{client.id} works. " * 100},
        {"role": "user", "content": "a long task " * 400},
    ]
    answer, first = client.ask(history)
    _, title = client.ask([{"role": "system", "content": "Make a title."}, history[1]])
    history += [answer["choices"][0]["message"], {"role": "user", "content": "and then?"}]
    _, second = client.ask(history)
    assert (first["kind"], title["kind"], second["kind"]) == (None, "title", None)
    assert title["line"] != first["line"] == second["line"]
    assert second["broke_at"] is None and second["cached_tokens"] >= first["prompt_tokens"] - FRAME


def test_subagents_keep_their_own_lines(engine: Engine) -> None:
    """Case 40: the same tools and other system texts, in turns with the main one."""
    wire = {"api": ["chat"], "session": ["header:x-session"], "parent": ["header:x-agent:presence"]}
    client = Client(engine, declaration={**DECLARED, "wire": wire})
    auth = {"authorization": f"Bearer {client.session['token']}", "x-session": "main"}
    histories: dict[str, list[dict[str, Any]]] = {
        name: [
            {"role": "system", "content": f"{name} of {client.id}. " * 60},
            {"role": "user", "content": f"task of {name} " * 60},
        ]
        for name in ("", "one", "two", "three", "four")
    }
    sent = dict.fromkeys(histories, 0)
    for _ in range(3):
        for name, history in histories.items():
            headers = {**auth, **({"x-agent": name} if name else {})}
            body = {"messages": history, "max_tokens": 8}
            answer = engine.client.post(f"/s/{client.id}/v1/chat/completions", json=body, headers=headers)
            history += [answer.json()["choices"][0]["message"], {"role": "user", "content": "go on"}]
            record = engine.get(f"/v1/sessions/{client.id}/turns")["turns"][-1]
            assert record["broke_at"] is None
            assert record["line"].endswith(f"main/{name}" if name else "/main")
            assert record["cached_tokens"] >= sent[name] - FRAME
            sent[name] = record["prompt_tokens"]


def test_after_a_worker_restart_the_record_says_why_it_is_cold(engine: Engine) -> None:
    """Case 38, without prefixes kept on disk."""
    client = Client(engine)
    history = [{"role": "user", "content": f"{client.id} remembers " * 200}]
    answer, record = client.ask(history)
    assert record["cold"] is None
    before = engine.worker_pid()
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + 180
    while engine.client.get("/ready").status_code != 200 or engine.worker_pid() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    history += [answer["choices"][0]["message"], {"role": "user", "content": "and?"}]
    answer, record = client.ask(history)
    assert record["cold"] == "the worker was restarted" and record["broke_at"] is None
    history += [answer["choices"][0]["message"], {"role": "user", "content": "and then?"}]
    assert client.ask(history)[1]["cold"] is None
