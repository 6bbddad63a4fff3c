"""The language of `when`: comparisons of integer sums over a few names, or one trigger. Parsed by hand, never evaluated
as code.

    when    := "always" | trigger | cmp {("and" | "or") cmp}          "and" binds tighter
    cmp     := sum ("<" | "<=" | ">" | ">=" | "==") sum
    sum     := product {("+" | "-") product};  product := atom {("*" | "/") atom}
    atom    := integer | name | function "(" sum {"," sum} ")" | "(" sum ")"
    trigger := "new_query" | "day_changed" | "idle_over(" seconds ")" | "body_edit(" name ")"
             | "matches(" edge ", '" pattern "')"

Division is floor division; what divides by zero has no value, and a comparison without a value does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import BadRequest
from engine.prompt.edits.patterns import Pattern, compile_pattern

NAMES = frozenset({"window", "max_output", "prompt", "completion", "total", "newest", "protected", "prunable"})
_FUNCTIONS: dict[str, tuple[int, int]] = {  # name -> fewest and most arguments
    "floor": (1, 1),
    "chars4": (1, 1),
    "min": (1, 8),
    "max": (1, 8),
    "clamp": (3, 3),
}
_TOKEN = re.compile(r"\s*([0-9]{1,12}(?![0-9A-Za-z_])|[a-z_][a-z0-9_]*|<=|>=|==|[-+*/(),<>])")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}
_MAX_DEPTH = 32
_IDLE = re.compile(r"idle_over\(\s*([0-9]{1,9})\s*\)")
_BODY = re.compile(r"body_edit\(\s*([A-Za-z0-9_.-]{1,64})\s*\)")
_MATCHES = re.compile(r"matches\(\s*(.+?)\s*,\s*'([^']*)'\s*\)")

Node = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a condition may ask. `values` are the names of the grammar; a name without a value makes its comparison false."""

    values: Mapping[str, int] = field(default_factory=dict)
    new_query: bool = False
    day_changed: bool = False
    idle_s: float = 0.0
    body_edits: frozenset[str] = frozenset()
    text_at: Callable[[str], str | None] = lambda edge: None  # the text of the block an edge belongs to


