"""Files are replaced whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ftagent.text import printable


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Temporary file in the same folder, fsync, rename, fsync of the folder. The old bytes survive any failure."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, document: dict[str, Any], mode: int = 0o600) -> None:
    write_text(path, printable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n", mode)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when it is missing, unreadable or not a JSON object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
