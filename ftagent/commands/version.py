"""Print the versions of the parts"""

from __future__ import annotations

import argparse
import platform

from ftagent import __version__
from ftagent.context import Context
from ftagent.output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    if not args.json:
        print(f"ft {__version__}")
        return 0
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    from ftagent.local_engine.report import engine_report

    print_json(
        {
            "schema": "ft.version/1",
            "ft": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "torch": installed("torch"),
            "running_engine": engine_report(context)["version"],
        }
    )
    return 0