@dataclass(frozen=True, slots=True)
class Sum:
    """A parsed integer expression."""

    _node: Node

    def value(self, values: Mapping[str, int]) -> int | None:
        """None where a name is unknown or something is divided by zero."""
        return _value(self._node, values)


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed `when`. `edge` and `pattern` belong to the trigger `matches`; the other fields to the other triggers."""

    trigger: str = ""  # always new_query day_changed idle_over body_edit matches; "" for comparisons
    seconds: int = 0
    name: str = ""
    edge: str = ""
    pattern: Pattern | None = None
    _any_of: tuple[tuple[Node, ...], ...] = ()

    def holds(self, facts: Facts) -> bool:
        if self.trigger == "always":
            return True
        if self.trigger == "new_query":
            return facts.new_query
        if self.trigger == "day_changed":
            return facts.day_changed
        if self.trigger == "idle_over":
            return facts.idle_s > self.seconds
        if self.trigger == "body_edit":
            return self.name in facts.body_edits
        if self.trigger == "matches":
            text = facts.text_at(self.edge)
            return text is not None and self.pattern is not None and self.pattern.matches(text)
        return any(all(_compares(cmp, facts.values) for cmp in conjunction) for conjunction in self._any_of)


def parse_when(text: str, place: str) -> Condition:
    """Raises BadRequest naming `place` and what is wrong. The edge of `matches` is checked by its reader."""
    text = text.strip()
    if text in ("always", "new_query", "day_changed"):
        return Condition(text)
    if found := _IDLE.fullmatch(text):
        return Condition("idle_over", seconds=int(found[1]))
    if found := _BODY.fullmatch(text):
        return Condition("body_edit", name=found[1])
    if found := _MATCHES.fullmatch(text):
        return Condition("matches", edge=found[1], pattern=compile_pattern(found[2], place))
    parser = _Parser(text, place)
    any_of = [[parser.compare()]]
    while parser.peek in ("and", "or"):
        if parser.take() == "or":
            any_of.append([])
        any_of[-1].append(parser.compare())
    parser.end()
    return Condition(_any_of=tuple(tuple(group) for group in any_of))


def parse_sum(text: str, place: str) -> Sum:
    """Raises BadRequest naming `place` and what is wrong."""
    parser = _Parser(text, place)
    node = parser.sum()
    parser.end()
    return Sum(node)


class _Parser:
    def __init__(self, text: str, place: str) -> None:
        self._place = place
        self._text = text
        self._tokens: list[str] = []
        self._depth = 0
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._error(f"{text[position:].strip()[:20]!r} is not understood")
            self._tokens.append(found[1])
            position = found.end()
        self._tokens.reverse()

    @property
    def peek(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def take(self) -> str:
        return self._tokens.pop() if self._tokens else ""

    def end(self) -> None:
        if self._tokens:
            raise self._error(f"{self.peek!r} is too much")

    def compare(self) -> Node:
        left = self.sum()
        operator = self.take()
        if operator not in _COMPARE:
            raise self._error(f"a comparison is needed, not {operator or 'the end'!r}")
        return operator, left, self.sum()

    def sum(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("it is nested too deeply")
        node = self._product()
        while self.peek in ("+", "-"):
            node = (self.take(), node, self._product())
        self._depth -= 1
        return node

    def _product(self) -> Node:
        node = self._atom()
        while self.peek in ("*", "/"):
            node = (self.take(), node, self._atom())
        return node

    def _atom(self) -> Node:
        word = self.take()
        if word.isdigit():
            return "int", int(word)
        if word == "(":
            node = self.sum()
            self._close()
            return node
        if word in _FUNCTIONS:
            return self._call(word)
        if word in NAMES:
            return "name", word
        known = ", ".join(sorted(NAMES | _FUNCTIONS.keys()))
        raise self._error(f"{word or 'the end'!r} is no value; known are integers and {known}")

    def _call(self, name: str) -> Node:
        if self.take() != "(":
            raise self._error(f"{name} needs its arguments in brackets")
        arguments = [self.sum()]
        while self.peek == ",":
            self.take()
            arguments.append(self.sum())
        self._close()
        fewest, most = _FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise self._error(f"{name} takes {fewest} to {most} arguments, not {len(arguments)}")
        return name, *arguments

    def _close(self) -> None:
        if self.take() != ")":
            raise self._error("a bracket is not closed")

    def _error(self, fact: str) -> BadRequest:
        return BadRequest(f"{self._place}: in {self._text[:80]!r} {fact}.")


def _compares(node: Node, values: Mapping[str, int]) -> bool:
    left, right = _value(node[1], values), _value(node[2], values)
    return left is not None and right is not None and _COMPARE[node[0]](left, right)


def _value(node: Node, values: Mapping[str, int]) -> int | None:
    kind = node[0]
    if kind == "int":
        return int(node[1])
    if kind == "name":
        return values.get(node[1])
    parts = [_value(part, values) for part in node[1:]]
    numbers = [part for part in parts if part is not None]
    if len(numbers) < len(parts):
        return None
    return _apply(kind, numbers)


def _apply(kind: str, numbers: list[int]) -> int | None:
    first = numbers[0]
    if kind == "+":
        return first + numbers[1]
    if kind == "-":
        return first - numbers[1]
    if kind == "*":
        return first * numbers[1]
    if kind == "/":
        return first // numbers[1] if numbers[1] else None
    if kind == "chars4":
        return first // 4
    if kind == "min":
        return min(numbers)
    if kind == "max":
        return max(numbers)
    if kind == "clamp":
        return max(numbers[1], min(first, numbers[2]))
    return first  # floor: everything here is an integer already
