"""The dialect of Qwen3-Coder and Qwen3.5, beyond what every dialect promises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher

from engine.prompt.conversation import Tool
from engine.prompt.dialects import dialects
from engine.prompt.grammar import Lark
from tests.engine.prompt.reading import Found, is_read, soup

DIALECT = dialects()["qwen_xml"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "deep": {"type": "object"},
        "all": {"type": "boolean"},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "maybe": {"type": ["integer", "null"]},
        "mode": {"enum": ["fast", "slow"]},
    },
    "required": ["path"],
}
TOOLS = [Tool("read", "", SCHEMA)]


def call(**values: str) -> str:
    parts = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=read>\n{parts}</function>\n</tool_call>"


def read(**values: Any) -> tuple[str, ...]:
    return ("call", "", "read", json.dumps(values, ensure_ascii=False))


CASES = [
    (call(path="a.py"), [read(path="a.py")]),
    (call(path="5"), [read(path="5")]),
    (call(path='{"a": 1}'), [read(path='{"a": 1}')]),
    (call(path="two\n\nlines\n"), [read(path="two\n\nlines\n")]),
    (call(path="x", limit="12"), [read(path="x", limit=12)]),
    (call(path="x", limit="twelve"), [read(path="x", limit="twelve")]),
    (call(path="x", all="True"), [read(path="x", all=True)]),
    (call(path="x", all="false", maybe="None"), [read(path="x", all=False, maybe=None)]),
    (call(path="x", deep='{"k": [1, "é"]}'), [read(path="x", deep={"k": [1, "é"]})]),
    (call(path="x", either="12"), [read(path="x", either="12")]),
    (call(path="x", other="12"), [read(path="x", other="12")]),
    (call(path="x", other="[1]"), [read(path="x", other=[1])]),
    (call(path="a </parameter> b"), [read(path="a </parameter> b")]),
    (call(path="</parameter>\n<para"), [read(path="</parameter>\n<para")]),
    (call(), [read()]),
    ("I look.\n" + call(path="a") + "\n" + call(path="b"), [("text", "I look."), read(path="a"), read(path="b")]),
    (call(path="a").removesuffix("\n</tool_call>"), [read(path="a")]),
    (call(path="a").removesuffix("tion>\n</tool_call>"), [("text", call(path="a").removesuffix("tion>\n</tool_call>"))]),
    (call(path="a")[:40], [("text", call(path="a")[:40])]),
    # Cut between two parameters: what follows is not known, so nothing may run.
    (call(path="a").removesuffix("</function>\n</tool_call>"), [("text", call(path="a").removesuffix("\n</function>\n</tool_call>"))]),
    ("<tool_call>\n<function=re\nad>\n</function>\n</tool_call>", [("text", "<tool_call>\n<function=re\nad>\n</function>\n</tool_call>")]),
    ('<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>', [("text", '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>')]),
    ("Write `<tool_call>` and `<function=f>`.", [("text", "Write `<tool_call>` and `<function=f>`.")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_calls_are_read_however_they_are_cut(text: str, expected: Found) -> None:
    is_read(DIALECT, text, TOOLS, expected)


def test_a_call_in_unfinished_thinking_counts_and_in_finished_does_not() -> None:
    text = "Hm.\n" + call(path="a")
    is_read(DIALECT, text, TOOLS, [("thinking", "Hm."), read(path="a")], thinking_open=True)
    closed = [("thinking", f"{text}\nno"), ("text", "Done.")]
    is_read(DIALECT, text + "\nno\n</think>\n\nDone.", TOOLS, closed, thinking_open=True)


def test_tag_soup_never_breaks_the_rules_and_never_depends_on_cuts() -> None:
    tokens = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<function=read>", "</function>", "<parameter=path>", "</parameter>", "\n", " ", "x", "<", ">", "`", "<function=", call(path="a")]  # fmt: skip
    soup(DIALECT, tokens, TOOLS)


def test_the_grammar_admits_what_the_dialect_writes_and_nothing_else() -> None:
    lark = Lark({})
    body = DIALECT.call_grammar("read", SCHEMA, lark)
    grammar = json.dumps({"grammars": [{"lark_grammar": f"start: {body}\n{lark.rules()}"}]})
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    assert not failed, messages
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")

    def admits(text: str) -> bool:
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        data = list(text.encode())
        return matcher.validate_tokens(data) == len(data) and matcher.consume_tokens(data) and matcher.is_accepting()

    for values in (
        {"path": "a < b\n</q", "limit": 3},
        {"path": "x", "deep": {"k": [1, "é"]}, "all": True},
        {"path": "x", "either": 2, "maybe": None, "mode": "slow"},
    ):
        assert admits(DIALECT.call_body("read", json.dumps(values))), values
    assert not admits(DIALECT.call_body("read", json.dumps({"limit": 3})))
    assert not admits(DIALECT.call_body("write", json.dumps({"path": "x"})))
    assert not admits(DIALECT.call_body("read", json.dumps({"path": "x", "limit": "many"})))
    assert not admits(DIALECT.call_body("read", json.dumps({"path": "x", "mode": "warp"})))


def test_what_is_no_object_is_served_as_it_came() -> None:
    assert DIALECT.call_body("read", "[1]") == "\n<function=read>\n[1]\n</function>\n"
