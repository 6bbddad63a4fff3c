"""The JSON schemas of what ft prints, one file each, named as in the field `schema` with `-` for `/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.stem.rpartition("-")[0] + "/" + path.stem.rpartition("-")[2] for path in _FOLDER.glob("*.json"))


def schema_of(name: str) -> dict[str, Any] | None:
    """`ft.status/1`, or `ft.status` for its newest."""
    wanted = name if "/" in name else max((n for n in names() if n.partition("/")[0] == name), default=name)
    if wanted not in names():
        return None
    document: dict[str, Any] = json.loads((_FOLDER / (wanted.replace("/", "-") + ".json")).read_text(encoding="utf-8"))
    return document
