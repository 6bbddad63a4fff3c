"""A harness's declaration, `edits/1`: checked against the schema, then read into typed rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import BadRequest
from engine.prompt.edits import schema
from engine.prompt.edits.edges import BlockRef, Edge, parse_block_ref, parse_edge
from engine.prompt.edits.expressions import Condition, Sum, parse_sum, parse_when
from engine.prompt.edits.outline import Select
from engine.prompt.edits.patterns import Pattern, compile_pattern
from engine.prompt.edits.wire import Selector, parse_selector

_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*([0-9.]+)\s*")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


@dataclass(frozen=True, slots=True)
class Tail:
    """What a compaction keeps beside the head: `users`, the newest user messages up to so many tokens, before the
    summary where `before_summary`; `tokens`, up to how many of the newest messages stand behind it; `messages`, how many
    of them exactly. With `since`, it is what came after a summary had been asked for: nothing, if that was waited for."""

    before_summary: bool = False
    since: bool = False
    users: Sum | None = None
    tokens: Sum | None = None
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[rule]]`. `switch` is the path of a configuration value and what it must be ("" for anything true)."""

    id: str
    op: str
    at: tuple[Edge, ...]
    known: str
    when: Condition
    when_edge: Edge | None = None  # the block that `matches` looks at
    switch: tuple[str, str] | None = None
    next_user_turn: bool = False
    placeholder: str | None = None
    select: Select | None = None
    tail: Tail = Tail()
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Keep:
    """One `[[keep]]`. `rule` is the id of the rule it depends on, or ""."""

    edge: Edge
    kind: str
    quota: int = 0
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Volatile:
    """Lines that `pattern` matches in the blocks at `at` are not rendered."""

    at: BlockRef
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Declaration:
    """A parsed `edits/1`. The defaults are those of a client that declares nothing."""

    harness: str = ""
    versions: str = ""
    session: tuple[Selector, ...] = ()
    parent: tuple[Selector, ...] = ()
    epoch: tuple[Selector, ...] = ()
    kind: tuple[Selector, ...] = ()
    marks: bool = True
    volatile: tuple[Volatile, ...] = ()
    system_mid: str = "system"
    not_query: tuple[Pattern, ...] = ()
    deferred_in_head: bool = False
    echo_thinking: str = "verbatim"
    echo_text: str = "verbatim"
    echo_args: str = "verbatim"
    rules: tuple[Rule, ...] = ()
    keeps: tuple[Keep, ...] = ()
    compacts_in_session: bool = False  # its compaction request is its own prompt with one more user message

    def covers(self, version: str) -> bool:
        """Whether `version` lies in the range this was verified for. What has no number in it is not covered."""
        found = _NUMBERS.search(version)
        return found is not None and all(
            _holds(bound[1], _numbers(found[0]), _numbers(bound[2])) for bound in _BOUND.finditer(self.versions)
        )


def parse(data: Mapping[str, Any], place: str = "declaration") -> Declaration:
    """Raises BadRequest naming the field at fault: `declaration.rule[0].when: …`."""
    schema.check(data, "edits/1", place)
    wire, render, echo = data.get("wire", {}), data.get("render", {}), data.get("echo", {})
    _patterns(wire.get("match", []), f"{place}.wire.match")
    _patterns([side["match"] for side in data.get("side", [])], f"{place}.side")
    rules = rules_of(data.get("rule", []), f"{place}.rule")
    keeps = keeps_of(data.get("keep", []), rules, f"{place}.keep")
    sides = data.get("side", [])
    return Declaration(
        harness=data["harness"],
        versions=data["versions"],
        session=_selectors(wire, "session", place),
        parent=_selectors(wire, "parent", place),
        epoch=_selectors(wire, "epoch", place),
        kind=_selectors(wire, "kind", place),
        marks=wire.get("marks", "cache_control") == "cache_control",
        volatile=_volatile(wire.get("volatile", []), f"{place}.wire.volatile"),
        system_mid=render.get("system_mid", "system"),
        not_query=tuple(
            compile_pattern(p, f"{place}.render.not_query[{i}]") for i, p in enumerate(render.get("not_query", []))
        ),
        deferred_in_head=render.get("deferred_tools") == "head",
        echo_thinking=echo.get("thinking", "verbatim"),
        echo_text=echo.get("text", "verbatim"),
        echo_args=echo.get("args", "verbatim"),
        rules=rules,
        keeps=keeps,
        compacts_in_session=any("instruction_re" in rule.params for rule in rules)
        or any(s["kind"] == "compaction" and s.get("head") == "session" for s in sides),
    )


def rules_of(entries: Sequence[Mapping[str, Any]], place: str) -> tuple[Rule, ...]:
    """Checked `[[rule]]` entries. Raises BadRequest for what a schema cannot see."""
    rules: list[Rule] = []
    for i, entry in enumerate(entries):
        here = f"{place}[{i}]"
        if any(rule.id == entry["id"] for rule in rules):
            raise BadRequest(f"{here}.id: there are two rules {entry['id']!r}.")
        rules.append(_rule(entry, here))
    return tuple(rules)


