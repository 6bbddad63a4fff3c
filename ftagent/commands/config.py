"""Show the settings in force and where they come from"""

from __future__ import annotations

import argparse

from ftagent.config import OPTIONS
from ftagent.context import Context
from ftagent.output import print_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="show|path")
    show = actions.add_parser("show", help="every option and its value", description="Every option and its value.")
    show.add_argument("--origin", action="store_true", help="also where each value comes from")
    show.add_argument("--json", action="store_true")
    actions.add_parser("path", help="where your config.toml is", description="Where your config.toml is.")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.action == "path":
        print(context.paths.config_file)
        return 0
    settings = context.settings()
    if args.json:
        values = {o.name: {"value": settings.values[o.name], "origin": settings.origins[o.name]} for o in OPTIONS}
        print_json({"schema": "ft.config/1", "options": values})
        return 0
    rows = [["OPTION", "VALUE", *(["FROM"] if args.origin else []), "MEANING"]]
    for option in OPTIONS:
        value = settings.values[option.name]
        origin = [settings.origins[option.name]] if args.origin else []
        rows.append([option.name, "-" if value is None else str(value), *origin, option.help])
    print(table(rows))
    return 0
