"""The format of a script of assistant turns, and how mistakes in one are reported.

    {"turns": [{"blocks": [{"thinking": "…"} | {"text": "…"} | {"tool": "bash", "args": {"command": "…"}}]}],
     "subagents": [{"match": "first user text contains this", "turns": […]}],
     "side": "answer to side requests",
     "compaction": "summary answered to requests that compact the conversation, or a list of summaries, one for each in turn,
                    the last one for the rest; default: the answer to side requests"}

A script speaks of neutral tools; a mapping, part of the harness's declaration, says how the agent's own tools express
them: `{"read": [{"name": "Read", "args": {"file_path": "{path}"}}]}`, the first candidate that the request offers wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import BadRequest
from engine.prompt.conversation import Text, Thinking

_NEUTRAL_TOOLS = {
    "bash": ("command",),
    "read": ("path",),
    "edit": ("path", "old", "new"),
    "write": ("path", "content"),
    "task": ("prompt", "description"),
}


class ScriptError(BadRequest):
    """The script is malformed, has run out, or asks for a tool that the request does not offer."""

    code = "FT-E0422 script"


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    tool: str
    args: Mapping[str, Any]


ScriptedBlock = Text | Thinking | ScriptedCall


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way in which an agent can express a neutral tool. `args` is a template."""

    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """The turns of the main conversation (`match` empty) or of a subagent."""

    match: str
    turns: tuple[tuple[ScriptedBlock, ...], ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """A parsed script. Without `compaction` such requests are answered like any other side request."""

    main: Line
    subagents: tuple[Line, ...]
    side: str
    compaction: tuple[str, ...]


def parse_lines(data: Any) -> Lines:
    """Raises ScriptError naming the mistake's place."""
    data = _table(data, "script")
    _known(data, {"turns", "subagents", "side", "compaction"}, "script")
    subagents = []
    for i, entry in enumerate(_list(data.get("subagents", []), "script.subagents")):
        place = f"script.subagents[{i}]"
        entry = _table(entry, place)
        _known(entry, {"match", "turns"}, place)
        match = _string(entry.get("match"), f"{place}.match")
        if not match:
            raise ScriptError(f"{place}.match is empty.", "Give a piece of the subagent's first user text.")
        subagents.append(Line(match, _turns(entry.get("turns"), f"{place}.turns")))
    side = _string(data.get("side", ""), "script.side")
    given = data.get("compaction", [])
    if isinstance(given, list):
        compaction = tuple(_string(text, f"script.compaction[{i}]") for i, text in enumerate(given))
    else:
        compaction = (_string(given, "script.compaction"),)
    return Lines(Line("", _turns(data.get("turns"), "script.turns")), tuple(subagents), side, compaction)


def parse_mapping(data: Any) -> dict[str, tuple[Candidate, ...]]:
    """A declaration's `[tools]`. Raises ScriptError naming the mistake's place."""
    mapping: dict[str, tuple[Candidate, ...]] = {}
    for tool, candidates in _table(data, "tools").items():
        if tool not in _NEUTRAL_TOOLS:
            raise ScriptError(f"tools.{tool} maps an unknown tool.", f"Neutral tools are {', '.join(_NEUTRAL_TOOLS)}.")
        found = []
        for i, entry in enumerate(_list(candidates, f"tools.{tool}")):
            place = f"tools.{tool}[{i}]"
            entry = _table(entry, place)
            args = _table(entry.get("args", {}), f"{place}.args")
            found.append(Candidate(_string(entry.get("name"), f"{place}.name"), args))
        mapping[tool] = tuple(found)
    return mapping


def _turns(data: Any, place: str) -> tuple[tuple[ScriptedBlock, ...], ...]:
    turns = []
    for i, entry in enumerate(_list(data, place)):
        turn = _table(entry, f"{place}[{i}]")
        _known(turn, {"blocks"}, f"{place}[{i}]")
        blocks = _list(turn.get("blocks"), f"{place}[{i}].blocks")
        if not blocks:
            raise ScriptError(f"{place}[{i}].blocks is empty.", "A turn needs a text or a tool call.")
        turns.append(tuple(_scripted(block, f"{place}[{i}].blocks[{j}]") for j, block in enumerate(blocks)))
    return tuple(turns)


def _scripted(data: Any, place: str) -> ScriptedBlock:
    block = _table(data, place)
    kinds = [kind for kind in ("thinking", "text", "tool") if kind in block]
    if len(kinds) != 1:
        raise ScriptError(f"{place} must have exactly one of thinking, text and tool.", "Split it into several blocks.")
    _known(block, {"tool", "args"} if kinds == ["tool"] else set(kinds), place)
    value = _string(block[kinds[0]], f"{place}.{kinds[0]}")
    if kinds[0] != "tool":
        return Thinking(value) if kinds[0] == "thinking" else Text(value)
    if value not in _NEUTRAL_TOOLS:
        raise ScriptError(f"{place}.tool is {value!r}.", f"Neutral tools are {', '.join(_NEUTRAL_TOOLS)}.")
    args = _table(block.get("args", {}), f"{place}.args")
    _known(args, set(_NEUTRAL_TOOLS[value]), f"{place}.args")
    return ScriptedCall(value, args)


def _table(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ScriptError(f"{place} must be a table, not {_type(value)}.", "See the script format in the docs.")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ScriptError(f"{place} must be a list, not {_type(value)}.", "See the script format in the docs.")
    return value


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise ScriptError(f"{place} must be a string, not {_type(value)}.", "See the script format in the docs.")
    return value


def _known(table: Mapping[str, Any], names: set[str], place: str) -> None:
    unknown = sorted(set(table) - names)
    if unknown:
        raise ScriptError(f"{place} has an unknown key {unknown[0]!r}.", f"Known here: {', '.join(sorted(names))}.")


def _type(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
