"""The tools of the mini agent: their definitions for the model, and what they do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

BASH_TIMEOUT_S = 120.0
MAX_OUTPUT_CHARS = 20_000


class ToolError(Exception):
    """The call could not be carried out; the model reads the text and goes on."""


def run_tool(name: str, arguments: dict[str, Any], cwd: Path) -> str:
    """The text of the result. Raises ToolError."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ToolError(f"there is no tool {name}; there are {', '.join(_FUNCTIONS)}")
    missing = [key for key in _REQUIRED[name] if not isinstance(arguments.get(key), str)]
    if missing:
        raise ToolError(f"{name} needs {', '.join(missing)} as text")
    try:
        return _cut(function(cwd, **{key: arguments[key] for key in _REQUIRED[name]}))
    except (OSError, UnicodeError) as error:
        raise ToolError(str(error)) from error


def _read(cwd: Path, path: str) -> str:
    return (cwd / path).read_text(encoding="utf-8", errors="replace")


def _write(cwd: Path, path: str, content: str) -> str:
    target = cwd / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    return f"wrote {len(content)} characters to {path}"


def _edit(cwd: Path, path: str, old: str, new: str) -> str:
    text = (cwd / path).read_text(encoding="utf-8")
    count = text.count(old)
    if count != 1:
        raise ToolError(f"the old text occurs {count} times in {path}, it must occur once")
    (cwd / path).write_text(text.replace(old, new), encoding="utf-8")
    return f"edited {path}"


def _bash(cwd: Path, command: str) -> str:
    process = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=BASH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ToolError(f"stopped after {BASH_TIMEOUT_S:.0f} s") from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return output if process.returncode == 0 else f"{output}\n[exit code {process.returncode}]"


def _cut(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    half = MAX_OUTPUT_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


_FUNCTIONS: dict[str, Callable[..., str]] = {"read": _read, "bash": _bash, "edit": _edit, "write": _write}
_REQUIRED = {"read": ("path",), "bash": ("command",), "edit": ("path", "old", "new"), "write": ("path", "content")}
_DESCRIPTIONS = {
    "read": "Read a text file.",
    "bash": "Run a bash command in the working directory and return its output.",
    "edit": "Replace a text that occurs exactly once in a file.",
    "write": "Create or overwrite a file.",
}

DEFINITIONS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": _DESCRIPTIONS[name],
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": list(keys),
                "additionalProperties": False,
            },
        },
    }
    for name, keys in _REQUIRED.items()
]
