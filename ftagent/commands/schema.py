"""Print the JSON schema of an output"""

from __future__ import annotations

import argparse

from ftagent.context import Context
from ftagent.errors import UsageError
from ftagent.output import print_json
from ftagent.schemas import names, schema_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "examples:\n  ft schema              the names of all\n  ft schema ft.status/1\n"
    parser.add_argument("schema_name", nargs="?", metavar="NAME", help="as in the field `schema` of the output")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.schema_name is None:
        print("\n".join(names()))
        return 0
    schema = schema_of(args.schema_name)
    if schema is None:
        raise UsageError(f"There is no schema {args.schema_name!r}.", "ft schema")
    print_json(schema)
    return 0
