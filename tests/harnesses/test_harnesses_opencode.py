from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harnesses.contract import HarnessError, Injection, LaunchContext
from harnesses.opencode.adapter import ADAPTER

MakeContext = Callable[..., LaunchContext]


def config_of(injection: Injection) -> dict[str, Any]:
    return json.loads(next(v.value for v in injection.env if v.name == "OPENCODE_CONFIG_CONTENT"))


def test_one_provider_and_no_other(make_context: MakeContext) -> None:
    context = make_context()
    config = config_of(ADAPTER.inject(context))
    assert config["enabled_providers"] == ["ft"] and list(config["provider"]) == ["ft"]
    assert config["model"] == config["small_model"] == "ft/tiny"
    assert config["share"] == "disabled" and config["autoupdate"] is False
    options = config["provider"]["ft"]["options"]
    assert options["baseURL"] == f"{context.base_url}/v1" and options["apiKey"] == context.token
    assert config["provider"]["ft"]["models"]["tiny"]["limit"] == {
        "context": 131072,
        "input": 131072 - 16384 + 8192,
        "output": 8192,
    }


def test_the_arguments_are_the_users(make_context: MakeContext) -> None:
    args = ["run", "-m", "ft/tiny", "hi", "--continue"]
    injection = ADAPTER.inject(make_context(args=args))
    assert injection.argv == args and injection.files == []


@pytest.mark.parametrize(
    "args", [["run", "-m", "openai/gpt", "hi"], ["--model=opencode/free"], ["run", "--share"], ["--attach", "http://x"]]
)
def test_refuses_arguments_that_redirect(make_context: MakeContext, args: list[str]) -> None:
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=args))
    assert refusal.value.code == 2


def test_reads_json_with_comments(make_context: MakeContext) -> None:
    path = make_context().cwd / "opencode.jsonc"
    assert path in ADAPTER.reads(make_context())
    text = '{\n // mine\n "small_model": "opencode/free",\n "theme": "dark",\n}'
    warnings = ADAPTER.inject(make_context(files={str(path): text})).warnings
    assert [warning.text for warning in warnings] == [
        "~/project/opencode.jsonc:3 sets small_model; it has no effect in this launch."
    ]


def test_a_provider_of_our_name_refuses_the_launch(make_context: MakeContext) -> None:
    path = str(make_context().cwd / "opencode.json")
    files = {path: '{"provider": {"ft": {"api": "https://x.example", "env": ["KEY"]}}}'}
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files=files))
    assert refusal.value.code == 4
    assert len(ADAPTER.inject(make_context(files=files, force=True)).warnings) == 2
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files={path: "{"}))
    assert refusal.value.code == 4


def test_the_plugin_is_loaded_unless_switched_off(make_context: MakeContext) -> None:
    (plugin,) = config_of(ADAPTER.inject(make_context()))["plugin"]
    assert plugin.startswith("file:///") and Path(plugin.removeprefix("file://")).is_file()
    assert "plugin" not in config_of(ADAPTER.inject(make_context(edit_hints=False)))


def test_what_the_files_say_of_pruning_is_registered(make_context: MakeContext) -> None:
    context = make_context()
    project, user = (
        path
        for path in ADAPTER.reads(context)
        if path.name == "opencode.json" and not {".opencode", "etc", "Library", "state"} & set(path.parts)
    )
    files = {
        str(project): '{"compaction": {"prune": true}}',
        str(user): '{"compaction": {"prune": false, "auto": true}}',
    }
    assert ADAPTER.inject(make_context(files=files)).config == {"compaction": {"prune": True, "auto": True}}
    assert ADAPTER.inject(context).config == {}
    files[str(context.home / ".opencode" / "opencode.jsonc")] = '{"compaction": {"prune": false}} // the strongest'
    assert ADAPTER.inject(make_context(files=files)).config == {"compaction": {"prune": False, "auto": True}}


def test_managed_settings_that_redirect_refuse_the_launch(make_context: MakeContext) -> None:
    managed = "/etc/opencode/opencode.json"
    assert Path(managed) in ADAPTER.reads(make_context())
    files = {managed: '{"share": "manual", "enabled_providers": ["acme"]}'}
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files=files))
    assert refusal.value.code == 4 and f"{managed}:1 sets enabled_providers" in refusal.value.message
    forced = ADAPTER.inject(make_context(files=files, force=True))
    assert [warning.code for warning in forced.warnings] == ["FT-W0111 managed-setting"]
    assert not ADAPTER.inject(make_context(files={managed: '{"share": "disabled"}'})).warnings
