"""The published agents among settings, logins and keys that point elsewhere: all of it reaches our engine all the same."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.agents

ANSWER = "Answered here, on this machine."
KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "MY_OPENAI_API_KEY",
    "DEEPSEEK_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK", "OPENCODE_API_KEY",
)  # fmt: skip
SWITCHES = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "ANTHROPIC_BASE_URL": "https://shell.example.com",
    "OPENAI_BASE_URL": "https://shell.example.com/v1",
    "CLAUDE_CODE_USE_FOUNDRY": "1",
    "CODEX_API_KEY": "sk-real",
    "OPENCODE_AUTH_CONTENT": json.dumps({"anthropic": {"type": "api", "key": "sk-real"}}),
    "OPENCLAW_GATEWAY_URL": "ws://shell.example.com",
    "HTTPS_PROXY": "http://proxy.example.com:3128",
    "http_proxy": "http://proxy.example.com:3128",
}


def _vendor_token() -> str:
    """A login token of Codex' vendor, unsigned: it is read, never verified, by the client."""
    claims = {
        "exp": 4102444800,
        "https://api.openai.com/auth": {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a"},
    }
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    )
    return ".".join((*parts, "x"))


def _codex_login() -> str:
    token = _vendor_token()
    tokens = {"id_token": token, "access_token": token, "refresh_token": "r", "account_id": "a"}
    return json.dumps({"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"})


HOMES: dict[str, dict[str, str]] = {
    "claude": {
        ".claude/settings.json": json.dumps(
            {
                "apiKeyHelper": "touch helper-ran; echo sk-real",
                "model": "claude-opus-5",
                "env": {"ANTHROPIC_BASE_URL": "https://user.example.com", "ANTHROPIC_API_KEY": "sk-real"},
            }
        ),
        ".claude/.credentials.json": json.dumps(
            {
                "claudeAiOauth": {
                    "accessToken": "sk-ant-oat01-x",
                    "refreshToken": "r",
                    "expiresAt": 4102444800000,
                    "scopes": [],
                }
            }
        ),
        "project/.claude/settings.json": json.dumps(
            {"env": {"ANTHROPIC_BASE_URL": "https://project.example.com", "CLAUDE_CODE_USE_VERTEX": "1"}}
        ),
    },
    "codex": {
        ".codex/config.toml": 'model_provider = "paid"\nmodel = "gpt-9"\n'
        '[model_providers.paid]\nname = "paid"\nbase_url = "https://user.example.com/v1"\n',
        ".codex/auth.json": _codex_login(),
    },
    "opencode": {
        "project/opencode.json": json.dumps(
            {
                "$schema": "https://opencode.ai/config.json",  # OpenCode itself adds it where it is missing
                "model": "paid/x",
                "small_model": "paid/x",
                "provider": {
                    "paid": {
                        "options": {"baseURL": "https://project.example.com/v1", "apiKey": "k"},
                        "models": {"x": {}},
                    },
                    "ft": {"options": {"baseURL": "https://project.example.com/v1"}},
                },
            }
        ),
        ".local/share/opencode/auth.json": json.dumps({"anthropic": {"type": "api", "key": "sk-real"}}),
    },
    "pi": {
        ".pi/agent/settings.json": json.dumps({"defaultProvider": "anthropic", "defaultModel": "claude-opus-4-7"}),
        ".pi/agent/auth.json": json.dumps({"anthropic": {"type": "api_key", "key": "sk-real"}}),
        ".pi/agent/models.json": json.dumps(
            {"providers": {"ft": {"baseUrl": "https://user.example.com/v1", "apiKey": "k"}}}
        ),
    },
}
OPENCLAW = {
    ".openclaw/openclaw.json": json.dumps(
        {
            "models": {"providers": {"paid": {"baseUrl": "https://user.example.com/v1", "apiKey": "sk-real"}}},
            "agents": {"defaults": {"model": {"primary": "paid/x", "fallbacks": ["paid/y", "anthropic/claude-opus"]}}},
        }
    ),
    ".claude/.credentials.json": HOMES["claude"][".claude/.credentials.json"],
    ".codex/auth.json": HOMES["codex"][".codex/auth.json"],
}
ARGS = {
    "claude": ("-p", "Say it.", "--allowedTools", "Bash"),
    "codex": ("exec", "-s", "danger-full-access", "Say it."),
    "opencode": ("run", "Say it."),
    "pi": ("-p", "Say it."),
}
CONTINUE = {
    "claude": ("-p", "Again.", "--continue", "--allowedTools", "Bash"),
    "codex": ("exec", "-s", "danger-full-access", "resume", "--last", "Again."),
    "opencode": ("run", "--continue", "Again."),
    "pi": ("--continue", "-p", "Again."),
}
CONVERSATIONS = {"claude": ".claude/projects", "pi": ".pi/agent/sessions"}  # below the home, as text


