"""How the last session began, computed before the next one asks: after a restart too."""

from __future__ import annotations

import stat
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.front.heads import LEAST_TOKENS, MAX_HEADS, Heads
from engine.protocol import EditPoint
from tests.serving import Engine, engine_server

TOOL = {"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}}
SYSTEM = "You work on files, with care and in small steps. " * 80


def first_request(engine: Engine, day: str, **fields: Any) -> dict[str, Any]:
    """The record of the first request of a new session, a while after it was registered."""
    session = engine.session(**fields)
    time.sleep(1.0)  # the agent starts
    engine.wait_idle()
    system, user = {"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{day} is the day."}
    answer = engine.client.post(
        f"/s/{session['id']}/v1/chat/completions",
        json={"messages": [system, user], "tools": [TOOL], "max_tokens": 4},
        headers={"authorization": f"Bearer {session['token']}"},
    )
    assert answer.status_code == 200, answer.text
    engine.wait_idle()
    record: dict[str, Any] = engine.get(f"/v1/sessions/{session['id']}/turns")["turns"][-1]
    return record


def test_the_head_is_there_before_the_first_request(models_dir: Path, tmp_path: Path) -> None:
    """Cold once; in the next process of the engine only the session's own text is computed."""
    flags = ["--kv", "32k", "--anticipate", "on", "--hibernate-dir", str(tmp_path), "--hibernate-bytes", "1"]
    same = {"harness": "x", "project": "/p", "version": "1"}
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        cold = first_request(engine, "Monday", **same)
        assert cold["cached_tokens"] == 0 and cold["prompt_tokens"] > 800
    (kept,) = tmp_path.glob("heads-*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        other = engine.session(harness="x", project="/other", version="1")
        assert engine.get("/v1/stats")["anticipation"]["submitted"] == 0 and other
        warm = first_request(engine, "Tuesday", **same)
        assert warm["replayed_tokens"] + warm["new_tokens"] < 30
        assert warm["anticipated_tokens"] == warm["cached_tokens"] > 800
    with engine_server("tiny-hybrid", models_dir, flags=[*flags[:2], "--anticipate", "off", *flags[4:]]) as engine:
        assert first_request(engine, "Sunday", **same)["cached_tokens"] == 0


def session(project: str = "/p", id_: str = "s-aaaaaaaaaa") -> Any:
    return SimpleNamespace(id=id_, harness="x", version="1", project=project, preserve_thinking=None)


def test_two_sessions_say_how_much_of_a_beginning_comes_again(tmp_path: Path) -> None:
    heads = Heads(tmp_path / "heads.json")
    assert heads.expected(session()) is None
    one = array("I", range(2000))
    heads.began(session(), one, [EditPoint(3, "head", edge="head.start"), EditPoint(600, "head", edge="head.end")])
    assert heads.expected(session()) == one[:600]
    two = one[:1500] + array("I", [7])
    heads.began(session(), two, [EditPoint(600, "head", edge="head.end")])
    assert heads.expected(session()) == one[:1500] and heads.expected(session("/q")) is None
    heads.write()
    assert Heads(tmp_path / "heads.json").expected(session()) == one[:1500]
    changed = array("I", range(5000, 6000))
    heads.began(session(), changed, [EditPoint(700, "head", edge="head.end")])
    assert heads.expected(session()) == changed[:700]
    heads.began(session(), array("I", range(9000, 9300)), [])
    assert heads.expected(session()) is None


def test_beginnings_are_bounded_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "heads.json"
    heads = Heads(path)
    for number in range(MAX_HEADS + 1):
        heads.began(session(f"/{number}"), array("I", range(500)), [EditPoint(LEAST_TOKENS, "head", edge="head.end")])
    assert heads.expected(session("/0")) is None and heads.expected(session("/1")) is not None
    heads.write()
    for text in ("", "[]", '{"a": 1}', '{"a": {"tokens": [-1], "shared": 1}}', path.read_text()[:-9]):
        path.write_text(text)
        assert Heads(path).expected(session("/1")) is None
