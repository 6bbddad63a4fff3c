"""Every command with its options, taken from the parsers themselves: completion, manual and documents are made from this."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from ftagent.commandline import index
from ftagent.commandline.runner import build_parser, variable_of

_KINDS = {"agent": "agents", "session": "sessions", "model": "models", "key": "settings", "schema_name": "schemas"}
_SESSION_FLAGS = {"--resume", "--fork"}


@dataclass(frozen=True, slots=True)
class OptionModel:
    """`kind` says what its value is: "" for a switch, files, dirs, sessions, models, agents, value, or `=a b c`."""

    words: tuple[str, ...]
    metavar: str
    help: str
    kind: str
    variable: str | None


@dataclass(frozen=True, slots=True)
class CommandModel:
    """`path` without `ft`: `engine start`. `values`: the kinds of its positional arguments."""

    path: str
    help: str
    usage: str
    epilog: str
    options: tuple[OptionModel, ...]
    values: tuple[tuple[str, str, str], ...]  # name, kind, help
    children: list[CommandModel] = field(default_factory=list)


def commands() -> list[CommandModel]:
    """All of them; imports every command."""
    return [command(name) for name in index.names()]


def command(name: str) -> CommandModel:
    return _model(name, index.help_line(name), build_parser(name))


def _model(path: str, about: str, parser: argparse.ArgumentParser) -> CommandModel:
    options: list[OptionModel] = []
    values: list[tuple[str, str, str]] = []
    children: list[CommandModel] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children += [_model(f"{path} {name}", helps.get(name, ""), inner) for name, inner in action.choices.items()]
        elif action.option_strings:
            options.append(_option(action))
        else:
            values.append((_metavar(action), _kind(action), action.help or ""))
    return CommandModel(
        path, about, parser.format_usage(), parser.epilog or "", tuple(options), tuple(values), children
    )


def _option(action: argparse.Action) -> OptionModel:
    takes = action.nargs != 0
    words = tuple(action.option_strings)
    metavar = _metavar(action) if takes else ""
    return OptionModel(words, metavar, action.help or "", _kind(action) if takes else "", variable_of(action))


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper() if action.option_strings else action.dest


def _kind(action: argparse.Action) -> str:
    if action.choices is not None:
        return "=" + " ".join(map(str, action.choices))
    if _SESSION_FLAGS & set(action.option_strings):
        return "sessions"
    if action.dest in _KINDS:
        return _KINDS[action.dest]
    metavar = _metavar(action).upper()
    return {"DIR": "dirs", "FILE": "files", "PATH": "files"}.get(metavar, "value")


def flatten(found: list[CommandModel]) -> list[CommandModel]:
    return [model for top in found for model in (top, *flatten(top.children))]
