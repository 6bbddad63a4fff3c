"""Gather what a bug report needs into one file, without secrets or prompts"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ftagent.context import Context
from ftagent.output import note, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "examples:\n  ft report --dry-run     print what would be in it\n  ft report -o bug.zip\n"
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="default: ft-report-<time>.zip in this folder"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the texts, write nothing")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    """Nothing is sent anywhere."""
    import io
    import time
    import zipfile

    from ftagent.errors import Conflict
    from ftagent.report import gather

    texts = gather(context)
    if args.dry_run:
        if args.json:
            print_json({"schema": "ft.report/1", "file": None, "texts": texts})
        else:
            for name, text in texts.items():
                print(f"# {name}\n{text}")
        return 0
    file = context.cwd / (args.output or Path(time.strftime("ft-report-%Y%m%d-%H%M%S.zip")))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in texts.items():
            bundle.writestr(name, text)
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as raw:
            raw.write(packed.getbuffer())
    except FileExistsError:
        raise Conflict(f"{file} exists already.", "ft report -o ANOTHER") from None
    except OSError as error:
        if error.filename is None:  # the file was made, and holds a part
            file.unlink(missing_ok=True)
            error.filename = str(file)
        raise
    if args.json:
        print_json({"schema": "ft.report/1", "file": str(file), "texts": None})
    else:
        print(file)
        note("ft: read it before you attach it; nothing was sent")
    return 0