@pytest.mark.timeout(300)
@pytest.mark.parametrize("agent", HOMES)
def test_nothing_goes_elsewhere(rig: Any, agent: str) -> None:
    rig.install(agent)
    for path, text in HOMES[agent].items():
        rig.keep(path, text)
    rig.env.update({name: "sk-real" for name in KEYS}, **SWITCHES)
    rig.secrets = ["sk-real", "sk-ant-oat01-x", _vendor_token()]
    look = f"env > {rig.project}/env.txt"
    turns = [{"blocks": [{"tool": "bash", "args": {"command": look}}]}, {"blocks": [{"text": ANSWER}]}]
    run = rig.launch(
        agent, *ARGS[agent], model="tiny-hybrid", timeout_s=120, script={"turns": turns, "side": "A title"}
    )
    assert run.code == 0, run
    assert ANSWER in run.stdout, run
    assert [request["end"] for request in run.requests if not request["side"]] == ["tool_use", "stop"], run
    assert (run.lookups, run.no_routes) == ([], 0), "something tried to leave this machine"
    assert run.secrets == [], "a real key was sent, if only to our engine"
    assert "sk-real" not in (rig.project / "env.txt").read_text(), "the agent's own commands saw a key"
    assert not list(rig.folder.rglob("helper-ran"))
    _assert_unchanged(rig, HOMES[agent])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("agent", [pytest.param(n, marks=() if n == "pi" else pytest.mark.slow) for n in HOMES])
def test_case_3_a_conversation_that_pins_a_paid_model(rig: Any, agent: str) -> None:
    """It is continued on our engine, through the agent's own arguments, and says afterwards what it said before."""
    rig.install(agent)
    for path, text in HOMES[agent].items():
        rig.keep(path, text)
    rig.env.update({name: "sk-real" for name in KEYS}, **SWITCHES)
    rig.secrets = ["sk-real", "sk-ant-oat01-x", _vendor_token()]
    script = {"turns": [{"blocks": [{"text": ANSWER}]}] * 2, "side": "A title"}
    first = rig.launch(agent, *ARGS[agent], model="tiny-hybrid", timeout_s=120, script=script)
    assert first.code == 0, first
    pinned = {}
    if agent in CONVERSATIONS:
        for file in (rig.home / CONVERSATIONS[agent]).rglob("*.jsonl"):
            text = file.read_text().replace('"ft"', '"anthropic"').replace("tiny-hybrid", "claude-opus-4-7")
            file.write_text(text)
            pinned[file] = text
        assert any("claude-opus-4-7" in text for text in pinned.values())
    run = rig.launch(agent, *CONTINUE[agent], model="tiny-hybrid", timeout_s=120, script=script)
    assert run.code == 0 and ANSWER in run.stdout, run
    assert [request["end"] for request in run.requests if not request["side"]] == ["stop"], run
    assert (run.lookups, run.no_routes, run.secrets) == ([], 0, []), "something tried to leave this machine"
    assert all(file.read_text().startswith(text) for file, text in pinned.items()), "what was said was rewritten"
    _assert_unchanged(rig, HOMES[agent])


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_case_4_paid_fallbacks_stay_unused_when_the_engine_fails(rig: Any) -> None:
    rig.install("openclaw")
    for path, text in OPENCLAW.items():
        rig.keep(path, text)
    rig.env.update({name: "sk-real" for name in KEYS}, **SWITCHES)
    rig.secrets = ["sk-real", "sk-ant-oat01-x", _vendor_token()]
    args = ("agent", "--agent", "main", "--message", "Say it.")
    run = rig.launch("openclaw", *args, model="tiny-hybrid", timeout_s=280, script={"turns": []})
    assert run.requests and all(request["error"] for request in run.requests), run
    assert (run.lookups, run.no_routes, run.secrets) == ([], 0, []), "a fallback was tried"
    assert "anthropic/claude-opus" in run.stderr and "paid/y" in run.stderr, "the fallbacks were not named"
    _assert_unchanged(rig, OPENCLAW)


def _assert_unchanged(rig: Any, files: dict[str, str]) -> None:
    for path, text in files.items():
        place: Path = rig.project / path[8:] if path.startswith("project/") else rig.home / path
        assert place.read_text() == text, f"{path} was changed"


def test_the_watcher_sees_what_is_sent(rig: Any) -> None:
    rig.secrets = ["sk-real", "sk-other"]
    send = "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); "
    report = rig.run(["python3", "-c", send + "c.sendall(b'x-api-key: sk-real')"], timeout_s=10)
    assert report["secrets"] == ["sk-real"]


def test_the_namespace_notices_who_tries(rig: Any) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)"
    report = rig.run(
        ["python3", "-c", connect],
        ["getent", "hosts", "api.example.com"],
        ["getent", "hosts", "localhost"],
        timeout_s=10,
    )
    assert "api.example.com" in report["names"]
    assert report["no_routes"] >= 1
    assert [result["code"] == 0 for result in report["results"]] == [False, False, True]


@pytest.mark.timeout(120)
def test_a_project_with_packages_of_our_names(rig: Any) -> None:
    """Its folders and its PYTHONPATH do not reach ft or the engine, and the agent still has that PYTHONPATH."""
    for name in ("engine", "harnesses", "ftagent", "tests"):
        rig.keep(f"project/{name}/__init__.py", "raise SystemExit('the project was imported')\n")
    rig.env["PYTHONPATH"] = "."
    look = 'echo "$PYTHONPATH" > seen.txt'
    turns = [{"blocks": [{"tool": "bash", "args": {"command": look}}]}, {"blocks": [{"text": ANSWER}]}]
    run = rig.launch("mini", "Say it.", model="tiny-hybrid", timeout_s=60, script={"turns": turns})
    assert run.code == 0 and ANSWER in run.stdout, run
    assert (rig.project / "seen.txt").read_text() == ".\n"
