"""The options of an engine as flags: the same ones for everything that starts an engine or plans one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftagent.settings.config import ENGINE_OPTIONS, Settings


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Unparsed: the settings parse them, so that a flag, a variable and a file fail alike."""
    group = parser.add_argument_group("engine")
    for option in ENGINE_OPTIONS:
        normal = option.default if option.default is not None else option.implied
        usual = f" (default {normal:g})" if isinstance(normal, float) else f" (default {normal})" if normal else ""
        group.add_argument(option.flag, metavar=option.metavar, help=option.help + usual)


def engine_flags(args: argparse.Namespace) -> dict[str, Any]:
    """What was given of them, as `Context.settings` takes it."""
    return {option.name: getattr(args, option.name) for option in ENGINE_OPTIONS}


def for_agents(settings: Settings) -> Settings:
    """The same settings, in which an engine is started with memory shared out for an agent unless something else was chosen."""
    if settings.origins["preset"] != "default":
        return settings
    return replace(
        settings,
        values={**settings.values, "preset": "agent"},
        origins={**settings.origins, "preset": "what agents need"},
    )


def as_arguments(settings: Settings, chosen_only: bool = False) -> list[str]:
    """The flags that give an engine these settings. `chosen_only`: without those that are at their default."""
    arguments = []
    for option in ENGINE_OPTIONS:
        value = settings.values[option.name]
        if value is not None and not (chosen_only and settings.origins[option.name] == "default"):
            arguments += [option.flag, str(value)]
    return arguments


def given(settings: Settings) -> list[str]:
    """The flags of this very command."""
    names = [option for option in ENGINE_OPTIONS if settings.origins[option.name].startswith("--")]
    return [word for option in names for word in (option.flag, str(settings.values[option.name]))]


def differences(settings: Settings, running: Sequence[str] | None) -> list[str]:
    """One text for each flag of this command that an engine started with the arguments `running` does not follow; where those
    are not known (None), for each flag."""
    found = []
    for option in ENGINE_OPTIONS:
        if not settings.origins[option.name].startswith("--"):
            continue
        asked = settings.values[option.name]
        if running is None:
            found.append(f"{option.flag} {asked}")
            continue
        at = max((i for i, word in enumerate(running[:-1]) if word == option.flag), default=None)
        normal = option.default if option.default is not None else option.implied
        try:
            has = normal if at is None else option.parse(running[at + 1])
        except ValueError:
            has = None
        if has != asked:
            found.append(f"{option.flag} {asked} (it has {'none' if has is None else has})")
    return found


def arguments_of(pid: int | None) -> list[str] | None:
    """The arguments with which the process was started; None where the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return [word.decode(errors="replace") for word in words if word] or None
