"""`<function=…>` and `<parameter=…>` in `<tool_call>` tags, reasoning in `<think>` tags: Qwen3-Coder and everything since Qwen3.5.

Strings stand between the tags as they are, everything else as JSON. A value's type is what the tool declares; without a
declaration only objects and lists are taken for JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from engine.prompt.conversation import Tool
from engine.prompt.dialects.hermes import CALL_HEAD, Hermes, HermesParser, Scan, argument_text
from engine.prompt.dialects.json_scan import strict_object
from engine.prompt.output import OutputParser

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_PYTHON = {"True": True, "False": False, "None": None}  # as templates write them
_TEXT = r"/([^<]|<[^\/]|<\/[^p])*\n<\/parameter>\n/"  # anything that cannot close a parameter, and what does


class QwenXml(Hermes):
    name = "qwen_xml"

    def parser(self, tools: Sequence[Tool], *, thinking_open: bool, calls: bool) -> OutputParser:
        return QwenXmlParser(tools, thinking_open=thinking_open, calls=calls)

    def call_body(self, name: str, arguments: str) -> str:
        values = strict_object(arguments)
        if values is None:
            return f"\n{_FUNCTION}{name}>\n{arguments}\n{_FUNCTION_END}\n"
        parts = "".join(f"{_PARAMETER}{key}>\n{_spelled(value)}\n{_PARAMETER_END}\n" for key, value in values.items())
        return f"\n{_FUNCTION}{name}>\n{parts}{_FUNCTION_END}\n"

    def call_grammar(self, name: str, parameters: dict[str, Any]) -> str:
        required = parameters.get("required") or []
        parts = [json.dumps(f"\n{_FUNCTION}{name}>\n")]
        for key, schema in (parameters.get("properties") or {}).items():
            value = _value_grammar(schema if isinstance(schema, dict) else {})
            part = f"{json.dumps(f'{_PARAMETER}{key}>{chr(10)}')} {value}"
            parts.append(part if key in required else f"({part})?")
        return " ".join([*parts, json.dumps(f"{_FUNCTION_END}\n")])


class CallScan:
    """Walks one `<function=…>` element that starts at `start`; see JsonScan for the members that parsers share."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.position = start
        self.ended = False
        self.whole = False  # a call, from its first tag to its last
        self.name = ""
        self.values: list[tuple[str, str]] = []
        self._key: str | None = None  # of the value that is being read
        self._searched = 0

    def advance(self, text: str) -> None:
        while not self.ended and self._step(text):
            pass

    def _step(self, text: str) -> bool:
        """Read one tag or value; False when more text is needed."""
        if self._key is not None:
            return self._value(text)
        if not self.name:
            opened = self._tag(text, _FUNCTION)
            self.name = opened or ""
            return bool(opened)
        while self.position < len(text) and text[self.position].isspace():
            self.position += 1
        if text.startswith(_FUNCTION_END, self.position):
            self.position += len(_FUNCTION_END)
            self.whole = self.ended = True
        elif text.startswith(_PARAMETER, self.position):
            self._key = self._tag(text, _PARAMETER) or None
            self._searched = self.position
            return self._key is not None
        else:
            self.ended = not any(tag.startswith(text[self.position :]) for tag in (_FUNCTION_END, _PARAMETER))
        return False

    def _tag(self, text: str, opening: str) -> str | None:
        """The name in a tag at the current position; None when it is cut or none, which also ends the walk."""
        end = text.find(">", self.position)
        name = text[self.position + len(opening) : len(text) if end < 0 else end]
        if end < 0:
            self.ended = len(name) > 128 or "\n" in name
            return None
        if not _NAME.fullmatch(name.strip()):
            self.ended = True
            return None
        self.position = end + 1
        return name.strip()

    def _value(self, text: str) -> bool:
        """A value ends at the closing tag that another tag of the call follows, for it may quote one."""
        while (close := text.find(_PARAMETER_END, self._searched)) >= 0:
            rest = text[close + len(_PARAMETER_END) :].lstrip()
            if rest.startswith((_PARAMETER, _FUNCTION_END)):
                value = text[self.position : close]
                self.values.append((self._key or "", value.removeprefix("\n").removesuffix("\n")))
                self._key = None
                self.position = close + len(_PARAMETER_END)
                return True
            if any(tag.startswith(rest) for tag in (_PARAMETER, _FUNCTION_END)):
                self._searched = close
                return False
            self._searched = close + 1
        self._searched = max(self._searched, len(text) - len(_PARAMETER_END))
        return False


class QwenXmlParser(HermesParser):
    def _scanner(self, start: int) -> Scan:
        return CallScan(start)

    def _start(self, final: bool) -> int:
        if self._prose.quoted:
            return -2
        head = CALL_HEAD.match(self._buffer)
        assert head is not None
        found = self._buffer[head.end() : head.end() + len(_FUNCTION)]
        if found == _FUNCTION:
            return head.end()
        return -1 if _FUNCTION.startswith(found) and not final else -2

    def _parse(self, scan: Scan) -> tuple[str, str] | None:
        assert isinstance(scan, CallScan)
        if not scan.whole:
            return None
        tool = self._tools.get(scan.name)
        declared = tool.parameters.get("properties") if tool else None
        schemas = declared if isinstance(declared, dict) else {}
        return scan.name, argument_text({key: _typed(value, schemas.get(key)) for key, value in scan.values})


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _typed(text: str, schema: Any) -> Any:
    """The value that `text` stands for in a parameter with this schema."""
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return text
    if kinds and text in _PYTHON:
        return _PYTHON[text]
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    if not kinds or "string" in kinds:
        return value if isinstance(value, dict | list) and kinds <= {"string", "object", "array"} else text
    return value


def _kinds(schema: Any) -> set[str]:
    """The JSON types that a schema names; empty when it leaves them open."""
    if not isinstance(schema, dict):
        return set()
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {kind for kind in named if isinstance(kind, str)}
    options = schema.get("anyOf") or schema.get("oneOf") or []
    return set().union(*(_kinds(option) for option in options)) if isinstance(options, list) else set()


def _value_grammar(schema: dict[str, Any]) -> str:
    """A Lark expression for a value and the tag that closes it."""
    close = json.dumps(f"\n{_PARAMETER_END}\n")
    values = schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return "(" + " | ".join(json.dumps(value) for value in values) + f") {close}"
    kinds = _kinds(schema)
    return _TEXT if not kinds or "string" in kinds else f"%json {json.dumps(schema)} {close}"


DIALECT = QwenXml()
