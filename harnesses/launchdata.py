"""The `[launch]` section of a harness.toml: what is true of one agent, kept as data because agents change weekly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harnesses.contract import EnvVar, HarnessError, LaunchContext, Warning_
from harnesses.registry import read_declaration

_FIELD = re.compile(r"\{([a-z_]+)\}")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|HEADERS|CREDENTIAL", re.IGNORECASE)
_WHERE = " where memory and the model's own window allow it, else take another model"


@dataclass(frozen=True, slots=True)
class EnvRule:
    """One variable given to the agent; `value` is a template over the names of `values`."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Arguments of the user that would send the agent elsewhere, and why they are refused."""

    flags: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class LaunchData:
    title: str
    min_window_tokens: int
    comfortable_window_tokens: int
    first_prompt_tokens: int  # what the agent sends before the user has said anything
    kept_free_tokens: int  # besides the room for one answer, so that it can compact
    watchdog_default_s: float | None  # None: the agent waits for ever
    env: tuple[EnvRule, ...]
    refuse: tuple[Refusal, ...]
    commands: frozenset[str]  # subcommands that run no conversation
    raw: Mapping[str, Any]


def read_launch(folder: Path) -> LaunchData:
    """`[launch]` of `folder/harness.toml`. Raises ValueError when it is not TOML, KeyError when a key is missing."""
    raw = read_declaration(folder)["launch"]
    return LaunchData(
        title=raw["title"],
        min_window_tokens=raw["min_window"],
        comfortable_window_tokens=raw["comfortable_window"],
        first_prompt_tokens=raw["first_prompt"],
        kept_free_tokens=raw.get("kept_free", 0),
        watchdog_default_s=raw.get("watchdog_default_s"),
        env=tuple(EnvRule(rule["name"], rule["value"], rule["why"]) for rule in raw.get("env", [])),
        refuse=tuple(Refusal(tuple(rule["flags"]), rule["why"]) for rule in raw.get("refuse", [])),
        commands=frozenset(raw.get("commands", [])),
        raw=raw,
    )


def values(context: LaunchContext) -> dict[str, str]:
    """The names a template of harness.toml may use."""
    return {
        "base_url": context.base_url,
        "openai_url": f"{context.base_url}/v1",
        "token": context.token,
        "model": context.model,
        "session": context.session_id,
        "state_dir": str(context.state_dir),
        "window": str(context.window_tokens),
        "max_output": str(context.max_output_tokens),
        "silence_s": str(context.silence_limit_s),
        "silence_ms": str(context.silence_limit_s * 1000),
    }


def fill(template: str, names: Mapping[str, str]) -> str:
    """`{name}` replaced by its value. Raises KeyError for a name that is not there."""
    return _FIELD.sub(lambda match: names[match[1]], template)


def environment(data: LaunchData, context: LaunchContext) -> list[EnvVar]:
    """The variables of `[[launch.env]]`, filled in, with what each one replaces in the user's shell."""
    names = values(context)
    return [
        EnvVar(
            name=rule.name,
            value=fill(rule.value, names),
            why=rule.why,
            secret="{token}" in rule.value,
            replaces=_shell_value(rule.name, context.env, fill(rule.value, names)),
        )
        for rule in data.env
    ]


def check_window(data: LaunchData, context: LaunchContext) -> list[Warning_]:
    """Raises HarnessError (code 5) below the agent's minimum; with `force`, or below what is comfortable, warns."""
    window, output = context.window_tokens, context.max_output_tokens
    left = window - data.first_prompt_tokens - output - data.kept_free_tokens
    kept = f"- {data.kept_free_tokens:,} kept free to compact " if data.kept_free_tokens else ""
    sum_ = (
        f"{window:,} tokens - {data.first_prompt_tokens:,} of first prompt - {output:,} of output {kept}"
        f"leave {max(left, 0):,} for work"
    )
    if window < data.min_window_tokens:
        text = f"{data.title} needs a window of {data.min_window_tokens:,} tokens: {sum_}."
        hint = f"Serve with --kv {data.min_window_tokens}{_WHERE}, or go on with --force."
        if not context.force:
            raise HarnessError(text, hint, code=5)
        return [Warning_("FT-W0102 window-too-small", text, hint)]
    if window < data.comfortable_window_tokens:
        text = f"{data.title} will compact often: {sum_}."
        return [Warning_("FT-W0103 window-tight", text, f"Serve with --kv {data.comfortable_window_tokens}{_WHERE}.")]
    return []


def looks_secret(name: str) -> bool:
    """Whether a value under this name must not be shown."""
    return bool(_SECRET_NAME.search(name))


def shown(name: str, value: str) -> str:
    """A value as a preview may print it."""
    return "a secret" if looks_secret(name) and value else value or "empty"


def _shell_value(name: str, env: Mapping[str, str], ours: str) -> str | None:
    theirs = env.get(name)
    if theirs is None or theirs == ours:
        return None
    return f"{shown(name, theirs)} (your shell)"
