"""Finding client text in a template's output: render once with a unique sentinel in the place of every leaf, then lay the
sentinels over the plain output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import definition, visible_name
from engine.prompt.normalise import Leaf, Part, Turn

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_SENTINEL = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_BREAK = "\u200b"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the output. `leaf` is None for the template's own text; `turn` counts turns, -1 for the tools."""

    text: str
    leaf: Leaf | None = None
    turn: int = -1


@dataclass(slots=True)
class Marks:
    """The leaves in the order their sentinels were made."""

    leaves: list[tuple[Leaf, int]] = field(default_factory=list)

    def mark(self, leaf: Leaf, turn: int) -> str:
        if not leaf.text:
            return ""  # templates test for emptiness
        self.leaves.append((leaf, turn))
        return f"{_OPEN}{len(self.leaves) - 1}{_CLOSE}"


Spell = Callable[[Leaf, int], str]


def plain(leaf: Leaf, turn: int) -> str:
    return leaf.text


def neutral(has_control: Callable[[str], bool], pattern_split: Callable[[str], list[tuple[str, bool]]]) -> Spell:
    """Spells a leaf with its control-token syntax broken, for output whose leaves cannot be found again."""

    def spell(leaf: Leaf, turn: int) -> str:
        if not has_control(leaf.text):
            return leaf.text
        return "".join(t[:1] + _BREAK + t[1:] if control else t for t, control in pattern_split(leaf.text))

    return spell


def messages_of(
    turns: list[Turn],
    spell: Spell,
    guarded: Callable[[str], bool],
    call_id: Callable[[str, str, int], str],
    arguments_as_text: bool = False,
) -> list[dict[str, Any]]:
    """The template's message list. `guarded` texts inside arguments become leaves, for they hold control syntax. `call_id`
    makes the template's id of an id, a name and the number of the call in the conversation."""
    messages = []
    known: dict[str, tuple[str, int]] = {}
    for index, turn in enumerate(turns):
        message: dict[str, Any] = {"role": turn.role, "content": _join(turn.content, spell, index)}
        if turn.reasoning:
            message["reasoning_content"] = message["thinking"] = _join(turn.reasoning, spell, index)
        if turn.calls:
            message["tool_calls"] = []
        for call in turn.calls:
            known.setdefault(call.id, (call.name.text, len(known)))
            name = spell(call.name, index)
            arguments = _values(call.arguments, call.name, index, spell, guarded)
            if arguments_as_text:
                text = json.dumps(call.arguments, ensure_ascii=False)
                arguments = spell(replace(call.name, text=text), index)
            function = {"name": name, "arguments": arguments}
            made = call_id(call.id, name, known[call.id][1])
            message["tool_calls"].append({"id": made, "type": "function", "function": function})
        if turn.role == "tool":
            message["tool_call_id"] = call_id(turn.call_id, *known.get(turn.call_id, (turn.name, 0)))
            message["name"] = turn.name
        messages.append(message)
    return messages


def tools_of(tools: list[Tool], spell: Spell, guarded: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The template's tool list."""
    result = []
    for tool in tools:
        name = Leaf(visible_name(tool), -1, -1, "tools")
        data = _values(definition(tool), name, -1, spell, guarded)
        data["function"]["name"] = spell(name, -1)
        result.append(data)
    return result


def _join(parts: list[Part], spell: Spell, turn: int) -> str:
    return "".join(part if isinstance(part, str) else spell(part, turn) for part in parts)


def _values(value: Any, owner: Leaf, turn: int, spell: Spell, guarded: Callable[[str], bool]) -> Any:
    if isinstance(value, str):
        if not guarded(value) and _OPEN not in value:
            return value
        return spell(Leaf(value, owner.message, owner.block, owner.kind), turn)
    if isinstance(value, dict):
        return {
            _values(k, owner, turn, spell, guarded): _values(v, owner, turn, spell, guarded) for k, v in value.items()
        }
    if isinstance(value, list):
        return [_values(v, owner, turn, spell, guarded) for v in value]
    return value


def align(output: str, marked: str, marks: Marks) -> list[Segment] | None:
    """Cut `output` into template text and leaves; None when the template did more to a leaf than trim or quote it."""
    parts = _SENTINEL.split(marked)
    if not output.startswith(parts[0]):
        return None
    segments = [Segment(parts[0])]
    position = len(parts[0])
    for number, after in zip(parts[1::2], parts[2::2], strict=True):
        leaf, turn = marks.leaves[int(number)]
        for text in _variants(leaf.text):
            if output.startswith(text, position) and output.startswith(after, position + len(text)):
                break
        else:
            return None
        segments += [Segment(text, leaf, turn), Segment(after)]
        position += len(text) + len(after)
    return segments if position == len(output) else None


def leaf_of(marked: str, marks: Marks) -> tuple[Leaf, int] | None:
    """The first leaf in a piece of marked output."""
    match = _SENTINEL.search(marked)
    return marks.leaves[int(match.group(1))] if match else None


def behind_leaves(marked: str) -> str:
    """The template's text behind the last leaf in marked output."""
    return _SENTINEL.split(marked)[-1]


def _variants(text: str) -> Iterator[str]:
    yield text
    yield text.strip()
    yield text.rstrip()
    yield text.lstrip()
    yield text.strip("\n")
    yield text.rstrip("\n")
    yield text.lstrip("\n")
    yield json.dumps(text, ensure_ascii=False)[1:-1]
