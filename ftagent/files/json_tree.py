"""Where the parts of a JSON, JSONC or JSON5 document stand in its text. Values stay text; only structure is read here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import json5

from ftagent.files.keys import CannotEdit

_BLANK = re.compile(r"[\s\ufeff]+|//[^\n\r\u2028\u2029]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[^\s,:\[\]{}/\"']+")
MAX_DEPTH = 200


@dataclass(slots=True)
class Member:
    key: str
    start: int  # of the key
    value: Node


@dataclass(slots=True)
class Node:
    """`start:end` is the value's own text. `members` of an object; what an array holds is not looked at further."""

    start: int
    end: int
    is_object: bool = False
    members: list[Member] = field(default_factory=list)

    def member(self, key: str) -> Member | None:
        """Raises CannotEdit when the key stands there twice: readers differ in which one counts."""
        found = [member for member in self.members if member.key == key]
        if len(found) > 1:
            raise CannotEdit(f"the key {key!r} stands there twice", found[1].start)
        return found[0] if found else None


def read_tree(text: str) -> Node:
    """The document's one value. Raises CannotEdit with an offset."""
    node = _value(text, skip(text, 0), 0)
    end = skip(text, node.end)
    if end < len(text):
        raise CannotEdit("something follows the document", end)
    return node


def skip(text: str, at: int) -> int:
    """Past blanks and comments."""
    while match := _BLANK.match(text, at):
        at = match.end()
    return at


def last_code(text: str, start: int, end: int) -> int:
    """The end of what is neither blank nor comment before `end`, counted from `start`, which stands between two tokens."""
    at = last = start
    while at < end:
        after = skip(text, at)
        if after >= end:
            break
        last = at = after + 1
    return last


def _value(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise CannotEdit("it is nested too deeply", at)
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    return Node(at, _scalar_end(text, at))


def _object(text: str, start: int, depth: int) -> Node:
    node = Node(start, start, is_object=True)
    at = skip(text, start + 1)
    while text[at : at + 1] != "}":
        key_end = _scalar_end(text, at)
        key = _decode_key(text[at:key_end], at)
        colon = skip(text, key_end)
        if text[colon : colon + 1] != ":":
            raise CannotEdit("a colon is missing", colon)
        value = _value(text, skip(text, colon + 1), depth + 1)
        node.members.append(Member(key, at, value))
        at = _next(text, value.end, "}")
    node.end = at + 1
    return node


def _array(text: str, start: int, depth: int) -> Node:
    at = skip(text, start + 1)
    while text[at : at + 1] != "]":
        at = _next(text, _value(text, at, depth + 1).end, "]")
    return Node(start, at + 1)


def _next(text: str, at: int, close: str) -> int:
    at = skip(text, at)
    if text[at : at + 1] == ",":
        return skip(text, at + 1)
    if text[at : at + 1] != close:
        raise CannotEdit(f"a comma or {close} is missing", at)
    return at


def _scalar_end(text: str, at: int) -> int:
    quote = text[at : at + 1]
    if quote and quote in "\"'":
        end = at + 1
        while end < len(text) and text[end] != quote:
            if text[end] == "\n":
                raise CannotEdit("a string is not closed", at)
            end += 2 + (text[end + 1 : end + 3] == "\r\n") if text[end] == "\\" else 1
        if end >= len(text):
            raise CannotEdit("a string is not closed", at)
        return end + 1
    match = _WORD.match(text, at)
    if match is None:
        raise CannotEdit("a value is missing", at)
    return match.end()


def _decode_key(token: str, at: int) -> str:
    if re.fullmatch(r"[A-Za-z_$][\w$]*", token):
        return token
    try:
        return str(next(iter(json5.loads("{" + token + ":0}"))))
    except (ValueError, StopIteration):
        raise CannotEdit("a key is not valid", at) from None
