"""Go on with an earlier session (as: ft launch --resume)"""

from __future__ import annotations

import argparse

from ftagent.commands import launch
from ftagent.context import Context
from ftagent.launch.options import add_options

TAKES_REST = True
EXAMPLES = """\
examples:
  ft resume                    the session of this project, or a choice of them
  ft resume claude-2           by name, id, or the beginning of an id
  ft resume --last -- -p "go on"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft resume [SESSION] [options] [-- agent arguments]"
    parser.epilog = EXAMPLES
    parser.add_argument("session", nargs="?", default="", help="name, id, or the beginning of an id")
    add_options(parser, resuming=True)


def run(args: argparse.Namespace, context: Context) -> int:
    args.agent, args.declaration, args.fork = None, None, None
    args.resume, args.new, args.proceed = args.session, False, args.last
    return launch.run(args, context)
