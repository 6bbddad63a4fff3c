"""Show the manual page"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys

from ftagent.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "examples:\n  ft man\n  ft man --roff > ft.1\n"
    parser.add_argument("--roff", action="store_true", help="the page's source, also on a terminal")
    parser.add_argument("--markdown", action="store_true", help="the same as one Markdown document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Through man(1) on a terminal, as source elsewhere."""
    from ftagent.commandline import docs

    if args.markdown:
        print(docs.markdown(), end="")
        return 0
    page = docs.roff()
    man = shutil.which("man", path=context.env.get("PATH"))
    if args.roff or man is None or not sys.stdout.isatty():
        print(page, end="")
        return 0
    environment = dict(context.env)
    if pager := context.env.get("FT_PAGER"):
        environment["MANPAGER"] = pager
    return subprocess.run([man, "-l", "-"], input=page, text=True, env=environment, check=False).returncode
