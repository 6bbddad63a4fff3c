"""What every adapter owes: pure, previewable, no secret where others can read it, and no window it cannot work in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harnesses import registry
from harnesses.contract import HarnessError, Injection, LaunchContext

NAMES = pytest.mark.parametrize("name", registry.names())
MakeContext = Callable[..., LaunchContext]


def inject(name: str, context: LaunchContext) -> Injection:
    return registry.load(name).adapter.inject(context)


@NAMES
def test_has_the_members(name: str) -> None:
    adapter = registry.load(name).adapter
    assert adapter.name == name
    assert adapter.title
    assert adapter.install_hint
    assert all(isinstance(word, str) for word in (*adapter.executables, *adapter.version_args))
    assert all(callable(getattr(adapter, member)) for member in ("reads", "inject", "transcript"))


@NAMES
@pytest.mark.parametrize("fork", [False, True])
def test_a_conversation_goes_on_by_its_id_or_the_launch_is_refused(
    name: str, fork: bool, make_context: MakeContext
) -> None:
    adapter = registry.load(name).adapter
    context = replace(make_context(), resume="0a1b2c3d", fork=fork)
    try:
        made = adapter.inject(context)
    except HarnessError as refused:
        assert refused.message and refused.hint
    else:
        assert "0a1b2c3d" in " ".join([*made.argv, *(variable.value for variable in made.env)])
    place = adapter.transcript(context, "0a1b2c3d")
    of_all = (".db", ".sqlite")  # a store of all conversations
    assert place is None or "0a1b2c3d" in place.name or place.suffix in of_all


@NAMES
def test_is_pure(name: str, make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(env={"PATH": "/usr/bin", "ANTHROPIC_API_KEY": "sk-real"})
    before = dict(os.environ)
    files = registry.load(name).adapter.reads(context)
    first, second = inject(name, context), inject(name, context)
    assert first == second
    assert dict(os.environ) == before
    assert context.env == {"PATH": "/usr/bin", "ANTHROPIC_API_KEY": "sk-real"}
    assert list(tmp_path.iterdir()) == [], "an adapter wrote something"
    assert all(isinstance(path, Path) and path.is_absolute() for path in files)


@NAMES
def test_every_value_can_be_previewed(name: str, make_context: MakeContext) -> None:
    context = make_context()
    injection = inject(name, context)
    assert all(isinstance(word, str) for word in injection.argv)
    for variable in injection.env:
        assert variable.name and isinstance(variable.value, str) and variable.why
    for file in injection.files:
        assert file.path.is_relative_to(context.state_dir) and file.text and file.why
    assert len({variable.name for variable in injection.env}) == len(injection.env)


@NAMES
def test_secrets_are_marked(name: str, make_context: MakeContext) -> None:
    """The token never stands on a command line, where every user of the machine could read it."""
    context = make_context()
    injection = inject(name, context)
    assert not any(context.token in word for word in injection.argv)
    assert all(variable.secret == (context.token in variable.value) for variable in injection.env)
    carried = [variable.name for variable in injection.env if variable.secret]
    carried += [file.path.name for file in injection.files if context.token in file.text]
    assert carried, "the agent has no way to authenticate"


@NAMES
def test_points_at_the_session(name: str, make_context: MakeContext) -> None:
    context = make_context()
    injection = inject(name, context)
    everything = [*injection.argv, *(v.value for v in injection.env), *(file.text for file in injection.files)]
    urls = {url for text in everything for url in re.findall(r"https?://[^\s\"',]+", text)}
    assert context.base_url in {url.removesuffix("/v1") for url in urls}
    assert all(url.startswith("http://127.0.0.1:") for url in urls), "something points away from this machine"


@NAMES
def test_a_real_key_of_the_shell_goes_nowhere(name: str, make_context: MakeContext) -> None:
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "FT_TOKEN", "OPENROUTER_API_KEY")
    injection = inject(name, make_context(env={key: "sk-real" for key in keys}))
    shown = [*injection.argv, *(v.value for v in injection.env), *(v.replaces or "" for v in injection.env)]
    shown += [file.text for file in injection.files] + [warning.text for warning in injection.warnings]
    assert not any("sk-real" in text for text in shown)


@NAMES
def test_the_users_arguments_arrive(name: str, make_context: MakeContext) -> None:
    injection = inject(name, make_context(args=["--verbose", "say hi", "--", "-x"]))
    tail = [word for word in injection.argv if word in ("--verbose", "say hi", "--", "-x")]
    assert tail == ["--verbose", "say hi", "--", "-x"]


@NAMES
def test_refuses_a_window_that_is_too_small(name: str, make_context: MakeContext) -> None:
    small = {"window_tokens": 2000, "max_output_tokens": 500}
    with pytest.raises(HarnessError) as refusal:
        inject(name, make_context(**small))
    assert refusal.value.code == 5
    assert "2,000 tokens" in refusal.value.message and "--kv" in refusal.value.hint
    forced = inject(name, make_context(**small, force=True))
    assert "FT-W0102 window-too-small" in [warning.code for warning in forced.warnings]
    assert not inject(name, make_context()).warnings


@NAMES
def test_the_watchdog_is_raised(name: str, make_context: MakeContext) -> None:
    injection = inject(name, make_context(silence_limit_s=7200))
    assert injection.watchdog_s == (1800 if name == "claude" else 7200)  # Claude Code takes no more
    everything = [*injection.argv, *(v.value for v in injection.env), *(file.text for file in injection.files)]
    assert any("7200" in text or '"headerTimeout": false' in text for text in everything)


def test_unknown_names_are_said_so() -> None:
    with pytest.raises(KeyError):
        registry.load("nobody")
    with pytest.raises(KeyError):
        registry.load("../claude")
