"""Files of a launch that the agent changed: what it made of them is never lost, at the end of a launch or before the next."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from ftagent.atomic import write_text

_TOKEN = re.compile(r"ft_sess_[\w-]+")
ENDED = "ft_sess_ended"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def put_away(path: Path, text: str) -> None:
    """After a launch that wrote `text` with the session's token in it: removed, or without the token where it was changed.

    Raises OSError.
    """
    present = _read(path)
    if present is None:
        return
    if present == text:
        path.unlink()
    else:
        write_text(path, _TOKEN.sub(ENDED, present))


def save_edit(path: Path, written: Mapping[str, str]) -> Path | None:
    """Before `path` is written again: a copy of what the agent made of it beside it. None when it is as the launch before
    left it. `written`: the digests of what that one wrote, by path. Raises OSError."""
    known, present = written.get(str(path)), _read(path)
    if known is None or present is None or digest(present) == known:
        return None
    copy = path.with_name(f"{path.name}.edited")
    number = 1
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.edited-{number}")
    write_text(copy, _TOKEN.sub(ENDED, present))
    return copy


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
