"""A session goes on: under its own id, with its prompt brought back before the agent asks, in another process of the engine too."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import httpx

from engine.front.history import harness_ids, of_session
from engine.front.records import RequestRecord
from tests.serving import Engine, engine_server

WORDS = "You work on files, with care and in small steps. " * 80
DECLARED = {"schema": "edits/1", "harness": "t", "versions": ">=0"}
WIRE = {"wire": {"session": ["header:x-id"], "parent": ["header:x-parent"]}}


def ask(engine: Engine, session: dict[str, Any], turns: list[dict[str, str]], **headers: str) -> dict[str, Any]:
    answer = engine.client.post(
        f"/s/{session['id']}/v1/chat/completions",
        json={"messages": turns, "max_tokens": 8},
        headers={"authorization": f"Bearer {session['token']}", **headers},
    )
    assert answer.status_code == 200, answer.text
    engine.wait_idle(30)
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return message


def test_a_session_goes_on_in_another_process_of_the_engine(models_dir: Path, tmp_path: Path) -> None:
    flags = ["--kv", "32k", "--anticipate", "on", "--hibernate-dir", str(tmp_path), "--hibernate-bytes", str(1 << 30)]
    fields = {"harness": "t", "project": "/p", "declaration": {**DECLARED, **WIRE}}
    turns = [{"role": "user", "content": WORDS + "Begin."}]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        first = engine.session(**fields)
        assert engine.client.post(f"/v1/sessions/{first['id']}/prefetch").json()["tier"] == "gone"
        turns += [{"role": "assistant", "content": ask(engine, first, turns, **{"x-id": "one"}).get("content") or ""}]
        engine.client.delete(f"/v1/sessions/{first['id']}").raise_for_status()
        known = engine.get(f"/v1/sessions/{first['id']}")
        assert [(one["id"], one["parent"], one["requests"]) for one in known["harness_ids"]] == [("one", None, 1)]
        assert known["warm"]["tier"] == "memory" and known["warm"]["tokens"] > 800
        assert known["stats"]["turns"] == 1 and known["last_stop"] in ("stop", "length")
    (kept,) = tmp_path.glob("tails-*/s-*")
    assert kept.name == first["id"] and stat.S_IMODE(kept.stat().st_mode) == 0o600
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        again = engine.session(**fields, id=first["id"])
        assert again["id"] == first["id"] and again["token"] != first["token"]
        assert engine.get(f"/v1/sessions/{first['id']}")["warm"]["tier"] == "disk"
        brought = engine.client.post(f"/v1/sessions/{first['id']}/prefetch").json()
        assert brought["tier"] == "disk" and brought["of"] - brought["tokens"] < 64, brought
        engine.wait_idle(30)
        ask(engine, again, [*turns, {"role": "user", "content": "Go on."}], **{"x-id": "two"})
        record = engine.get(f"/v1/sessions/{first['id']}/turns")["turns"][-1]
        assert record["new_tokens"] + record["replayed_tokens"] < 64 < 800 < record["cached_tokens"]
        fork = engine.session(**fields, parent=first["id"])
        assert engine.client.post(f"/v1/sessions/{fork['id']}/prefetch").json()["of"] > 0


def test_who_may_take_an_id(models_dir: Path) -> None:
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
        one = engine.session(id="s-abcdefghij")
        assert one["id"] == "s-abcdefghij"
        other = engine.session(id=one["id"])
        ask(engine, other, [{"role": "user", "content": "hi"}])
        path = f"/s/{one['id']}/v1/models"
        with httpx.Client(base_url=engine.url, trust_env=False) as client:
            for token, status in ((one["token"], 401), (other["token"], 200)):
                assert client.get(path, headers={"authorization": f"Bearer {token}"}).status_code == status
        for bad in ("../../etc", "s-ABCDEFGHIJ", "s-abc", 7):
            assert engine.client.post("/v1/sessions", json={"id": bad}).status_code == 400, bad
            assert engine.client.post("/v1/sessions", json={"parent": bad}).status_code == 400, bad


def record(harness_id: str | None, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    made = RequestRecord("r", "s", "chat", "m", True, harness_id=harness_id, harness_parent=parent).json()
    return {**made, "end": "stop", **fields}


def test_ids_come_in_the_order_of_their_last_use_and_a_shared_one_has_no_parent() -> None:
    records = [
        record("main"),
        record("main", "agent-7"),
        record("sub", "main"),
        record(None),
        record("cleared"),
        record("main", side=True, kind="title", end="error"),
    ]
    found = harness_ids(records)
    assert [(one["id"], one["parent"], one["requests"]) for one in found] == [
        ("sub", "main", 1),
        ("cleared", None, 1),
        ("main", None, 3),
    ]
    told = of_session(records)
    assert told["last_stop"] == "stop" and told["stats"]["refused"] == 1 and told["stats"]["turns"] == 5
    assert told["stats"]["prompt_tokens"] is None
