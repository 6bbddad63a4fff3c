"""List the sessions of this project (the short form of: ft sessions ls)"""

from __future__ import annotations

import argparse

from ftagent.context import Context
from ftagent.session.listing import add_flags, list_sessions


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    return list_sessions(args, context)
