"""One key of a JSON, JSONC or JSON5 text is replaced, added or taken out; every other byte stays."""

from __future__ import annotations

import json
import re
from typing import Any

from ftagent.files.json_tree import Member, Node, last_code, read_tree, skip
from ftagent.files.keys import CannotEdit, Edit


def edit_json(text: str, edit: Edit) -> str:
    """Raises CannotEdit."""
    if not text.strip() and not edit.remove:
        return _dump(_nested(edit.key, edit.value), "", "  ", "\n") + "\n"
    node = read_tree(text)
    unit, newline = _unit(text), "\r\n" if "\r\n" in text else "\n"
    parent = node
    for depth, name in enumerate(edit.key):
        if not parent.is_object:
            raise CannotEdit(f"{'.'.join(edit.key[:depth]) or 'the document'} is no object", parent.start)
        member = parent.member(name)
        if member is None:
            if edit.remove:
                return text
            value = _nested(edit.key[depth + 1 :], edit.value)
            return _insert(text, parent, name, value, unit, newline)
        if depth == len(edit.key) - 1:
            if edit.remove:
                return _remove(text, parent, member)
            new = _dump(edit.value, _indent(text, member.start), unit, newline)
            return text[: member.value.start] + new + text[member.value.end :]
        parent = member.value
    raise CannotEdit("no key was named")


def _nested(names: tuple[str, ...], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def _dump(value: Any, indent: str, unit: str, newline: str) -> str:
    try:
        dumped = json.dumps(value, ensure_ascii=False, indent=unit or None, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CannotEdit(f"the new value is none that JSON has: {error}") from None
    return dumped.replace("\n", newline + indent)


def _indent(text: str, at: int) -> str:
    """The blanks at the beginning of the line."""
    line = text.rfind("\n", 0, at) + 1
    match = re.match(r"[ \t]*", text[line:at])
    return match[0] if match else ""


def _unit(text: str) -> str:
    """One step of indentation; "" for a document on one line."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else ("  " if "\n" in text.strip() or text.strip() == "{}" else "")


def _insert(text: str, parent: Node, name: str, value: Any, unit: str, newline: str) -> str:
    close = parent.end - 1
    outer = _indent(text, close)
    if not parent.members:
        inner = outer + unit
        new = json.dumps(name, ensure_ascii=False) + ": " + _dump(value, inner, unit, newline)
        kept = text[parent.start + 1 : close].rstrip()
        if not unit:
            return text[: parent.start + 1] + kept + new + text[close:]
        return text[: parent.start + 1] + kept + newline + inner + new + newline + outer + text[close:]
    last = parent.members[-1]
    inner = _indent(text, last.start)
    own_line = "\n" in text[last.value.end : close] and text[text.rfind("\n", 0, last.start) + 1 : last.start].isspace()
    own_line = own_line or (text.rfind("\n", 0, last.start) + 1 == last.start and last.start > 0)
    new = json.dumps(name, ensure_ascii=False) + ": " + _dump(value, inner if own_line else outer, unit, newline)
    comma_end = last_code(text, last.value.end, close)
    trailing = comma_end > last.value.end
    if not own_line:
        at = comma_end if trailing else last.value.end
        lead = " " if trailing else ", "
        return text[:at] + lead + new + ("," if trailing else "") + text[at:]
    body_end = len(text[:close].rstrip())  # after the comments that follow the last member
    head = text[: last.value.end] + ("" if trailing else ",") + text[last.value.end : body_end]
    return head + newline + inner + new + ("," if trailing else "") + text[body_end:]


def _remove(text: str, parent: Node, member: Member) -> str:
    """With its comma, and with its line where it has one of its own."""
    index = parent.members.index(member)
    after = skip(text, member.value.end)
    if text[after : after + 1] == ",":
        end = after + 1
        start = member.start
    else:
        end = member.value.end
        start = member.start
        if index:  # the comma before it goes
            before = parent.members[index - 1].value.end
            comma = skip(text, before)
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
    line = text.rfind("\n", 0, start) + 1
    rest = re.compile(r"[ \t]*(\r?\n)").match(text, end)
    if text[line:start].strip() == "" and rest:
        return text[:line] + text[rest.end() :]
    if text[line:start].strip() == "" and line:  # its line goes on with the closing bracket
        return text[:start] + text[end:].lstrip(" \t")
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[:start].rstrip(" \t") + (" " if index and text[end : end + 1] not in "}" else "") + text[end:]
