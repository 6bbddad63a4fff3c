"""Texts by format: parsed with the position of what is wrong, and edited with a proof that only the key was touched."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ftagent.errors import Refused
from ftagent.files.keys import CannotEdit, Edit, applied, same

FORMATS = ("toml", "yaml", "json", "jsonc", "json5")
_SUFFIXES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonc": "jsonc", ".json5": "json5"}
WAYS_ON = "Correct the file, keep it out of this with --isolated, or see what would be written: --print-config"


def format_of(path: Path) -> str:
    """By the file's name. Raises Refused for one that is not known."""
    known = _SUFFIXES.get(path.suffix.lower())
    if known is None:
        raise Refused(f"{path}: no format is known by this name.", "Known: " + ", ".join(_SUFFIXES))
    return known


def load(text: str, format_: str) -> Any:
    """The document as plain data; {} for an empty text. Raises CannotEdit with a position."""
    if not text.strip():
        return {}
    return _LOADERS[format_](text)


def edited(path: Path, text: str, format_: str, edits: Sequence[Edit], ways_on: str = WAYS_ON) -> str:
    """The text with these keys changed and nothing else. Raises Refused naming file, line and column, with the ways on."""
    body = text.removeprefix("\ufeff")
    try:
        for edit in edits:
            body = _edit_once(body, format_, edit)
    except CannotEdit as why:
        raise refusal(path, text, why, ways_on) from None
    return ("\ufeff" if text.startswith("\ufeff") else "") + body


def parsed(path: Path, text: str, format_: str, ways_on: str = WAYS_ON) -> Any:
    """As `load`. Raises Refused."""
    try:
        return load(text.removeprefix("\ufeff"), format_)
    except CannotEdit as why:
        raise refusal(path, text, why, ways_on) from None


def refusal(path: Path, text: str, why: CannotEdit, ways_on: str = WAYS_ON) -> Refused:
    line, column = why.line, why.column
    if why.offset >= 0:
        before = text[: why.offset]
        line, column = before.count("\n") + 1, why.offset - (before.rfind("\n") + 1) + 1
    where = f"{path}:{line}:{column}" if line else str(path)
    return Refused(f"{where}: {why.reason}; the file was not changed.", ways_on, code="FT-E0412 config-unparseable")


def _edit_once(text: str, format_: str, edit: Edit) -> str:
    data = load(text, format_)
    wanted = applied(data, edit)
    new = _editor(format_)(text, edit)
    try:
        found = load(new, format_)
    except CannotEdit as why:
        raise CannotEdit(f"a change of {'.'.join(edit.key)} would break it ({why.reason})") from None
    if not same(_unordered(found), _unordered(wanted)):
        raise CannotEdit(f"a change of {'.'.join(edit.key)} alone cannot be proven")
    if _comments(text, new, format_):
        raise CannotEdit(f"a change of {'.'.join(edit.key)} would take a comment out")
    return new


def _unordered(data: Any) -> Any:
    """Order of keys is form, not content: a key may have to be written before a table that follows."""
    if isinstance(data, dict):
        return {name: _unordered(data[name]) for name in sorted(data, key=str)}
    return [_unordered(item) for item in data] if isinstance(data, list) else data


def _comments(old: str, new: str, format_: str) -> bool:
    """Whether a line that is only a comment went away."""
    marks = ("#",) if format_ in ("toml", "yaml") else ("//", "/*", "*")
    lines = [line.strip() for line in new.splitlines()]
    return any(line.strip().startswith(marks) and line.strip() not in lines for line in old.splitlines())


def _editor(format_: str) -> Callable[[str, Edit], str]:
    if format_ == "toml":
        from ftagent.files.toml_edit import edit_toml

        return edit_toml
    if format_ == "yaml":
        from ftagent.files.yaml_edit import edit_yaml

        return edit_yaml
    from ftagent.files.json_edit import edit_json

    return edit_json


def _load_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+), column (\d+)", str(error))
        reason = re.sub(r"\s*\(at [^)]*\)", "", str(error))
        line = text.count("\n") + 1
        position = (int(at[1]), int(at[2])) if at else (line, 1)
        raise CannotEdit(f"not valid TOML: {reason}", -1, *position) from None


def _load_yaml(text: str) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from ftagent.files.yaml_edit import load_yaml

    try:
        data = load_yaml(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        position = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise CannotEdit(f"not valid YAML: {error.problem or error.context}", -1, *position) from None
    except YAMLError as error:
        raise CannotEdit(f"not valid YAML: {str(error).splitlines()[0]}", -1, 1, 1) from None
    return {} if data is None else data


def _load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CannotEdit(f"not valid JSON: {error.msg}", -1, error.lineno, error.colno) from None


def _load_json5(text: str) -> Any:
    import json5

    from ftagent.files.json_tree import read_tree

    read_tree(text)  # has the position of what is wrong
    try:
        return json5.loads(text)
    except (ValueError, RecursionError) as error:
        at = re.search(r":(\d+) .*at column (\d+)", str(error))
        position = (int(at[1]), int(at[2])) if at else (1, 1)
        raise CannotEdit(f"not valid JSON5: {str(error).splitlines()[0]}", -1, *position) from None


_LOADERS: dict[str, Callable[[str], Any]] = {
    "toml": _load_toml,
    "yaml": _load_yaml,
    "json": _load_json,
    "jsonc": _load_json5,
    "json5": _load_json5,
}
