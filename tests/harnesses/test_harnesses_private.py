"""A folder of one session in the place of the user's own: sealed launches, and Claude Code where nobody has set it up."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harnesses.contract import HarnessError, Injection, LaunchContext
from harnesses.registry import load

MakeContext = Callable[..., LaunchContext]
CLAUDE: Any = load("claude").adapter
CODEX: Any = load("codex").adapter
OPENCODE: Any = load("opencode").adapter
QWEN: Any = load("qwen").adapter
PI: Any = load("pi").adapter
FOLDER = {
    "claude": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "opencode": "XDG_DATA_HOME",
    "qwen": "QWEN_HOME",
    "pi": "--session-dir",
}
OWN = {  # below the session's
    "claude": "claude",
    "codex": "codex",
    "opencode": "opencode/data",
    "qwen": "qwen/home",
    "pi": "pi/sessions",
}
FIRST = {
    "claude": "claude/.claude.json",
    "codex": "codex/config.toml",
    "opencode": "opencode/config/opencode/opencode.json",
    "qwen": "qwen/home/settings.json",
    "pi": "pi/sessions/README",
}
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
    """The one of the session, where it has one."""
    if agent == "pi":
        folder = Path(injection.argv[injection.argv.index(FOLDER[agent]) + 1]).parent
        return str(folder) if "state" in folder.parts else None
    return next((variable.value for variable in injection.env if variable.name == FOLDER[agent]), None)


def with_files(context: LaunchContext, files: dict[str, str]) -> LaunchContext:
    return replace(context, files={**context.files, **{str(context.home / name): text for name, text in files.items()}})


@pytest.mark.parametrize("agent", FOLDER)
def test_a_sealed_launch_has_a_folder_of_its_own_and_others_the_users(agent: str, make_context: MakeContext) -> None:
    adapter: Any = load(agent).adapter
    sealed = adapter.inject(make_context(sealed=True))
    state_dir = make_context().state_dir
    assert folder_of(agent, sealed) == str(state_dir / OWN[agent])
    assert state_dir / FIRST[agent] in [file.path for file in sealed.files]
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


def test_opencode_takes_over_what_protects_and_nothing_that_pays(make_context: MakeContext) -> None:
    context = make_context(sealed=True)
    config = """{ // mine
      "permission": {"bash": "ask"}, "model": "paid/x", "provider": {"paid": {"options": {"apiKey": "sk-real"}}},
      "mcp": {"s": {"environment": {"KEY": "sk-real"}}}, "plugin": ["theirs"],
      "agent": {"build": {"permission": {"edit": "deny"}, "prompt": "{file:./brief.txt}", "model": "paid/x"}},
    }"""
    folder = context.home / ".config" / "opencode"
    injection = OPENCODE.inject(
        with_files(context, {".config/opencode/opencode.jsonc": config, ".config/opencode/AGENTS.md": "Be brief."})
    )
    texts = written(injection)
    build = {"permission": {"edit": "deny"}, "prompt": f"{{file:{folder}/./brief.txt}}"}
    assert json.loads(texts["opencode.json"]) == {"permission": {"bash": "ask"}, "agent": {"build": build}}
    assert texts["AGENTS.md"] == "Be brief." and "sk-real" not in json.dumps(texts)
    variables = {variable.name: variable.value for variable in injection.env}
    given_back = json.loads(variables["FT_USER_FOLDERS"])
    assert given_back["XDG_CONFIG_HOME"] == str(folder.parent) and set(given_back) < set(variables)
    assert any(
        plugin.endswith("user_folders.mjs") for plugin in json.loads(variables["OPENCODE_CONFIG_CONTENT"])["plugin"]
    )
    assert OPENCODE.transcript(context, "id").is_relative_to(context.state_dir)


def test_qwen_takes_over_what_protects_and_nothing_that_pays(make_context: MakeContext) -> None:
    context = make_context(sealed=True)
    settings = {
        "$version": 4,
        "permissions": {"deny": ["Bash(rm *)"]},
        "security": {"folderTrust": {"enabled": True}, "auth": {"apiKey": "sk-real"}},
        "env": {"OPENAI_API_KEY": "sk-real"},
        "mcpServers": {"s": {"env": {"KEY": "sk-real"}}},
        "modelFallbacks": "paid",
    }
    env_file = "# mine\nexport DASHSCOPE_API_KEY=sk-real\nOPENAI_API_KEY=sk-real\nDB=db://u:sk-real@host\nEDITOR=vi\n"
    files = {".qwen/settings.json": json.dumps(settings), ".qwen/.env": env_file, ".qwen/QWEN.md": "Be brief."}
    injection = QWEN.inject(with_files(context, files))
    home = context.state_dir / "qwen" / "home"
    kept = {"$version": 4, "permissions": settings["permissions"], "security": {"folderTrust": {"enabled": True}}}
    texts = {file.path: file.text for file in injection.files}
    assert json.loads(texts[home / "settings.json"]) == kept
    assert texts[home / "QWEN.md"] == "Be brief." and "sk-real" not in json.dumps(list(texts.values()))
    values = {variable.name: variable.value for variable in injection.env}
    assert values["DASHSCOPE_API_KEY"] == values["DB"] == "out-of-reach" and "EDITOR" not in values
    assert values["OPENAI_API_KEY"] == context.token
    assert context.home / ".qwen" / ".env" in QWEN.reads(context)
    assert "DASHSCOPE_API_KEY" not in [v.name for v in QWEN.inject(with_files(make_context(), files)).env]


def test_pi_takes_over_what_protects_and_no_code(make_context: MakeContext) -> None:
    context = make_context(sealed=True)
    settings = {"theme": "light", "skills": ["mine"], "extensions": ["theirs.ts"], "packages": ["npm:x"]}
    files = {".pi/agent/settings.json": json.dumps(settings), ".pi/agent/AGENTS.md": "Be brief."}
    texts = written(PI.inject(with_files(context, files)))
    taken = json.loads(texts["settings.json"])
    assert taken["theme"] == "light" and taken["defaultProvider"] == "ft"
    assert not {"skills", "extensions", "packages", "prompts", "themes"} & set(taken)
    assert texts["AGENTS.md"] == "Be brief."
    assert PI.transcript(context, "id") is None


@pytest.mark.parametrize("agent", FOLDER)
def test_a_conversation_stays_where_it_began(agent: str, make_context: MakeContext) -> None:
    adapter: Any = load(agent).adapter
    with pytest.raises(HarnessError, match="own folder"):
        adapter.inject(make_context(sealed=True, resume="id"))
    state_dir = make_context().state_dir
    first = state_dir / FIRST[agent]
    began = {str(first): "" if first.suffix == ".toml" else "{}"}
    assert first in adapter.reads(make_context())
    for sealed in (True, False):
        injection = adapter.inject(make_context(sealed=sealed, resume="id", files=began))
        assert folder_of(agent, injection) == str(state_dir / OWN[agent])
        assert first not in [file.path for file in injection.files], "what the agent wrote is its own"


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
