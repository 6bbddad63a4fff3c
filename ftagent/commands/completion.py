"""Print a completion script for a shell"""

from __future__ import annotations

import argparse

from ftagent.commandline.completion_values import KINDS
from ftagent.context import Context
from ftagent.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  source <(ft completion bash)\n"
        '  ft completion zsh > "${fpath[1]}/_ft"\n'
        "  ft completion fish > ~/.config/fish/completions/ft.fish\n"
    )
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="of which shell")
    parser.add_argument("--values", choices=KINDS, help=argparse.SUPPRESS)


def run(args: argparse.Namespace, context: Context) -> int:
    if args.values:
        from ftagent.commandline.completion_values import values

        for word, about in values(args.values, context):
            print(f"{word}\t{about}")
        return 0
    if args.shell is None:
        raise UsageError("Name a shell: " + ", ".join(SHELLS) + ".", "ft completion --help")
    from ftagent.commandline.completion import script

    print(script(args.shell), end="")
    return 0
