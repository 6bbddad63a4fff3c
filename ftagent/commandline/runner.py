"""Imports one command, parses its arguments and runs it."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ftagent.commandline import index
from ftagent.context import Context
from ftagent.errors import NotHere, UsageError
from ftagent.paths import find_paths
from ftagent.settings.config import BY_NAME
from ftagent.settings.values import parse_switch


class _ShortHelp(argparse.Action):
    """`-h`: how it is called, in a few lines. `--help`: everything."""

    def __init__(self, option_strings: Sequence[str], dest: str = argparse.SUPPRESS, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=options.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"{parser.format_usage()}\n{parser.description or ''}\n\nAll options and examples: {parser.prog} --help")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are our errors, so that `--json` and exit codes hold; abbreviations are not accepted."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        add_help = options.pop("add_help", True)
        super().__init__(add_help=False, **options)
        if add_help:
            self.add_argument("-h", action=_ShortHelp, help="how it is called")
            self.add_argument("--help", action="help", help="all options and examples")

    def format_help(self) -> str:
        """Examples stand before the options."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.add_text(self.epilog)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help"
        if self.prog == "ft launch" and message.startswith("unrecognized arguments"):
            hint = "The agent's own arguments go after --, see: " + hint
        raise UsageError(f"{self.prog}: {message}.", hint)


@dataclass(frozen=True, slots=True)
class Globals:
    """What may stand before the command as well as after it."""

    debug: bool = False
    colour: str = "auto"
    no_input: bool = False


def build_parser(name: str, common: Globals = Globals(), forwarded: bool = False) -> Parser:
    """The command's own parser. `forwarded`: its help is answered by what knows the flags of the action."""
    module = importlib.import_module(index.module_of(name))
    parser = Parser(prog=f"ft {name}", description=index.help_line(name) + ".", add_help=not forwarded)
    _add_common(parser.add_argument_group("common"), common)
    module.configure(parser)
    for inner in list(parsers_below(parser))[1:]:
        _add_common(inner.add_argument_group("common"), None)
    return parser


def _add_common(group: argparse._ArgumentGroup, given: Globals | None) -> None:
    """`given`: what stood before the command; None leaves alone what stood before the action."""

    def default(value: Any) -> Any:
        return argparse.SUPPRESS if given is None else value

    known = given or Globals()
    group.add_argument("--debug", action="store_true", default=default(known.debug), help="show the trace of an error")
    group.add_argument(
        "--color", choices=["auto", "always", "never"], default=default(known.colour), help="colours (default auto)"
    )
    group.add_argument(
        "--no-color",
        dest="color",
        action="store_const",
        const="never",
        default=default(known.colour),
        help="as --color never",
    )
    group.add_argument(
        "--no-input", action="store_true", default=default(known.no_input), help="never ask (as when CI is set)"
    )


def run_command(name: str, arguments: list[str], common: Globals) -> int:
    """Raises FtError."""
    module = importlib.import_module(index.module_of(name))
    # `ft models fit --help` is answered by what knows the flags of `fit`
    theirs = bool(arguments) and arguments[0] in getattr(module, "FORWARDED_HELP", ())
    parser = build_parser(name, common, theirs)
    take_variables(parser, os.environ)
    if getattr(module, "PASS_THROUGH", False):  # what we do not know belongs to the engine's own command line
        args, rest = parser.parse_known_args(arguments)
        args.rest = rest
    elif getattr(module, "TAKES_REST", False):  # what follows `--` belongs to the agent
        end = arguments.index("--") if "--" in arguments else len(arguments)
        args = parser.parse_args(arguments[:end])
        args.rest = arguments[end + 1 :]
    else:
        args = parser.parse_args(arguments)
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        raise NotHere("The current folder no longer exists.", "cd to a folder that does.") from None
    context = Context(find_paths(os.environ), dict(os.environ), cwd, args.debug, args.color, args.no_input)
    return int(module.run(args, context))


NO_VARIABLE = frozenset({"--help", "--debug", "--color", "--no-color", "--no-input", "--yes", "--force", "--home"})


def variable_of(action: argparse.Action) -> str | None:
    """`FT_<OPTION>` by the option's first long form; None where an option has none: what destroys is always typed."""
    long = next((word for word in action.option_strings if word.startswith("--")), None)
    if long is None or long in NO_VARIABLE or (action.nargs == 0 and not isinstance(action.const, bool)):
        return None
    return "FT_" + long[2:].replace("-", "_").upper()


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers_below(inner)


def take_variables(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Values from `FT_<OPTION>` become the defaults of options; those that are settings are read with the settings."""
    for inner in parsers_below(parser):
        for action in inner._actions:
            variable = variable_of(action)
            value = env.get(variable, "") if variable else ""
            if not value or variable is None or variable[3:].lower() in BY_NAME:
                continue
            if action.nargs == 0:
                try:
                    action.default = action.const if parse_switch(value) else not action.const
                except ValueError as expected:
                    raise UsageError(f"${variable} is {value!r}, expected {expected}.", f"unset {variable}") from None
            elif action.nargs is None:
                if action.choices is not None and value not in action.choices:
                    known = ", ".join(map(str, action.choices))
                    raise UsageError(f"${variable} is {value!r}, expected one of {known}.", f"unset {variable}")
                action.default = [value] if isinstance(action.default, list) else value
