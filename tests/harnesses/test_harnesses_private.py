"""A folder of one session in the place of the user's own: sealed launches, and Claude Code where nobody has set it up."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harnesses.contract import HarnessError, Injection, LaunchContext
from harnesses.registry import load

MakeContext = Callable[..., LaunchContext]
CLAUDE: Any = load("claude").adapter
CODEX: Any = load("codex").adapter
FOLDER = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}
FIRST = {"claude": ".claude.json", "codex": "config.toml"}
SETTINGS = {
    "permissions": {"deny": ["Bash(rm:*)"]},
    "env": {"ANTHROPIC_API_KEY": "sk-real"},
    "apiKeyHelper": "echo sk-real",
    "otelHeadersHelper": "echo sk-real",
    "model": "opus",
    "enabledPlugins": {"a@b": True},
}
STATE = {
    "hasCompletedOnboarding": True,
    "primaryApiKey": "sk-real",
    "oauthAccount": {"accountUuid": "a"},
    "mcpServers": {"s": {"env": {"KEY": "sk-real"}}},
    "projects": {"{cwd}": {"hasTrustDialogAccepted": True, "history": ["secret"]}, "/else": {"hasTrustDialogAccepted": True}},
}  # fmt: skip
CONFIG = """approval_policy = "on-request" # mine
model_provider = "paid"
notify = ["sh", "-c", "true"]
[projects."/work"]
trust_level = "trusted"
[model_providers.paid]
base_url = "https://user.example.com/v1"
http_headers = { authorization = "sk-real" }
[mcp_servers.s]
command = "s"
env = { KEY = "sk-real" }
"""


def written(injection: Injection) -> dict[str, str]:
    return {file.path.name: file.text for file in injection.files}


def folder_of(agent: str, injection: Injection) -> str | None:
    return next((variable.value for variable in injection.env if variable.name == FOLDER[agent]), None)


def with_files(context: LaunchContext, files: dict[str, str]) -> LaunchContext:
    return replace(context, files={**context.files, **{str(context.home / name): text for name, text in files.items()}})


@pytest.mark.parametrize("agent", FOLDER)
def test_a_sealed_launch_has_a_folder_of_its_own_and_others_the_users(agent: str, make_context: MakeContext) -> None:
    adapter: Any = load(agent).adapter
    sealed = adapter.inject(make_context(sealed=True))
    own = make_context().state_dir / agent
    assert folder_of(agent, sealed) == str(own)
    assert own / FIRST[agent] in [file.path for file in sealed.files]
    assert folder_of(agent, adapter.inject(make_context())) is None


def test_claude_takes_over_what_protects_and_nothing_that_pays(make_context: MakeContext) -> None:
    context = make_context(sealed=True)
    state = json.dumps(STATE).replace("{cwd}", str(context.cwd))
    files = {".claude/settings.json": json.dumps(SETTINGS), ".claude.json": state, ".claude/CLAUDE.md": "Be brief."}
    injection = CLAUDE.inject(with_files(context, files))
    texts = written(injection)
    assert json.loads(texts["settings.json"]) == {"permissions": SETTINGS["permissions"]}
    trust = {str(context.cwd): {"hasTrustDialogAccepted": True}}
    assert json.loads(texts[".claude.json"]) == {"hasCompletedOnboarding": True, "projects": trust}
    assert texts["CLAUDE.md"] == "Be brief."
    assert "sk-real" not in json.dumps(texts)
    assert CLAUDE.transcript(context, "id").is_relative_to(context.state_dir)


def test_codex_takes_over_what_protects_and_nothing_that_pays(make_context: MakeContext) -> None:
    context = make_context(sealed=True)
    texts = written(CODEX.inject(with_files(context, {".codex/config.toml": CONFIG, ".codex/AGENTS.md": "Be brief."})))
    kept = {"approval_policy": "on-request", "projects": {"/work": {"trust_level": "trusted"}}}
    assert tomllib.loads(texts["config.toml"]) == kept and "# mine" in texts["config.toml"]
    assert texts["AGENTS.md"] == "Be brief."


@pytest.mark.parametrize("agent", FOLDER)
def test_a_conversation_stays_where_it_began(agent: str, make_context: MakeContext) -> None:
    adapter: Any = load(agent).adapter
    with pytest.raises(HarnessError, match="own folder"):
        adapter.inject(make_context(sealed=True, resume="id"))
    own = make_context().state_dir / agent
    began = {str(own / FIRST[agent]): ""}
    assert own / FIRST[agent] in adapter.reads(make_context())
    for sealed in (True, False):
        injection = adapter.inject(make_context(sealed=sealed, resume="id", files=began))
        assert folder_of(agent, injection) == str(own)
        assert own / FIRST[agent] not in [file.path for file in injection.files], "what the agent wrote is its own"


@pytest.mark.parametrize(
    ("args", "state", "own"),
    [
        ([], None, True),
        ([], '{"numStartups": 3}', True),
        (["what is this?"], "{}", True),
        ([], '{"hasCompletedOnboarding": true}', False),
        ([], "{ broken", False),
        (["-p", "hi"], "{}", False),
        (["--continue"], "{}", False),
        (["mcp", "list"], "{}", False),
    ],
)
def test_claude_that_nobody_has_set_up_asks_nothing(
    args: list[str], state: str | None, own: bool, make_context: MakeContext
) -> None:
    """Only on its screen, and not for a conversation that lies in the user's folder."""
    context = make_context(args=args)
    files = {} if state is None else {str(context.home / ".claude.json"): state}
    injection = CLAUDE.inject(replace(context, files=files))
    assert (folder_of("claude", injection) is not None) == own
    assert ("FT-W0116 not-set-up" in [warning.code for warning in injection.warnings]) == own
    if not args or args[0] not in ("mcp", "--continue"):
        assert folder_of("claude", CLAUDE.inject(replace(context, files=files, resume="id"))) is None
