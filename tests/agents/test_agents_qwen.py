"""Qwen Code in a whole session on our engine, with a home that wants it elsewhere. Nothing leaves loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.test_agents_hostile import KEYS, SWITCHES
from tests.agents.test_agents_sessions import ANSWER, TASK, script

pytestmark = pytest.mark.agents

ELSEWHERE = {"id": "paid", "baseUrl": "https://user.example.com/v1", "envKey": "PAID_KEY"}
HOME = {
    ".qwen/settings.json": json.dumps(
        {
            "security": {"auth": {"selectedType": "qwen-oauth"}},
            "model": {"name": "paid", "generationConfig": {"timeout": 1}},
            "modelProviders": {"openai": [ELSEWHERE]},
            "fastModel": "paid",
            "env": {"OPENAI_BASE_URL": "https://user.example.com/v1"},
            "$version": 4,  # Qwen Code itself adds it where it is missing
        },
        indent=2,
    ),
    ".qwen/oauth_creds.json": json.dumps({"access_token": "sk-real", "expiry_date": 4102444800000}),
    "project/.env": "OPENAI_API_KEY=sk-real\nOPENAI_BASE_URL=https://project.example.com/v1\n",
    "project/.qwen/settings.json": json.dumps(
        {"model": {"name": "paid"}, "proxy": "http://project.example.com:1", "$version": 4}, indent=2
    ),
}


@pytest.mark.timeout(300)
def test_session_in_a_hostile_home(rig: Any) -> None:
    rig.install("qwen")
    for path, text in HOME.items():
        rig.keep(path, text)
    rig.env.update({name: "sk-real" for name in KEYS}, **SWITCHES)
    run = rig.launch("qwen", "--yolo", TASK, model="tiny-hybrid", timeout_s=120, script=script(rig.project))
    assert run.code == 0, run
    assert ANSWER in run.stdout, run
    assert (rig.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n", run
    assert (rig.project / "seen.txt").read_text() == "    return a - b\n", "bash ran before the edit"
    turns = [request for request in run.requests if not request["side"]]
    assert [request["end"] for request in turns] == ["tool_use", "tool_use", "tool_use", "stop"], run
    assert all(request["session"] and request["scripted"] and not request["error"] for request in run.requests)
    assert all(later["cached_tokens"] > 0 for later in turns[1:]), "a later turn found nothing of the one before it"
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    for path, text in HOME.items():
        place = rig.project / path[8:] if path.startswith("project/") else rig.home / path
        assert place.read_text() == text, f"{path} was changed"


@pytest.mark.timeout(120)
def test_a_window_that_is_too_small_is_refused(rig: Any) -> None:
    rig.install("qwen")
    run = rig.launch("qwen", "--yolo", TASK, model="tiny-hybrid", timeout_s=60, options=("--ctx", "48k"))
    assert run.code == 5 and "needs a window of 64,000 tokens" in run.stderr, run
    assert run.requests == []
