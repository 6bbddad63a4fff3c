"""The `ft` command: global flags, then one file of `ftagent/commands`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from ftagent import __version__
from ftagent.commandline import index
from ftagent.errors import FtError, UsageError, explain_os_error
from ftagent.isolation import demote_foreign_paths

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
USAGE = """\
usage: ft [--debug] [--color auto|always|never] [--no-input] COMMAND ...

Runs a coding agent on this machine's own hardware.

  ft launch claude             start the engine if needed, and the agent on it
  ft resume                    go on where an agent of this project was left
  ft run "a question"          ask the model without an agent
  ft                           on a terminal: the guide of an empty machine, later the dashboard

"""


def help_text(everything: bool) -> str:
    names = index.names() if everything else list(index.FIRST)
    width = max(map(len, names)) + 2
    lines = [f"  {name.ljust(width)}{index.help_line(name)}" for name in names]
    more = "" if everything else "\nft help all lists every command; ft COMMAND --help explains one.\n"
    return USAGE + "commands:\n" + "\n".join(lines) + "\n" + more


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code. Errors are one sentence and a fix; a traceback only with --debug."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments[: arguments.index("--") if "--" in arguments else None]
    demote_foreign_paths(os.environ)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed by whoever started us
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        return _flushed(arguments)
    except FtError as error:
        if debug:
            raise
        _report(error, arguments)
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        print("Stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        if error.filename is None and error.errno in _FULL:  # all that we write has a name but this
            _drop_output()
            reason = error.strerror or str(error)
            print(f"ft: The output could not be written: {reason}.\n    Send it somewhere else.", file=sys.stderr)
            return 1
        if debug:
            raise
        _report(FtError(*explain_os_error(error)), arguments)
        return 1
    except Exception as error:
        if debug:
            raise
        _report(
            FtError(f"{type(error).__name__}: {error}", "Run the same command with --debug for the trace."), arguments
        )
        return 1


def _drop_output() -> None:
    """What is still to be written goes nowhere, so that Python does not fail over it once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flushed(arguments: list[str]) -> int:
    """What a reader no longer wants is found out here, and not while Python ends."""
    try:
        code = _dispatch(arguments)
    except SystemExit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _dispatch(arguments: list[str]) -> int:
    colour = os.environ.get("FT_COLOR") or "auto"
    if colour not in ("auto", "always", "never"):
        raise UsageError("$FT_COLOR is auto, always or never.", "unset FT_COLOR")
    debug = False
    no_input = os.environ.get("FT_NO_INPUT", "") not in ("", "0")
    while arguments and arguments[0].startswith("-"):
        flag = arguments.pop(0)
        if flag in ("-h", "--help"):
            print(help_text(everything=False), end="")
            return 0
        if flag in ("-V", "--version"):
            print(f"ft {__version__}")
            return 0
        if flag == "--debug":
            debug = True
        elif flag == "--no-color":
            colour = "never"
        elif flag == "--no-input":
            no_input = True
        elif flag == "--color" or flag.startswith("--color="):
            colour = flag.partition("=")[2] or (arguments.pop(0) if arguments else "")
            if colour not in ("auto", "always", "never"):
                raise UsageError("--color is auto, always or never.", "ft --help")
        else:
            raise UsageError(f"Unknown option {flag}.", "ft --help")
    if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
        arguments = _opening(no_input)
    if not arguments:
        print(help_text(everything=False), end="", file=sys.stderr)
        return 2
    name, *rest = arguments
    if name == "help":
        if not rest or rest == ["all"]:
            print(help_text(everything=bool(rest)), end="")
            return 0
        name, rest = rest[0], [*rest[1:], "--help"]
    if name not in index.names():
        near = index.nearest(name)
        hint = f"Did you mean: ft {near}" if near else "ft help all lists the commands."
        raise UsageError(f"Unknown command {name!r}.", hint, code="FT-E0201 unknown-command")
    from ftagent.commandline.runner import Globals, run_command

    return run_command(name, rest, Globals(debug, colour, no_input))


def _opening(no_input: bool) -> list[str]:
    """What a person at a terminal who says nothing gets: the guide where nothing is set up, else the dashboard."""
    from ftagent.first_run.kept import wanted
    from ftagent.paths import find_paths

    asked = not no_input and not os.environ.get("CI") and sys.stderr.isatty()
    if asked and wanted(find_paths(os.environ), os.environ):
        return ["guide"]
    return ["top"] if os.environ.get("TERM", "") not in ("", "dumb") else []


def _report(error: FtError, arguments: list[str]) -> None:
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in ours:
        from ftagent.output import print_json

        # the stdout of a real launch belongs to the agent
        to_stderr = ours[:1] == ["launch"] and "--dry-run" not in ours
        print_json(error.to_json(), sys.stderr if to_stderr else sys.stdout)
        return
    print(f"ft: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"    {error.hint}", file=sys.stderr)
