"""What a request says about itself outside its conversation: ids, epoch, kind, cache marks, hints.

A selector is `header:NAME` or `body:PATH`, then any of `:json(KEY)`, `:before('X')`, `:after('X')`, `:presence`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import BadRequest
from engine.prompt.edits.edges import parse_edge
from engine.prompt.edits.turn import Hint

_SELECTOR = re.compile(
    r"(header|body):([A-Za-z0-9_.-]{1,100})((?::(?:json\(\w+\)|before\('[^']+'\)|after\('[^']+'\)|presence))*)"
)
_STEP = re.compile(r"(json|before|after)\('?([^')]+)'?\)|(presence)")
_BILLING = "x-anthropic-billing-header:"
MAX_HINTS = 256
HINT_OPS = frozenset(
    {"clear_result", "drop_block", "drop_thinking", "move_tail", "summarize", "truncate_turns", "replace_head"}
)


@dataclass(frozen=True, slots=True)
class Selector:
    """`presence` marks ids that exist only on some requests of a session, such as a subagent's."""

    place: str
    name: str
    steps: tuple[tuple[str, str], ...] = ()
    presence: bool = False

    def find(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        """The value, or "" where there is none."""
        value: Any = headers.get(self.name.lower()) if self.place == "header" else walk(body, self.name)
        for step, argument in self.steps:
            if not isinstance(value, str):
                return ""
            value = _step(step, argument, value)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        return str(value)


def parse_selector(text: str, place: str) -> Selector:
    """Raises BadRequest naming `place`."""
    found = _SELECTOR.fullmatch(text)
    if found is None:
        raise BadRequest(f"{place}: {text[:80]!r} is no selector.", "Write for instance header:x-session-id.")
    steps = [(s[1], s[2]) for s in _STEP.finditer(found[3]) if s[1]]
    return Selector(found[1], found[2], tuple(steps), found[3].endswith(":presence"))


def first_found(selectors: Sequence[Selector], headers: Mapping[str, str], body: Mapping[str, Any]) -> tuple[str, bool]:
    """The first value there is, and whether its selector only marks presence."""
    for selector in selectors:
        value = selector.find(headers, body)
        if value:
            return value, selector.presence
    return "", False


def walk(body: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or None."""
    value: Any = body
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def hints_of(body: Mapping[str, Any]) -> tuple[Hint, ...]:
    """The request's `edit_hints`. Raises BadRequest naming the entry at fault."""
    entries = body.get("edit_hints")
    if entries is None:
        return ()
    if not isinstance(entries, list) or len(entries) > MAX_HINTS:
        raise BadRequest(f"edit_hints: expected a list of at most {MAX_HINTS} objects.")
    return tuple(_hint(entry, f"edit_hints[{i}]") for i, entry in enumerate(entries))


def _hint(entry: Any, place: str) -> Hint:
    if not isinstance(entry, dict):
        raise BadRequest(f"{place}: expected an object.")
    unknown = sorted(set(entry) - {"at", "op", "after", "text"})
    if unknown:
        raise BadRequest(f"{place}.{unknown[0]}: unknown key; known here: after, at, op, text.")
    for key in ("at", "op", "after", "text"):
        value = entry.get(key, "" if key in ("after", "text") else None)
        if not isinstance(value, str) or len(value) > 400:
            raise BadRequest(f"{place}.{key}: expected a string of at most 400 characters.")
    if entry["op"] not in HINT_OPS:
        raise BadRequest(f"{place}.op: {entry['op'][:80]!r} is not one of {', '.join(sorted(HINT_OPS))}.")
    if entry.get("after", "") not in ("", "request", "user"):
        raise BadRequest(f"{place}.after: {entry['after'][:80]!r} is not one of request, user.")
    parse_edge(entry["at"], f"{place}.at")
    return Hint(entry["at"], entry["op"], entry.get("after", ""), entry.get("text", ""))


def marks_of(body: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """(message, block) of each block that carries `cache_control`, as the conversation counts them; (-1, 0): the tools.

    Follows what the dialects' parsers make of a body: empty texts vanish, results and texts of one user message part.
    """
    found: list[tuple[int, int]] = []
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(t, Mapping) and t.get("cache_control") for t in tools):
        found.append((-1, 0))
    message = block = -1
    previous = ""
    for role, count, marked, joins in _parts(body):
        if not count:
            continue
        if joins and role == previous:
            block += count
        else:
            message, block = message + 1, count - 1
        previous = role
        if marked:
            found.append((message, block))
    return tuple(found)


def _parts(body: Mapping[str, Any]) -> Iterator[tuple[str, int, bool, bool]]:
    """Each part of a Messages or chat body: role in the conversation, blocks it makes, marked, joins the part before."""
    system = body.get("system")
    if isinstance(system, str) and system:
        yield "head", 1, False, True
    elif isinstance(system, list):
        for i, part in enumerate(p for p in system if isinstance(p, Mapping)):
            text = part.get("text")
            kept = isinstance(text, str) and text and not (i == 0 and text.startswith(_BILLING))
            yield "head", int(bool(kept)), bool(part.get("cache_control")), True
    messages = body.get("messages")
    for entry in messages if isinstance(messages, list) else ():
        if isinstance(entry, Mapping):
            yield from _message_parts(entry)


def _message_parts(entry: Mapping[str, Any]) -> Iterator[tuple[str, int, bool, bool]]:
    role = "system" if entry.get("role") == "developer" else str(entry.get("role"))
    content = entry.get("content")
    if role in ("tool", "function"):
        yield "tool", 1, bool(entry.get("cache_control")), True
        return
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    joins = False
    if role == "assistant" and isinstance(thought, str):
        yield role, 1, False, joins
        joins = True
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for part in (p for p in parts if isinstance(p, Mapping)):
        kind = "tool" if part.get("type") == "tool_result" else role
        count = _blocks(part)
        yield kind, count, bool(part.get("cache_control")), joins
        joins = joins or count > 0
    calls = entry.get("tool_calls")
    for _ in calls if isinstance(calls, list) else ():
        yield role, 1, False, joins
        joins = True


def _blocks(part: Mapping[str, Any]) -> int:
    kind = part.get("type", "text")
    if kind in ("text", "input_text", "output_text"):
        return int(bool(part.get("text")))
    if kind == "thinking":
        return int(bool(part.get("thinking")))
    if kind == "search_result":
        content = part.get("content")
        return len(content) if isinstance(content, list) else 0
    return 1


def _step(step: str, argument: str, value: str) -> Any:
    if step == "json":
        try:
            data = json.loads(value)
        except (ValueError, RecursionError):
            return None
        return data.get(argument) if isinstance(data, dict) else None
    before, found, after = value.partition(argument)
    if step == "before":
        return before
    return after if found else ""
