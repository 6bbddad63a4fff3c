"""Calls written as elements: a tag with the tool's name, then one element for each argument. Strings stand between the tags as they
are, everything else as JSON.

A value's type is what its tag says where the syntax has that, else what the tool declares; without a declaration only objects and
lists are taken for JSON. A parameter that comes twice, a tag that is damaged, a value that is
not of its tag's type: no call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Lark, Pieces
from engine.prompt.dialects.json_scan import strict_object, strict_value
from engine.prompt.dialects.reading import Field, Head, Mark, Part, Wait, is_name, walk
from engine.prompt.dialects.tagged import Calls, Scan, Tagged

_PYTHON = {"True": True, "False": False, "None": None}  # as templates write them
_SLOT = re.compile(r"(\{[a-z]+\}|\s+)")
_FIELDS = {
    "{name}": Field("name"),
    "{key}": Field("key", r'[^\n<>"]'),
    "{type}": Field("type"),
    "{index}": Field("index"),
}


class Elements(Tagged):
    """`function` opens a call behind its marker and `end` closes it; `parameter` opens an argument and `value_end` closes it.
    `{name}`, `{key}`, `{type}` (see `type_of`) and `{index}` (from 1) stand for what they say. `stop` is the text that ends
    a call when it is read. With `lines` a value has lines of its own. `empty` stands in the place of no arguments."""

    function = ""
    end = ""
    parameter = ""
    value_end = ""
    empty = ""
    stop = ""
    lines = False
    escapes: ClassVar[Mapping[str, str]] = {}  # in names and keys

    def scan(self, head: Head) -> Scan:
        return ElementScan(self, head.body, "name" in head.fields)

    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        assert isinstance(scan, ElementScan)
        name = scan.name or head.fields.get("name", "")
        if not scan.whole or not is_name(name):
            return None
        schemas = _properties(tools[name].parameters if name in tools else {})
        arguments: dict[str, Any] = {}
        for key, kind, value in scan.values:
            for plain, written in self.escapes.items():
                key = key.replace(written, plain)
            read = self.value(value, kind, schemas.get(key))
            if key in arguments or _swallowed(value, scan.first, scan.close) or read is _NOTHING:
                return None
            arguments[key] = read
        return [(name, arguments)]

    def value(self, text: str, kind: str, schema: Any) -> Any:
        """The value that `text` stands for; _NOTHING when it cannot be what its tag says."""
        if not kind:
            return typed(text, schema)
        if kind == self.type_of(""):
            return text
        value = strict_value(text, unique=True)
        return _NOTHING if value is None and text.strip() != "null" else value

    def type_of(self, value: Any) -> str:
        """What `{type}` is for a value."""
        return ""

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        values = strict_object(arguments)
        made = self._filled(self.function, name=name, index=str(index + 1))
        if values is None:
            return [*made, (arguments, False), ("\n" + self.end, True)]
        if not values:
            made.append((self.empty, True))
        for key, value in values.items():
            for plain, written in self.escapes.items():
                key = key.replace(plain, written)
            made += self._filled(self.parameter, key=key, type=self.type_of(value))
            made += [(spelled(value), False), (self.value_end, True)]
        return [*made, (self.end, True)]

    def _filled(self, form: str, **slots: str) -> Pieces:
        parts = re.split(r"(\{[a-z]+\})", form)
        return [(slots[part[1:-1]], False) if part.startswith("{") else (part, True) for part in parts if part]

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        required = parameters.get("required") or []
        made = [self._lark(self.function, lark, name=name, index="1")]
        for key, schema in _properties(parameters).items():
            schema = schema if isinstance(schema, dict) else {}
            values, types = schema.get("enum"), kinds(schema)
            words = isinstance(values, list) and values and all(isinstance(value, str) for value in values)
            raw = words or not types or "string" in types
            sample = "" if raw else _SAMPLES.get(next(iter(sorted(types))), "")
            for plain, written in self.escapes.items():
                key = key.replace(plain, written)
            opening = self._lark(self.parameter, lark, key=key, type=self.type_of(sample))
            if words and isinstance(values, list):
                value = f"({' | '.join(lark.text(value) for value in values)}) {lark.own(self.value_end)}"
            else:
                value = lark.until(self.value_end) if raw else f"{lark.json(schema)} {lark.own(self.value_end)}"
            part = f"{opening} {value}"
            made.append(part if key in required else f"({part})?")
        return " ".join([*made, lark.own(self.end)])

    def _lark(self, form: str, lark: Lark, **slots: str) -> str:
        return " ".join(lark.own(text) if own else lark.text(text) for text, own in self._filled(form, **slots) if text)


class ElementScan:
    """Walks one call whose body begins at `position`. See tagged.Scan."""

    def __init__(self, syntax: Elements, start: int, named: bool) -> None:
        self._syntax = syntax
        self._parameter = tag_parts(syntax.parameter)
        self.first = syntax.parameter[: syntax.parameter.index("{")]
        self._stop = syntax.stop.removesuffix(">")
        self.close = syntax.value_end.strip()
        self.position = start
        self.ended = False
        self.whole = False  # a call, from its first tag to its last
        self.name = ""
        self.values: list[tuple[str, str, str]] = []
        self._opened = named  # the tag with the name is read
        self._key: tuple[str, str] | None = None  # and type, of the value that is being read
        self._searched = 0

    def advance(self, text: str) -> None:
        while not self.ended and self._step(text):
            pass

    def _step(self, text: str) -> bool:
        """Read one tag or value; False when more text is needed."""
        if self.whole:
            if self.position < len(text):
                self.position += text.startswith(">", self.position)
                self.ended = True
            return False
        if self._key is not None:
            return self._value(text)
        if not self._opened:
            head = self._tag(tag_parts(self._syntax.function), text)
            self._opened = head is not None
            self.name = head.fields["name"] if head else ""
            return self._opened
        while self.position < len(text) and text[self.position].isspace():
            self.position += 1
        if text.startswith(self._stop, self.position):
            self.position += len(self._stop)
            self.whole = True
            return True
        if self._stop.startswith(text[self.position :]):
            return False
        head = self._tag(self._parameter, text)
        if head is not None:
            self._key = head.fields["key"], head.fields.get("type", "")
            self._searched = self.position
        return head is not None

    def _tag(self, parts: Sequence[Part], text: str) -> Head | None:
        """The tag at the current position; None when it is cut, or none, which also ends the walk."""
        head = walk(parts, text, self.position, final=False)
        if head is None:
            self.ended = True
        if head is None or isinstance(head, Wait):
            return None
        self.position = head.end
        return head

    def _value(self, text: str) -> bool:
        """A value ends at the closing tag that another tag of the call follows, for it may quote one."""
        while (close := text.find(self.close, self._searched)) >= 0:
            behind = close + len(self.close)
            while behind < len(text) and text[behind].isspace():
                behind += 1
            follows = (self.first, self._stop)
            if text.startswith(follows, behind):
                value = text[self.position : close]
                if self._syntax.lines:
                    value = value.removeprefix("\n").removesuffix("\n")
                key, kind = self._key or ("", "")
                self.values.append((key, kind, value))
                self._key = None
                self.position = close + len(self.close)
                return True
            if any(tag.startswith(text[behind:]) for tag in follows):
                self._searched = close
                return False
            self._searched = close + 1
        self._searched = max(self._searched, len(text) - len(self.close))
        return False


_NOTHING = object()
_SAMPLES: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "null": None, "object": {}, "array": []}


def tag_parts(form: str) -> list[Part]:
    """How a tag of this form is read: whitespace at its ends does not matter."""
    pieces = [piece for piece in _SLOT.split(form.strip("\n")) if piece]
    parts: list[Part] = []
    for piece in pieces:
        field = _FIELDS.get(piece)
        if field is not None:
            parts.append(field)
        elif piece.strip():
            parts.append(piece)
        else:
            parts.append(Mark.SPACE if "\n" in piece else piece)
    return parts


def _swallowed(value: str, first: str, close: str) -> bool:
    """Whether a value that quotes tags looks as if a damaged one had made another parameter a part of it."""
    if first not in value:
        return close in value and re.search(rf"{re.escape(close)}\s*[^\n]*>", value) is not None
    depth = 0
    for tag in re.findall(f"{re.escape(first)}|{re.escape(close)}", value):
        depth += 1 if tag == first else -1
        if depth < 0:
            return True
    return depth > 0


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def spelled(value: Any) -> str:
    """A value as it stands between its tags."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def typed(text: str, schema: Any) -> Any:
    """The value that `text` stands for in a parameter with this schema."""
    named = kinds(schema)
    if named == {"string"}:
        return text
    if named and text.strip() in _PYTHON:
        return _PYTHON[text.strip()]
    value = strict_value(text)
    if value is None and text.strip() != "null":
        return text
    if not named or "string" in named:
        return value if isinstance(value, dict | list) and named <= {"string", "object", "array"} else text
    return value


def kinds(schema: Any) -> set[str]:
    """The JSON types that a schema names; empty when it leaves them open."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {kind for kind in named if isinstance(kind, str)}
    options = schema.get("anyOf") or schema.get("oneOf") or []
    return set().union(*(kinds(option) for option in options)) if isinstance(options, list) else set()
