"""Edges: the places of a prompt at which a rule may make the next one differ, as written in a declaration.

    head.start|end  prompt.end  last.start  summary.start  first(N).end  tool(NAME, ...).start
    system.block[K].start|end  system.re('PATTERN').start
    message[K].start|end  message[K].block[J].start|end  input[K].start|end
    user[K].start|end  user[K].block[J].start|end  turn[K].query.start|end
    message[K].re('PATTERN').start|end  user[K].re('PATTERN').start|end
    tail('PATTERN').start  oldest(KIND, FILTER ...).start  nth_newest(KIND, N).start  result(CALL_ID).start

K and J count from 0, or from the end with -1. `message` and `first` count what follows the leading system messages, `input`
the items of a Responses request, `user` and `turn` the user's queries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import BadRequest
from engine.prompt.edits.patterns import Pattern, compile_pattern

BLOCK_KINDS = ("tool_result", "thinking", "image", "document", "media", "text", "tool_call")
_NUMBER = r"(-?[0-9]{1,4})"
_FIXED = re.compile(r"(head|prompt)\.(end)|(head|last|summary)\.(start)")
_FIRST = re.compile(r"first\(([0-9]{1,4})\)\.end")
_ITEM = re.compile(rf"(message|input|user|system)(?:\[{_NUMBER}\])?(?:\.block\[{_NUMBER}\])?\.(start|end)")
_QUERY = re.compile(rf"turn\[{_NUMBER}\]\.query\.(start|end)")
_PATTERN = re.compile(r"(tail|system\.re)\((?:'([^']+)'|([^'()]+))\)\.start")
_WITHIN = re.compile(rf"(message|user)\[{_NUMBER}\]\.re\('([^']+)'\)\.(start|end)")
_TOOL = re.compile(r"tool\(\s*([A-Za-z0-9_.:-]{1,64}(?:\s*,\s*[A-Za-z0-9_.:-]{1,64})*)\s*\)\.start")
_OLDEST = re.compile(r"oldest\(\s*([a-z_]+)\s*((?:,[^,()]+)*)\)\.start")
_NEWEST = re.compile(r"nth_newest\(\s*([a-z_]+)\s*,\s*([0-9]{1,4}|[a-z][a-z0-9_]*)\s*\)\.start")
_RESULT = re.compile(r"result\(([A-Za-z0-9_.:-]{1,128})\)\.start")
_BLOCK = re.compile(rf"system(?:\.block\[{_NUMBER}\])?|(message|user)\[{_NUMBER}\](?:\.block\[{_NUMBER}\])?")


@dataclass(frozen=True, slots=True)
class Edge:
    """One parsed edge. `kind` is its first word; which other fields count depends on it."""

    text: str
    kind: str  # head prompt last summary first system message input user turn tail tool system_re oldest nth_newest result
    side: str = "start"  # start | end
    index: int = 0
    block: int | None = None
    pattern: Pattern | None = None
    what: str = ""  # oldest, nth_newest: the kind of block; result: the call's id
    param: str = ""  # nth_newest: the rule's parameter that holds the number
    eligible: bool = False  # oldest: only what the rule's `select` chooses
    not_cleared: bool = False
    except_tools: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()  # tool: those that other requests lack


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Which blocks a `volatile` entry looks at. `kind` is system, message or user; None means all of them."""

    kind: str
    index: int = 0
    block: int | None = None


def parse_edge(text: str, place: str) -> Edge:
    """Raises BadRequest naming `place`."""
    if found := _FIXED.fullmatch(text):
        return Edge(text, found[1] or found[3], found[2] or found[4])
    if found := _FIRST.fullmatch(text):
        return Edge(text, "first", "end", int(found[1]))
    if found := _QUERY.fullmatch(text):
        return Edge(text, "turn", found[2], int(found[1]))
    if (found := _ITEM.fullmatch(text)) and _sound(found):
        return Edge(text, found[1], found[4], int(found[2] or 0), int(found[3]) if found[3] else None)
    if found := _PATTERN.fullmatch(text):
        kind = "tail" if found[1] == "tail" else "system_re"
        return Edge(text, kind, pattern=compile_pattern(found[2] or found[3], place))
    if found := _WITHIN.fullmatch(text):
        return Edge(text, found[1], found[4], int(found[2]), pattern=compile_pattern(found[3], place))
    if found := _TOOL.fullmatch(text):
        return Edge(text, "tool", tools=tuple(name.strip() for name in found[1].split(",")))
    if found := _RESULT.fullmatch(text):
        return Edge(text, "result", what=found[1])
    if (found := _NEWEST.fullmatch(text)) and found[1] in BLOCK_KINDS:
        count = found[2]
        number, param = (int(count), "") if count.isdigit() else (0, count)
        return Edge(text, "nth_newest", index=number, what=found[1], param=param)
    if (found := _OLDEST.fullmatch(text)) and found[1] in BLOCK_KINDS:
        return _oldest(text, found[1], found[2], place)
    raise BadRequest(
        f"{place}: {text[:80]!r} is no edge.", "The edges are listed in docs/edit-boundary-declarations.md."
    )


def parse_block_ref(text: str, place: str) -> BlockRef:
    """Raises BadRequest naming `place`."""
    found = _BLOCK.fullmatch(text)
    if found is None:
        raise BadRequest(f"{place}: {text[:80]!r} names no block.", "Write for instance system.block[0].")
    if found[2] is None:
        return BlockRef("system", block=int(found[1]) if found[1] else None)
    return BlockRef(found[2], int(found[3]), int(found[4]) if found[4] else None)


def _sound(found: re.Match[str]) -> bool:
    kind, index, block = found[1], found[2], found[3]
    if kind == "system":
        return index is None and block is not None
    return index is not None and not (kind == "input" and block is not None)


def _oldest(text: str, what: str, filters: str, place: str) -> Edge:
    eligible = not_cleared = False
    excepted: list[str] = []
    for word in (part.strip() for part in filters.split(",") if part.strip()):
        if word == "eligible":
            eligible = True
        elif word == "not_cleared":
            not_cleared = True
        elif word.startswith("except "):
            excepted += word.split()[1:]
        else:
            raise BadRequest(f"{place}: {word!r} is no filter of {text[:80]!r}.", "eligible, not_cleared, except NAME.")
    return Edge(text, "oldest", what=what, eligible=eligible, not_cleared=not_cleared, except_tools=tuple(excepted))
