"""The command reference as Markdown and as a manual page, from the command model."""

from __future__ import annotations

import re
import textwrap

from ftagent import __version__
from ftagent.commandline.model import CommandModel, OptionModel, commands

EXIT_CODES = (
    ("0", "done"),
    ("1", "failed, with the reason on stderr"),
    ("2", "wrong usage"),
    ("3", "what was asked for is not there: a session, a model, a running engine"),
    ("4", "refused, to protect your data"),
    ("5", "the engine is not ready: it crashed, makes no progress or does not fit"),
    ("6", "conflict: a port, a lock or a name is taken"),
    ("75", "try again later"),
    ("125", "a launch failed before the agent ran"),
    ("126", "the agent was found but cannot run"),
    ("127", "the agent is not installed"),
    ("other", "of a launch: the agent's own code, 128 + n when signal n ended it"),
)
_VARIABLES = (
    "Every option that takes a value or switches something on has a variable, FT_ and its long name in capitals: FT_PORT for --port. "
    "A flag wins over the variable, the variable over a project's .ft.toml, that over your config.toml, that over the default. "
    "What removes or forces something has no variable."
)


def markdown() -> str:
    parts = [
        "# Commands\n",
        "Made from the program itself by `ft man --markdown`; a test compares.\n",
        _VARIABLES + "\n",
        "| Exit code | Meaning |\n|---|---|\n" + "".join(f"| {code} | {text} |\n" for code, text in EXIT_CODES),
    ]
    for top in commands():
        parts.append(f"## ft {top.path}\n\n{top.help}.\n")
        parts += [_section(model) for model in (top, *top.children)]
    return "\n".join(parts).rstrip() + "\n"


def _section(model: CommandModel) -> str:
    lines = [] if " " not in model.path else [f"### ft {model.path}\n", f"{model.help[:1].upper()}{model.help[1:]}.\n"]
    if model.epilog:
        lines.append("```\n" + textwrap.dedent(model.epilog).strip() + "\n```\n")
    rows = [f"| `{name}` | {_cell(text)} |" for name, _, text in model.values if text]
    rows += [f"| `{_spelled(option)}` | {_cell(option.help)} |" for option in _own(model)]
    if rows:
        lines.append("| Argument | Meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(lines)


def _own(model: CommandModel) -> list[OptionModel]:
    common = {"-h", "--help", "--debug", "--color", "--no-color", "--no-input"}
    return [option for option in model.options if not common & set(option.words)]


def _spelled(option: OptionModel) -> str:
    return ", ".join(option.words) + (f" {option.metavar}" if option.metavar else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("%%", "%")


def roff() -> str:
    """man(7), section 1."""
    lines = [
        f'.TH FT 1 "" "ft {__version__}" "User Commands"',
        ".SH NAME",
        r"ft \- runs a coding agent on this machine's own hardware",
        ".SH SYNOPSIS",
        ".B ft",
        r".RI [ options ] \ COMMAND \ ...",
        ".SH COMMANDS",
    ]
    for top in commands():
        for model in (top, *top.children):
            lines += [".SS " + _roff(f"ft {model.path}"), _roff(model.help[:1].upper() + model.help[1:] + ".")]
            for option in _own(model):
                lines += [
                    ".TP",
                    r"\fB" + _roff(", ".join(option.words)) + r"\fR " + _roff(option.metavar),
                    _roff(option.help),
                ]
            if model.epilog:
                lines += [".PP", ".nf", *(_roff(line) for line in model.epilog.splitlines()), ".fi"]
    lines += [".SH ENVIRONMENT", _roff(_VARIABLES), ".SH EXIT STATUS"]
    for code, text in EXIT_CODES:
        lines += [".TP", rf"\fB{code}\fR", _roff(text)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("%%", "%").replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
