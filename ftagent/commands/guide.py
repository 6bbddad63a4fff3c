"""From an empty machine to a running agent, step by step"""

from __future__ import annotations

import argparse
import sys

from ftagent.context import Context
from ftagent.errors import UsageError

EPILOG = """\
Measures, gets a model, picks an agent, shows what a launch would do, and launches: each step by the command of that name,
after it has said what it costs, and after Enter. Esc and q leave at any step; the next time it goes on there.
ft alone begins it on a machine where nothing is set up.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--memory", metavar="BYTES", help="choose a model as if so much were free, such as 16g")
    parser.add_argument("--again", action="store_true", help="from the first step")


def run(args: argparse.Namespace, context: Context) -> int:
    """The agent's exit code, 0 when left before."""
    from ftagent.first_run import kept
    from ftagent.first_run.guide import Guide

    if not (context.may_ask and sys.stdout.isatty()):
        raise UsageError("ft guide asks, and here is no terminal to ask on.", "The steps by hand: docs/first-run.md")
    if args.again:
        kept.save(context.paths, kept.Kept())
    return Guide(context, args.memory).walk()
