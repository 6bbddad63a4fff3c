"""Hermes in a whole session on our engine, with a home that wants it elsewhere. Nothing leaves loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.test_agents_hostile import KEYS, SWITCHES
from tests.agents.test_agents_sessions import ANSWER, TASK, script

pytestmark = pytest.mark.agents

HOME = {
    ".hermes/config.yaml": "model:\n  default: paid\n  provider: openrouter\nfallback_providers:\n  - provider: anthropic\n    model: paid\n",
    ".hermes/.env": "OPENROUTER_API_KEY=sk-real\nOPENAI_API_KEY=sk-real\n",
    ".claude/.credentials.json": json.dumps(
        {"claudeAiOauth": {"accessToken": "sk-real", "refreshToken": "r", "expiresAt": 4102444800000}}
    ),
    ".codex/auth.json": json.dumps({"tokens": {"access_token": "sk-real", "refresh_token": "r"}}),
    "project/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://project.example.com/v1\n",
}


@pytest.mark.timeout(300)
def test_session_in_a_hostile_home(rig: Any) -> None:
    rig.install("hermes")
    for path, text in HOME.items():
        rig.keep(path, text)
    rig.env.update(
        {name: "sk-real" for name in KEYS}, **{k: v for k, v in SWITCHES.items() if "proxy" not in k.lower()}
    )
    turns = script(rig.project)
    turns["turns"] += [{"blocks": [{"text": ANSWER}]}] * 2  # after an edit it asks once more whether that was verified
    run = rig.launch("hermes", "chat", "--yolo", "-Q", "-q", TASK, model="tiny-hybrid", timeout_s=200, script=turns)
    assert run.code == 0, str(run)
    assert ANSWER in run.stdout, run
    assert (rig.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n", run
    assert (rig.project / "seen.txt").read_text() == "    return a - b\n", "bash ran before the edit"
    own = [request for request in run.requests if not request["side"]]
    assert 4 <= len(own) <= 6
    assert [request["end"] for request in own] == [*["tool_use"] * 3, *["stop"] * (len(own) - 3)], run
    assert all(request["session"] and request["scripted"] and not request["error"] for request in run.requests)
    assert all(later["cached_tokens"] > 0 for later in own[1:]), "a later turn found nothing of the one before it"
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    for path, text in HOME.items():
        place = rig.project / path[8:] if path.startswith("project/") else rig.home / path
        assert place.read_text() == text, f"{path} was changed"


@pytest.mark.timeout(120)
def test_a_window_that_is_too_small_is_refused(rig: Any) -> None:
    rig.install("hermes")
    run = rig.launch(
        "hermes", "chat", "--yolo", "-Q", "-q", TASK, model="tiny-hybrid", timeout_s=60, options=("--ctx", "48k")
    )
    assert run.code == 5 and "needs a window of 64,000 tokens" in run.stderr, run
    assert run.requests == []