def keeps_of(entries: Sequence[Mapping[str, Any]], rules: Sequence[Rule], place: str) -> tuple[Keep, ...]:
    """Checked `[[keep]]` entries. Raises BadRequest for what a schema cannot see."""
    keeps: list[Keep] = []
    for i, entry in enumerate(entries):
        rule = entry.get("if", "").removeprefix("rule:")
        if rule and all(known.id != rule for known in rules):
            raise BadRequest(f"{place}[{i}].if: there is no rule {rule!r}.")
        edge = parse_edge(entry["edge"], f"{place}[{i}].edge")
        keeps.append(Keep(edge, entry["class"], int(entry.get("quota", 0)), rule))
    return tuple(keeps)


def _rule(entry: Mapping[str, Any], place: str) -> Rule:
    when = parse_when(entry["when"], f"{place}.when")
    if "precompute" in entry:
        parse_when(entry["precompute"], f"{place}.precompute")
    params = entry.get("params", {})
    edges = tuple(parse_edge(text, f"{place}.at[{j}]") for j, text in enumerate(entry["at"]))
    for j, edge in enumerate(edges):
        if edge.param and not isinstance(params.get(edge.param), int):
            raise BadRequest(f"{place}.at[{j}]: params has no number {edge.param!r}.")
    switch = None
    if "enabled" in entry:
        path, _, value = entry["enabled"].removeprefix("config:").partition(" == ")
        switch = (path, value)
    for name in ("summary_re", "instruction_re"):
        if name in params:
            compile_pattern(str(params[name]), f"{place}.params.{name}")
    return Rule(
        id=entry["id"],
        op=entry["op"],
        at=edges,
        known=entry["known"],
        when=when,
        when_edge=parse_edge(when.edge, f"{place}.when") if when.edge else None,
        switch=switch,
        next_user_turn=entry.get("applies") == "next_user_turn",
        placeholder=entry.get("placeholder"),
        select=_select(entry["select"], f"{place}.select") if "select" in entry else _keep_newest(entry["op"], params),
        tail=_tail(entry.get("tail", {}), f"{place}.tail"),
        params=params,
    )


def _select(entry: Mapping[str, Any], place: str) -> Select:
    before = None
    if "before" in entry:
        edge = parse_edge(entry["before"], f"{place}.before")
        if edge.kind != "user" or edge.side != "start" or edge.block is not None:
            raise BadRequest(f"{place}.before: expected user[K].start, not {entry['before']!r}.")
        before = edge.index
    return Select(
        kind=entry.get("kind", "tool_result"),
        status=entry.get("status", "any"),
        except_tools=frozenset(entry.get("except_tools", [])),
        not_cleared=bool(entry.get("not_cleared", True)),
        before_user=before,
        after_first_user=entry.get("after") == "first_user",
        min_chars=int(entry.get("min_chars", 0)),
        keep_assistant_turns=int(entry.get("keep_assistant_turns", 0)),
        keep_newest=int(entry.get("keep_newest", 0)),
        batch=int(entry.get("batch", 1)),
        keep_chars4=int(entry.get("keep_chars4", 0)),
        older_turns=int(entry.get("older_turns", 0)),
    )


def _keep_newest(op: str, params: Mapping[str, Any]) -> Select | None:
    """The short form of a choice: `params = { n = 5, polling = 1 }` keeps the newest n, clearing so many at a time."""
    n, polling = params.get("n"), params.get("polling", 1)
    if op != "clear_result" or not isinstance(n, int) or not isinstance(polling, int) or min(n, polling) < 1:
        return None
    return Select(keep_newest=n, batch=polling)


def _tail(entry: Mapping[str, Any], place: str) -> Tail:
    tokens = parse_sum(entry["tokens"], f"{place}.tokens") if "tokens" in entry else None
    users = parse_sum(entry["users"], f"{place}.users") if "users" in entry else None
    before = entry.get("place") == "before_summary"
    exact = not before and tokens is None and "since" not in entry  # else the number is only the least
    messages = int(entry.get("min_messages", 0)) if exact else 0
    return Tail(before, "since" in entry, users, None if before else tokens, messages)


def _selectors(wire: Mapping[str, Any], name: str, place: str) -> tuple[Selector, ...]:
    texts = wire.get(name, [])
    return tuple(parse_selector(text, f"{place}.wire.{name}[{i}]") for i, text in enumerate(texts))


def _volatile(entries: Sequence[Mapping[str, Any]], place: str) -> tuple[Volatile, ...]:
    found = []
    for i, entry in enumerate(entries):
        at = parse_block_ref(entry["at"], f"{place}[{i}].at")
        pattern = compile_pattern(entry["re"], f"{place}[{i}].re")
        if entry["action"] == "strip":
            found.append(Volatile(at, pattern))
    return tuple(found)


def _patterns(entries: Sequence[Mapping[str, Any]], place: str) -> None:
    """Check the patterns of entries that other rooms evaluate."""
    for i, entry in enumerate(entries):
        for key, value in entry.items():
            if key == "re" or key.endswith("_re"):
                compile_pattern(value, f"{place}[{i}].{key}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:18]) for part in version.split(".") if part)


def _holds(operator: str, version: tuple[int, ...], bound: tuple[int, ...]) -> bool:
    width = max(len(version), len(bound))
    a, b = ((*v, *(0,) * (width - len(v))) for v in (version, bound))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}[operator]
