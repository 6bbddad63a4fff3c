"""Imports one command, parses its arguments and runs it."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any, NoReturn

from ftagent import command_index
from ftagent.context import Context
from ftagent.errors import NotHere, UsageError
from ftagent.paths import find_paths


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are our errors, so that `--json` and exit codes hold; abbreviations are not accepted."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help"
        if self.prog == "ft launch" and message.startswith("unrecognized arguments"):
            hint = "The agent's own arguments go after --, see: " + hint
        raise UsageError(f"{self.prog}: {message}.", hint)


def run_command(name: str, arguments: list[str], debug: bool, colour: str) -> int:
    """Raises FtError. `--debug`, `--color` and `--no-color` are accepted after the command as well."""
    module = importlib.import_module(command_index.module_of(name))
    # `ft models fit --help` is answered by what knows the flags of `fit`
    theirs = bool(arguments) and arguments[0] in getattr(module, "FORWARDED_HELP", ())
    parser = Parser(prog=f"ft {name}", description=command_index.help_line(name) + ".", add_help=not theirs)
    common = parser.add_argument_group("common")
    common.add_argument("--debug", action="store_true", default=debug, help="show the trace of an error")
    common.add_argument("--color", choices=["auto", "always", "never"], default=colour)
    common.add_argument("--no-color", dest="color", action="store_const", const="never")
    module.configure(parser)
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
    context = Context(find_paths(os.environ), dict(os.environ), cwd, args.debug, args.color)
    return int(module.run(args, context))
