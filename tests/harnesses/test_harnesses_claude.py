from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from harnesses.claude.adapter import ADAPTER
from harnesses.contract import HarnessError, Injection, LaunchContext

MakeContext = Callable[..., LaunchContext]
MANAGED = "/etc/claude-code/managed-settings.json"


def settings_of(injection: Injection) -> dict[str, Any]:
    return json.loads(injection.files[0].text)


def test_one_settings_file_holds_what_the_environment_says(make_context: MakeContext) -> None:
    context = make_context()
    injection = ADAPTER.inject(context)
    env = settings_of(injection)["env"]
    assert env == {variable.name: variable.value for variable in injection.env}
    assert env["ANTHROPIC_BASE_URL"] == context.base_url
    assert env["ANTHROPIC_AUTH_TOKEN"] == context.token
    assert env["ANTHROPIC_API_KEY"] == ""
    assert env["CLAUDE_CODE_USE_BEDROCK"] == env["CLAUDE_CODE_USE_VERTEX"] == env["CLAUDE_CODE_USE_FOUNDRY"] == "0"
    assert env["CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST"] == "1"
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    assert env["CLAUDE_STREAM_IDLE_TIMEOUT_MS"] == "3600000"
    assert settings_of(injection)["apiKeyHelper"] == ""
    assert settings_of(injection)["disableDeepLinkRegistration"] == "disable"
    assert injection.argv[:2] == ["--settings", str(injection.files[0].path)]


def test_assigns_the_session_id_unless_resuming(make_context: MakeContext) -> None:
    injection = ADAPTER.inject(make_context(args=["-p", "hi"]))
    assert injection.argv[2:] == ["--session-id", injection.harness_ids[0], "-p", "hi"]
    assert UUID(injection.harness_ids[0])
    assert ADAPTER.inject(make_context(session_id="s-other")).harness_ids != injection.harness_ids
    for args in (["--resume", "x"], ["-c"], ["--continue", "-p", "hi"], ["-r"], ["mcp", "list"], ["doctor"]):
        injection = ADAPTER.inject(make_context(args=args))
        assert injection.argv[2:] == args
        assert injection.harness_ids == []


@pytest.mark.parametrize("args", [["--session-id", "x"], ["--session-id=x"], ["--cloud"], ["-p", "hi", "--teleport"]])
def test_refuses_arguments_that_redirect(make_context: MakeContext, args: list[str]) -> None:
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=args))
    assert refusal.value.code == 2


def test_words_of_a_prompt_are_not_arguments(make_context: MakeContext) -> None:
    assert ADAPTER.inject(make_context(args=["-p", "what does --session-id do?", "--", "--cloud"]))


def test_merges_the_users_own_settings_file(make_context: MakeContext) -> None:
    args = ["-p", "hi", "--settings", "mine.json"]
    path = make_context().cwd / "mine.json"
    assert path in ADAPTER.reads(make_context(args=args))
    theirs = {
        "permissions": {"allow": ["Bash(ls:*)"]},
        "apiKeyHelper": "print-my-key",
        "env": {"MY_FLAG": "1", "ANTHROPIC_BASE_URL": "https://elsewhere.example", "AWS_PROFILE": "paid"},
    }
    injection = ADAPTER.inject(make_context(args=args, files={str(path): json.dumps(theirs)}))
    merged = settings_of(injection)
    assert injection.argv.count("--settings") == 1 and "mine.json" not in injection.argv
    assert merged["permissions"] == theirs["permissions"]
    assert merged["env"]["MY_FLAG"] == "1"
    assert merged["env"]["ANTHROPIC_BASE_URL"] == make_context().base_url
    assert "AWS_PROFILE" not in merged["env"]
    assert merged["apiKeyHelper"] == ""


def test_settings_may_be_given_as_json(make_context: MakeContext) -> None:
    injection = ADAPTER.inject(make_context(args=['--settings={"cleanupPeriodDays": 3}']))
    assert settings_of(injection)["cleanupPeriodDays"] == 3
    assert injection.argv == [*injection.argv[:2], "--session-id", injection.harness_ids[0]]


def test_settings_that_do_not_parse_are_never_taken_for_empty(make_context: MakeContext) -> None:
    path = str(make_context().cwd / "mine.json")
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=["--settings", "mine.json"], files={path: '{\n "env": {,\n}'}))
    assert refusal.value.code == 4
    assert f"{path}:2:10" in refusal.value.message
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=["--settings", "absent.json"]))
    assert refusal.value.code == 2


def test_says_which_settings_it_overrides(make_context: MakeContext) -> None:
    home: Path = make_context().home
    user = '{\n "apiKeyHelper": "x",\n "env": {\n  "ANTHROPIC_BASE_URL": "https://api.example",\n  "ANTHROPIC_API_KEY": "sk-1"\n }\n}'
    files = {str(home / ".claude" / "settings.json"): user}
    injection = ADAPTER.inject(make_context(files=files))
    replaced = {variable.name: variable.replaces for variable in injection.env}
    assert replaced["ANTHROPIC_BASE_URL"] == "https://api.example (~/.claude/settings.json:4)"
    assert replaced["ANTHROPIC_API_KEY"] == "a secret (~/.claude/settings.json:5)"
    assert replaced["ANTHROPIC_MODEL"] is None
    assert [warning.text for warning in injection.warnings] == [
        "~/.claude/settings.json:2 sets apiKeyHelper; it has no effect in this launch."
    ]


def test_the_project_beats_the_user_in_the_report(make_context: MakeContext) -> None:
    context = make_context(env={"ANTHROPIC_BASE_URL": "https://shell.example"})
    assert shown(context)["ANTHROPIC_BASE_URL"] == "https://shell.example (your shell)"
    project = {
        str(context.cwd / ".claude" / "settings.json"): '{"env": {"ANTHROPIC_BASE_URL": "https://project.example"}}'
    }
    assert "project.example" in str(shown(make_context(env=context.env, files=project))["ANTHROPIC_BASE_URL"])


def shown(context: LaunchContext) -> dict[str, str | None]:
    return {variable.name: variable.replaces for variable in ADAPTER.inject(context).env}


def test_managed_settings_that_redirect_refuse_the_launch(make_context: MakeContext) -> None:
    assert Path(MANAGED) in ADAPTER.reads(make_context())
    files = {MANAGED: '{"env": {"ANTHROPIC_BASE_URL": "https://gateway.example"}}'}
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files=files))
    assert refusal.value.code == 4 and f"{MANAGED}:1" in refusal.value.message
    forced = ADAPTER.inject(make_context(files=files, force=True))
    assert [warning.code for warning in forced.warnings] == ["FT-W0111 managed-setting"]
    assert ADAPTER.inject(make_context(files={MANAGED: '{"permissions": {"deny": ["WebFetch"]}}'})).warnings == []
