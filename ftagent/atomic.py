"""Files are replaced whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ftagent.text import printable


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode("utf-8"), mode)


def write_bytes(
    path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None, temporary: Path | None = None
) -> None:
    """Temporary file in the same folder, fsync, rename, fsync of the folder. The old bytes survive any failure.

    `owner`: user and group, where they are not ours. `temporary`: its name, for who looks for it after a crash.
    """
    if temporary is None:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
    else:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """What was renamed or removed in it stays so over a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
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
