"""JSON with comments, trailing commas and the like, as several agents write their settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import json5

from harnesses.contract import HarnessError

_HINT = "Correct the file, then launch again."


def parse_object(path: Path, text: str) -> dict[str, Any]:
    """Raises HarnessError (code 4) for anything else than an object: unparseable is never taken for empty."""
    try:
        value = json5.loads(text)
    except ValueError as error:
        raise HarnessError(f"{path}: not JSON: {error}", _HINT, code=4) from error
    if not isinstance(value, dict):
        raise HarnessError(f"{path}: holds no JSON object.", _HINT, code=4)
    return value
