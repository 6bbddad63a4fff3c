from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from harnesses.codex.adapter import ADAPTER
from harnesses.contract import HarnessError, Injection, LaunchContext

MakeContext = Callable[..., LaunchContext]


def overrides(injection: Injection) -> dict[str, object]:
    """What the `-c` flags amount to, parsed as Codex does: each value is TOML."""
    pairs = [word for flag, word in zip(injection.argv, injection.argv[1:], strict=False) if flag == "-c"]
    return {key: tomllib.loads(f"v = {value}")["v"] for key, _, value in (pair.partition("=") for pair in pairs)}


@pytest.mark.parametrize(
    "args", [["exec", "hi"], ["resume", "--last"], ["fork", "id"], ["exec", "resume", "--last"], [], ["hi"]]
)
def test_every_entry_point_gets_the_same_flags(make_context: MakeContext, args: list[str]) -> None:
    injection = ADAPTER.inject(make_context(args=args))
    assert injection.argv[len(injection.argv) - len(args) :] == args
    assert injection.argv[:2] == ["--no-daemon", "-c"]
    config = overrides(injection)
    assert config["model_provider"] == "ft"
    assert config["model"] == "tiny"
    assert config["model_providers.ft.base_url"] == "http://127.0.0.1:1919/s/s-abcdefghij/v1"
    assert config["model_providers.ft.wire_api"] == "responses"
    assert config["model_providers.ft.requires_openai_auth"] is False
    assert config["model_providers.ft.stream_idle_timeout_ms"] == 3_600_000
    assert config["model_context_window"] == 131072
    assert config["model_auto_compact_token_limit"] == 111411
    assert config["check_for_update_on_startup"] is False
    assert config["tui.show_tooltips"] is False
    key = config["model_providers.ft.env_key"]
    assert [variable.value for variable in injection.env if variable.name == key] == [make_context().token]


@pytest.mark.parametrize(
    "args",
    [
        ["-c", "model_provider=openai", "exec", "hi"],
        ["exec", "--config=model_providers.ft.base_url='https://x.example'", "hi"],
        ["-c", 'model_providers={ft={base_url="https://x.example"}}'],
        ["--oss"],
        ["exec", "--local-provider", "ollama"],
        ["--remote", "ws://127.0.0.1:1"],
        ["cloud"],
    ],
)
def test_refuses_arguments_that_redirect(make_context: MakeContext, args: list[str]) -> None:
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=args))
    assert refusal.value.code == 2


def test_other_overrides_pass(make_context: MakeContext) -> None:
    args = ["-c", "model_reasoning_effort=high", "-m", "other-name", "exec", "hi"]
    injection = ADAPTER.inject(make_context(args=args))
    assert injection.argv[-len(args) :] == args
    assert "model" not in overrides(ADAPTER.inject(make_context(args=["-m", "other"])))


def test_names_what_the_users_config_loses(make_context: MakeContext) -> None:
    path = make_context().home / ".codex" / "config.toml"
    assert path in ADAPTER.reads(make_context())
    text = 'model = "gpt-9"\nmodel_provider = "azure"\n[model_providers.azure]\nbase_url = "https://x.example"\n'
    warnings = [warning.text for warning in ADAPTER.inject(make_context(files={str(path): text})).warnings]
    assert [text.split(" sets")[0] for text in warnings] == ["~/.codex/config.toml:2", "~/.codex/config.toml:1"]


def test_a_foreign_setting_under_our_provider_refuses_the_launch(make_context: MakeContext) -> None:
    path = str(make_context().home / ".codex" / "config.toml")
    files = {path: 'model = "x"\n[model_providers.ft]\nhttp_headers = { authorization = "Bearer real" }\n'}
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files=files))
    assert refusal.value.code == 4
    assert "~/.codex/config.toml:2" in refusal.value.message and "http_headers" in refusal.value.message
    assert "Bearer real" not in refusal.value.message
    ADAPTER.inject(make_context(files=files, force=True))
    ADAPTER.inject(make_context(files={path: '[model_providers.ft]\nbase_url = "http://127.0.0.1:1/v1"\n'}))


def test_config_that_does_not_parse_refuses_the_launch(make_context: MakeContext) -> None:
    path = str(make_context().home / ".codex" / "config.toml")
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files={path: "model = \n"}))
    assert refusal.value.code == 4 and path in refusal.value.message


def test_the_users_codex_home_is_read(make_context: MakeContext) -> None:
    assert Path("/elsewhere/config.toml") in ADAPTER.reads(make_context(env={"CODEX_HOME": "/elsewhere"}))


def test_managed_settings_that_redirect_refuse_the_launch(make_context: MakeContext) -> None:
    managed = "/etc/codex/managed_config.toml"
    assert Path(managed) in ADAPTER.reads(make_context())
    files = {managed: 'approval_policy = "never"\nmodel_provider = "acme"\n'}
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(files=files))
    assert refusal.value.code == 4 and f"{managed}:2 sets model_provider" in refusal.value.message
    forced = ADAPTER.inject(make_context(files=files, force=True))
    assert [warning.code for warning in forced.warnings] == ["FT-W0111 managed-setting"]
    assert not ADAPTER.inject(make_context(files={managed: 'approval_policy = "never"'})).warnings


@pytest.mark.parametrize(
    ("version", "first"),
    [(None, "--no-daemon"), ("0.171.0", "--no-daemon"), ("1.2.0", "--no-daemon"), ("0.160.3", "-c")],
)
def test_a_server_of_the_users_is_not_asked(make_context: MakeContext, version: str | None, first: str) -> None:
    """By the argument for that, which older versions do not have, nor such a server."""
    assert ADAPTER.inject(make_context(version=version)).argv[0] == first


def test_the_layer_of_a_profile_is_read(make_context: MakeContext) -> None:
    context = make_context(args=["-p", "work"])
    assert context.home / ".codex" / "work.config.toml" in ADAPTER.reads(context)
    assert not [path for path in ADAPTER.reads(make_context(args=["-p", "../x"])) if "x.config" in path.name]
