"""Declarations from outside: mistakes are named by their field, and no data crashes the reader."""

from __future__ import annotations

import copy
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadRequest
from engine.prompt.edits.policy import EditPolicy
from engine.prompt.edits.template import Template

ROOT = Path(__file__).parents[4]
PLAIN = Template("plain")
BASE: dict[str, Any] = {"schema": "edits/1", "harness": "h", "versions": ">=1, <2"}
RULE: dict[str, Any] = {"id": "r", "op": "append", "at": ["head.end"], "known": "reply", "when": "always"}
FULL = [
    {k: v for k, v in tomllib.loads(path.read_text(encoding="utf-8")).items() if k != "launch"}
    for path in sorted((ROOT / "harnesses").glob("*/harness.toml"))
]
JUNK: list[Any] = [
    None, True, -1, 10**30, 1.5, float("inf"), "", "x" * 500, "[", "\ud800", [], [[]], {}, {"a": {}}, ["head.end"],
    "oldest(tool_result, bad).start", "total >= (", "(?=a)", [{}], [None], "user[-1].start", "turn[99999].query.end",
]  # fmt: skip


def rule(**fields: Any) -> dict[str, Any]:
    return {**BASE, "rule": [{**RULE, **fields}]}


@pytest.mark.parametrize(
    ("declaration", "field"),
    [
        ({}, "declaration.schema"),
        ({**BASE, "schema": "edits/2"}, "declaration.schema"),
        ({**BASE, "versions": "latest"}, "declaration.versions"),
        ({**BASE, "launch": {}}, "declaration.launch: unknown key"),
        ({**BASE, "wire": {"api": ["soap"]}}, "declaration.wire.api[0]"),
        ({**BASE, "wire": {"session": ["cookie:x"]}}, "declaration.wire.session[0]"),
        ({**BASE, "wire": {"match": [{"header": "a", "re": "(?=x)"}]}}, "declaration.wire.match[0].re"),
        ({**BASE, "wire": {"volatile": [{"at": "x", "re": "a", "action": "strip"}]}}, "declaration.wire.volatile[0].at"),
        ({**BASE, "render": {"not_query": ["a", "("]}}, "declaration.render.not_query[1]"),
        ({**BASE, "echo": {"thinking": "some"}}, "declaration.echo.thinking"),
        ({**BASE, "side": [{"kind": "title", "match": {"system_re": "("}}]}, "declaration.side[0].system_re"),
        ({**BASE, "keep": [{"edge": "nowhere", "class": "head"}]}, "declaration.keep[0].edge"),
        ({**BASE, "keep": [{"edge": "tool().start", "class": "head"}]}, "declaration.keep[0].edge"),
        ({**BASE, "keep": [{"edge": "message[0].re('(').end", "class": "head"}]}, "declaration.keep[0].edge"),
        ({**BASE, "keep": [{"edge": "head.end", "class": "head", "quota": 0}]}, "declaration.keep[0].quota"),
        ({**BASE, "keep": [{"edge": "head.end", "class": "head", "if": "rule:x"}]}, "declaration.keep[0].if"),
        (rule(op="explode"), "declaration.rule[0].op"),
        (rule(at=["head.end", "oldest(cat).start"]), "declaration.rule[0].at[1]"),
        (rule(at=["nth_newest(tool_result, n).start"]), "declaration.rule[0].at[0]"),
        (rule(when="total >= limit"), "declaration.rule[0].when"),
        (rule(when="matches(nowhere, 'a')"), "declaration.rule[0].when"),
        (rule(precompute="total"), "declaration.rule[0].precompute"),
        (rule(tail={"tokens": "1 +"}), "declaration.rule[0].tail.tokens"),
        (rule(select={"before": "head.end"}), "declaration.rule[0].select.before"),
        (rule(select={"size": 3}), "declaration.rule[0].select.size: unknown key"),
        (rule(params={"n": [1]}), "declaration.rule[0].params.n"),
        (rule(params={"summary_re": "("}), "declaration.rule[0].params.summary_re"),
        ({**BASE, "rule": [RULE, RULE]}, "declaration.rule[1].id"),
        ({**BASE, "tools": {"fly": []}}, "declaration.tools.fly"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_field(declaration: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        EditPolicy.compose(declaration, PLAIN)
    assert caught.value.message.startswith(field), caught.value.message


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, inner in items for p in paths(inner, (*path, key)))]


@given(st.sampled_from(FULL), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_spoilt_declaration_is_valid_or_refused_by_field(declaration: dict[str, Any], rng: random.Random) -> None:
    spoilt: Any = copy.deepcopy(declaration)
    for _ in range(rng.randint(1, 3)):
        where = rng.choice(paths(spoilt)[1:])
        parent = spoilt
        for step in where[:-1]:
            parent = parent[step]
        action = rng.random()
        if action < 0.6:
            parent[where[-1]] = copy.deepcopy(rng.choice(JUNK))
        elif action < 0.8 and isinstance(parent, dict):
            parent["unknown"] = parent.pop(where[-1])
        else:
            del parent[where[-1]]
        if not spoilt:
            break
    try:
        EditPolicy.compose(spoilt, PLAIN, "1.2.3")
    except BadRequest as error:
        assert error.message.startswith("declaration") and ": " in error.message
        json.dumps(error.message)


@pytest.mark.parametrize(
    ("version", "observe"),
    [("2.1.332", False), ("2.1.332 (Claude Code)", False), ("2.1.299", True), ("2.2", True), ("v2.1.300", False), ("dev", True)],
)  # fmt: skip
def test_versions_outside_the_verified_range_are_observed(version: str, observe: bool) -> None:
    declaration = {**BASE, "versions": ">=2.1.300, <2.2"}
    assert EditPolicy.compose(declaration, PLAIN, version).observe is observe
    assert EditPolicy.compose(declaration, PLAIN).observe is False
