"""An orderly stop writes what was computed, and the engine that starts after it goes on from there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.serving import Engine, engine_server

WORDS = "a long file with many lines, of which each says something else than the one before it, number {}.\n"
TOOL = {"type": "function", "function": {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}}


def ask(engine: Engine, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer's choice and the request's record."""
    session = engine.session()
    body = {"messages": messages, "tools": [TOOL], "max_tokens": 16, "temperature": 0, "logprobs": True}
    auth = {"authorization": f"Bearer {session['token']}"}
    answer = engine.client.post(f"/s/{session['id']}/v1/chat/completions", json=body, headers=auth)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0], engine.get(f"/v1/sessions/{session['id']}/turns")["turns"][-1]


def stop(engine: Engine) -> None:
    """As `ft engine stop` does it: asked over HTTP, then waited for."""
    assert engine.client.post("/v1/engine/stop").status_code == 202
    deadline = time.monotonic() + 180
    while engine.process.poll() is None:
        assert time.monotonic() < deadline, engine.log.read_text()
        time.sleep(0.05)


def test_after_stop_and_start_the_next_turn_prefills_only_its_new_text(models_dir: Path, tmp_path: Path) -> None:
    flags = ["--kv", "32k", "--anticipate", "on", "--hibernate-dir", str(tmp_path / "kept")]
    flags += ["--hibernate-bytes", str(1 << 30)]
    text = "".join(WORDS.format(i) for i in range(480))
    first: list[dict[str, Any]] = [{"role": "user", "content": text}]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        choice, record = ask(engine, first)
        assert record["prompt_tokens"] > 10_000 and record["cached_tokens"] == 0
        engine.wait_idle()
        stop(engine)
    again = [*first, choice["message"], {"role": "user", "content": "And what is the sum?"}]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        warm, record = ask(engine, again)
        assert record["tier"] == "disk"
        # What the stop had not seen: the answer (its tokens are known to the old process only) and the question.
        assert record["replayed_tokens"] + record["new_tokens"] < 60
        assert record["cached_tokens"] > 10_000
    with engine_server("tiny-hybrid", models_dir, flags=["--kv", "32k"]) as engine:
        cold, record = ask(engine, again)
        assert record["cached_tokens"] == 0
    assert warm["message"]["content"] == cold["message"]["content"]
    assert warm["logprobs"] == cold["logprobs"]
