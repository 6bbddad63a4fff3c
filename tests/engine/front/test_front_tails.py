"""A session goes on: under its own id, with its prompt brought back before the agent asks, in another process of the engine too."""

from __future__ import annotations

import stat
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from engine.forget import forget
from engine.front.history import harness_ids, of_session
from engine.front.records import RequestRecord
from engine.prompt.tokenizer import Tokenizer
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
    engine.wait_idle()
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
        engine.wait_idle()
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


def texts_in(folder: Path, words: list[int]) -> list[str]:
    """The files that hold these tokens in a row, as the numbers of 32 bits that they are kept as, or as JSON."""
    raw, text = array("I", words).tobytes(), ", ".join(map(str, words)).encode()
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and any(t in path.read_bytes() for t in (raw, text))
    )


def test_a_forgotten_session_leaves_none_of_its_words_on_disk(models_dir: Path, tmp_path: Path) -> None:
    """Asked of the engine while it runs; another session that began alike goes on as warm as before. Then while none runs."""
    flags = ["--kv", "32k", "--anticipate", "on", "--hibernate-dir", str(tmp_path), "--hibernate-bytes", str(1 << 30)]
    fields = {"harness": "t", "project": "/p", "declaration": DECLARED}
    secret = "The password of the vault is nine purple elephants."
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        tokens = Tokenizer.load(models_dir / "tiny-hybrid" / "tokenizer.json").encode(secret)[3:9]
        one, two = engine.session(**fields), engine.session(**fields)
        system = {"role": "system", "content": WORDS}
        ask(engine, one, [system, {"role": "user", "content": secret}])
        ask(engine, two, [system, {"role": "user", "content": "Something else."}])
        for session in (one, two):
            engine.client.delete(f"/v1/sessions/{session['id']}").raise_for_status()
        wait_until(lambda: engine.get("/v1/stats")["engine"]["hibernation"]["dirty_lines"] == 0)
        assert texts_in(tmp_path, tokens), "nothing was kept, so nothing can be forgotten"
        before = forget(tmp_path, [one["id"]], False, dry_run=True)
        assert before["files"]
        assert engine.client.post("/v1/sessions/nobody/forget").status_code == 404
        engine.client.post(f"/v1/sessions/{one['id']}/forget").raise_for_status()
        wait_until(lambda: not texts_in(tmp_path, tokens))
        assert engine.client.get(f"/v1/sessions/{one['id']}").status_code == 404
        files = engine.get("/v1/stats")["engine"]["hibernation"]
        assert files["damaged"] == 0 and files["files"] == len(list(tmp_path.rglob("*-*.kv"))) + len(
            list(tmp_path.rglob("*.state"))
        )
    assert texts_in(tmp_path, tokens) == [], "it was written again when the engine stopped"
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        engine.session(**fields, id=two["id"])
        brought = engine.client.post(f"/v1/sessions/{two['id']}/prefetch").json()
        assert brought["tier"] == "disk" and brought["of"] - brought["tokens"] < 64, brought
    done = forget(tmp_path, [one["id"], two["id"]], False, dry_run=False)
    assert done["files"] and not list(tmp_path.glob("tails-*/s-*")) and not list(tmp_path.rglob("*.kv"))


def wait_until(true: Callable[[], bool], limit_s: float = 180.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
