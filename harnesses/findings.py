"""Where in a config file a key stands, so that a preview can say `settings.json:4`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from harnesses.contract import HarnessError, LaunchContext, Warning_


def line_of(text: str, key: str) -> int | None:
    """The 1-based line of the first place where `key` is a key of JSON or TOML text; None when it is not found."""
    name = re.escape(key)
    match = re.search(rf"""(?:"{name}"|'{name}'|(?<![\w.-]){name})\s*[:=]""", text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def place(path: Path, text: str, key: str, home: Path) -> str:
    """`~/.claude/settings.json:4`, or without the line when the key is written in an unusual way."""
    line = line_of(text, key)
    short = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    return f"{short}:{line}" if line else short


def parse_object(path: Path, text: str) -> dict[str, Any]:
    """A JSON object. Raises HarnessError (code 4) with line and column: unparseable is never taken for empty."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise HarnessError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}.",
            "Correct the file, then launch again.",
            code=4,
        ) from error
    if not isinstance(value, dict):
        raise HarnessError(f"{path}: holds no JSON object.", "Correct the file, then launch again.", code=4)
    return value


def managed(path: Path, text: str, key: str, context: LaunchContext) -> Warning_:
    """For a key of the machine's managed settings that redirects. Raises HarnessError (code 4) unless the user has forced it."""
    message = f"{place(path, text, key, context.home)} sets {key}, and managed settings beat this launch."
    hint = "Ask whoever manages this machine, or go on with --force."
    if not context.force:
        raise HarnessError(message, hint, code=4)
    return Warning_("FT-W0111 managed-setting", message, hint)
