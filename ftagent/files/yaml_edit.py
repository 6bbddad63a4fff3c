"""One key of a YAML text, by the positions that the parser gives each node; every other byte stays."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from ftagent.files.keys import CannotEdit, Edit

MAX_NODES = 100_000
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})


def load_yaml(text: str) -> Any:
    """One document, YAML 1.2, plain data only. Raises YAMLError."""
    return _unshared(YAML(typ="safe", pure=True).load(io.StringIO(text)), [MAX_NODES])


def _unshared(data: Any, left: list[int]) -> Any:
    """Without the sharing that an alias brings: a change of one place is then seen to change another."""
    left[0] -= 1
    if left[0] < 0:
        raise YAMLError("its aliases unfold to too much")
    if isinstance(data, dict):
        return {key: _unshared(value, left) for key, value in data.items()}
    return [_unshared(value, left) for value in data] if isinstance(data, list) else data


def edit_yaml(text: str, edit: Edit) -> str:
    """Raises CannotEdit."""
    try:
        node = YAML(typ="rt", pure=True).compose(io.StringIO(text))
    except YAMLError as error:
        raise CannotEdit(str(error).splitlines()[0]) from None
    newline = "\r\n" if "\r\n" in text else "\n"
    if node is None:
        if edit.remove:
            return text
        gap = "" if not text or text.endswith("\n") else newline
        return text + gap + newline.join(_member(list(edit.key), edit.value, "")) + newline
    for depth, name in enumerate(edit.key):
        if not isinstance(node, MappingNode):
            raise CannotEdit(f"{'.'.join(edit.key[:depth]) or 'the document'} is no mapping", node.start_mark.index)
        found = next(((key, value) for key, value in node.value if key.value == name), None)
        if found is None:
            return text if edit.remove else _insert(text, node, list(edit.key[depth:]), edit.value, newline)
        if depth == len(edit.key) - 1:
            return _remove(text, *found) if edit.remove else _replace(text, *found, edit.value, newline)
        node = found[1]
    raise CannotEdit("no key was named")


def _scalar(value: Any) -> str:
    """What JSON writes on one line is YAML as well."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CannotEdit(f"the new value is none that YAML has here: {error}") from None


def _member(names: list[str], value: Any, indent: str) -> list[str]:
    """Lines of `a:` / `  b: value`."""
    name, *rest = names
    written = name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else _scalar(name)
    if rest:
        return [f"{indent}{written}:", *_member(rest, value, indent + "  ")]
    if isinstance(value, dict) and value:
        inner = [line for key, item in value.items() for line in _member([str(key)], item, indent + "  ")]
        return [f"{indent}{written}:", *inner]
    return [f"{indent}{written}: {_scalar(value)}"]


def _end(node: Node) -> int:
    """Where the node's own text ends: the end that a parser gives a block lies at the next token, after comments."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _is_block(node: Node) -> bool:
    return (isinstance(node, CollectionNode) and not node.flow_style) or getattr(node, "style", None) in ("|", ">")


def _replace(text: str, key: Node, value: Node, new: Any, newline: str) -> str:
    start, end = value.start_mark.index, _end(value)
    if not _is_block(value) and not (isinstance(new, dict) and new):
        lead = "" if text[start - 1 : start] in (" ", "\t", ",", "{", "[") else " "
        return text[:start] + lead + _scalar(new) + text[end:]
    if "#" in text[key.end_mark.index : end]:
        raise CannotEdit("a comment stands in what would be replaced", start)
    tail = newline if text[:end].endswith("\n") else ""
    line = text.rfind("\n", 0, key.start_mark.index) + 1
    indent = text[line : key.start_mark.index]
    if indent.strip():
        raise CannotEdit("the key does not stand on a line of its own", key.start_mark.index)
    lines = newline.join(_member([str(key.value)], new, indent))
    return text[:line] + lines + tail + text[end:]


def _insert(text: str, parent: MappingNode, names: list[str], value: Any, newline: str) -> str:
    if parent.flow_style or not parent.value:
        close = parent.end_mark.index - 1
        nested: Any = value
        for name in reversed(names[1:]):
            nested = {name: nested}
        gap = ", " if parent.value else ""
        return text[:close].rstrip() + gap + f"{_scalar(names[0])}: {_scalar(nested)}" + text[close:]
    first = parent.value[0][0].start_mark.index
    indent = text[text.rfind("\n", 0, first) + 1 : first]
    if indent.strip():
        raise CannotEdit("the mapping does not begin on a line of its own", first)
    lines = newline.join(_member(names, value, indent))
    at = _end(parent)
    if text[:at].endswith("\n"):
        return text[:at] + lines + newline + text[at:]
    line_end = text.find("\n", at)
    if line_end < 0:
        return text + newline + lines
    line_end -= text[:line_end].endswith("\r")
    return text[:line_end] + newline + lines + text[line_end:]


def _remove(text: str, key: Node, value: Node) -> str:
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        raise CannotEdit("the key does not stand on a line of its own", key.start_mark.index)
    end = max(_end(value), key.end_mark.index)
    if not text[:end].endswith("\n"):
        line_end = text.find("\n", end)
        end = len(text) if line_end < 0 else line_end + 1
    return text[:start] + text[end:]
