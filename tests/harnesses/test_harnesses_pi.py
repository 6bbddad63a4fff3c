from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harnesses.contract import HarnessError, Injection, LaunchContext
from harnesses.pi.adapter import ADAPTER

MakeContext = Callable[..., LaunchContext]


def planned(injection: Injection) -> dict[str, Any]:
    return {file.path.name: file.text for file in injection.files}


def test_a_folder_of_its_own_with_one_provider(make_context: MakeContext) -> None:
    context = make_context(args=["-p", "hi"])
    injection = ADAPTER.inject(context)
    folder = {file.path.parent for file in injection.files}
    assert folder == {context.state_dir / "pi"}
    assert {v.name: v.value for v in injection.env}["PI_CODING_AGENT_DIR"] == str(context.state_dir / "pi")
    providers = json.loads(planned(injection)["models.json"])["providers"]
    assert list(providers) == ["ft"] and providers["ft"]["baseUrl"] == f"{context.base_url}/v1"
    assert providers["ft"]["models"][0]["contextWindow"] == 131072
    assert injection.argv[4:] == ["--provider", "ft", "--model", "tiny", "-p", "hi"]


def test_history_stays_where_the_user_has_it(make_context: MakeContext) -> None:
    context = make_context()
    encoded = "--" + str(context.cwd)[1:].replace("/", "-") + "--"
    sessions = context.home / ".pi" / "agent" / "sessions" / encoded
    assert ADAPTER.inject(context).argv[:2] == ["--session-dir", str(sessions)]
    for args in (["--session-dir", "/x"], ["--no-session"]):
        assert str(sessions) not in ADAPTER.inject(make_context(args=args)).argv


def test_settings_come_along_without_what_reaches_elsewhere(make_context: MakeContext) -> None:
    folder = make_context().home / ".pi" / "agent"
    user = {
        "theme": "light",
        "defaultProvider": "anthropic",
        "sessionDir": "~/elsewhere",
        "packages": ["npm:foo", "git:bar"],
        "skills": ["mine", "/abs", "!mine/old"],
        "retry": {"maxRetries": 1, "provider": {"maxRetries": 0}},
    }
    files = {str(folder / "settings.json"): json.dumps(user), str(folder / "AGENTS.md"): "be brief"}
    assert {*map(str, ADAPTER.reads(make_context()))} >= {*files}
    assert not any(path.name in ("auth.json", "models.json") for path in ADAPTER.reads(make_context()))
    injection = ADAPTER.inject(make_context(files=files))
    settings = json.loads(planned(injection)["settings.json"])
    assert settings["theme"] == "light"
    assert settings["defaultProvider"] == "ft" and settings["defaultModel"] == "tiny"
    assert "packages" not in settings
    assert settings["skills"] == [str(folder / "mine"), "/abs", f"!{folder / 'mine/old'}", str(folder / "skills")]
    assert settings["retry"] == {"maxRetries": 1, "provider": {"maxRetries": 0, "timeoutMs": 3_600_000}}
    assert planned(injection)["AGENTS.md"] == "be brief"
    assert "sessionDir" not in settings
    overridden = ["FT-W0110 setting-overridden"] * 2
    assert [w.code for w in injection.warnings] == [*overridden, "FT-W0113 packages-not-loaded"]


def test_pi_has_no_reason_to_write_its_settings(make_context: MakeContext) -> None:
    """It keeps there which version's news were shown, and what an agent writes is kept as a change."""
    injection = ADAPTER.inject(make_context(version="0.73.1"))
    (file,) = [file for file in injection.files if file.path.name == "settings.json"]
    assert json.loads(file.text)["lastChangelogVersion"] == "0.73.1"


def test_a_thinking_level_may_be_given(make_context: MakeContext) -> None:
    argv = ADAPTER.inject(make_context(args=["--model", "ft/tiny:high", "hi"])).argv
    assert argv[4:] == ["--provider", "ft", "--model", "tiny:high", "hi"]


@pytest.mark.parametrize(
    "args", [["--provider", "anthropic"], ["--api-key", "x"], ["--model", "claude-opus-4-7"], ["--model=openai/gpt"]]
)
def test_refuses_arguments_that_redirect(make_context: MakeContext, args: list[str]) -> None:
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=args))
    assert refusal.value.code == 2


def test_commands_get_no_model(make_context: MakeContext) -> None:
    assert ADAPTER.inject(make_context(args=["list"])).argv == ["list"]


def test_settings_that_do_not_parse_refuse_the_launch(make_context: MakeContext) -> None:
    path = str(make_context().home / ".pi" / "agent" / "settings.json")
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files={path: "{,}"}))
    assert refusal.value.code == 4


def test_the_extension_is_loaded_unless_switched_off(make_context: MakeContext) -> None:
    argv = ADAPTER.inject(make_context(args=["hi"])).argv
    extension = Path(argv[argv.index("--extension") + 1])
    assert extension.is_file() and extension.is_absolute()
    assert "--extension" not in ADAPTER.inject(make_context(args=["hi"], edit_hints=False)).argv
    assert "--extension" not in ADAPTER.inject(make_context(args=["list"])).argv
