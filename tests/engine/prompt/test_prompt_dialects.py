from __future__ import annotations

import json
import re

import pytest

from engine.prompt.conversation import Block, Text, Thinking, Tool, ToolCall
from engine.prompt.dialects import dialects
from engine.prompt.dialects.contract import Dialect
from engine.prompt.output import TextDelta
from tests.engine.prompt.reading import Found, is_read, readings, run, soup, written

ARGUMENTS = {"path": 'a<b>}"{`.py', "text": "line\n</tool_call> <think> é🎈", "deep": {"list": [1, {"x": None}]}}


TOOLS = [Tool("read", "", {}), Tool("get", "", {}, namespace="mcp__web")]


@pytest.mark.parametrize("thinking_open", [False, True])
@pytest.mark.parametrize("dialect", dialects().values(), ids=list(dialects()))
def test_every_dialect_reads_what_it_writes_however_it_is_cut(dialect: Dialect, thinking_open: bool) -> None:
    arguments = json.dumps(ARGUMENTS, ensure_ascii=False)
    calls = [ToolCall("1", "read", arguments), ToolCall("2", "get", "{}", namespace="mcp__web")]
    blocks: list[Block] = [Thinking("Let me see `x`."), Text("I will read."), *calls]
    expected = [
        ("thinking", "Let me see `x`."),
        ("text", "I will read."),
        ("call", "", "read", arguments),
        ("call", "mcp__web", "get", "{}"),
    ]
    if dialect.name == "harmony":  # one call ends an answer, and the prompt opens no thinking
        thinking_open = False
    for found in readings(dialect, written(dialect, blocks, thinking_open), thinking_open, TOOLS):
        assert found == expected
    for found in readings(dialect, written(dialect, blocks[1:2]), False, TOOLS):
        assert found == expected[1:2]
    for found in readings(dialect, written(dialect, blocks[2:3]), False, TOOLS):
        assert found == expected[2:3]


TAGGED = [dialect for dialect in dialects().values() if dialect.name != "harmony"]  # which marks calls by their header
NAMES = [dialect.name for dialect in TAGGED]
ONE = ToolCall("1", "read", '{"path": "a.py"}')
ONE_READ = ("call", "", "read", '{"path": "a.py"}')


@pytest.mark.parametrize("dialect", TAGGED, ids=NAMES)
def test_a_call_in_thinking_counts_only_when_the_thinking_is_never_closed(dialect: Dialect) -> None:
    call, close = written(dialect, [ONE]), dialect.markers["thinking"].close
    bare = dialect.name == "llama"  # its calls are whole answers, or behind a marker of their own
    call = dialect.layout.between + call if bare else call
    for found in readings(dialect, "Hm.\n" + call, True, TOOLS):
        assert [kind for kind, *_ in found] == ["thinking", "call"] and found[1] == ONE_READ
    for found in readings(dialect, f"Hm.\n{call}\nno{close}Done.", True, TOOLS):
        assert [kind for kind, *_ in found] == ["thinking", "text"] and found[1] == ("text", "Done.")
    for quoted in (f"Write `{call.replace(chr(10), ' ')}` so", f"As in\n```\n{call}\n```\nso"):
        for found in readings(dialect, quoted, True, TOOLS):
            assert [kind for kind, *_ in found] == ["thinking"]
        for found in readings(dialect, quoted, False, TOOLS):
            assert [kind for kind, *_ in found] == ["text"]


@pytest.mark.parametrize("dialect", dialects().values(), ids=list(dialects()))
def test_a_call_cut_anywhere_gives_all_of_its_arguments_or_none(dialect: Dialect) -> None:
    arguments = {"path": "a.py", "limit": 12, "deep": {"list": [1]}}
    kinds = {"path": {"type": "string"}, "limit": {"type": "integer"}}
    tools = [Tool("read", "", {"properties": kinds, "required": ["path"]})]
    call = written(dialect, [ToolCall("1", "read", json.dumps(arguments))])
    for cut in range(len(call)):
        found = run(dialect.parser(tools, thinking_open=False, calls=True), [call[:cut]])
        assert len(found) <= 1
        if found and found[0][0] == "call":
            assert json.loads(found[0][3]) == arguments
    for place in range(len(call) if dialect in TAGGED else 0):  # or with one character missing
        damaged = call[:place] + call[place + 1 :]
        found = run(dialect.parser(tools, thinking_open=False, calls=True), [damaged])
        calls = [event for event in found if event[0] == "call"]
        assert len(calls) <= 1
        for event in calls:  # nothing but the damaged name, key or value differs
            assert len(json.loads(event[3])) == len(arguments)
        assert run(dialect.parser(tools, thinking_open=False, calls=True), list(damaged)) == found


@pytest.mark.parametrize("dialect", dialects().values(), ids=list(dialects()))
def test_an_argument_that_comes_twice_makes_no_call(dialect: Dialect) -> None:
    call = written(dialect, [ToolCall("1", "read", '{"path": "a.py", "path2": "b.py"}')]).replace("path2", "path")
    for found in readings(dialect, call, False, TOOLS):
        assert found and all(kind == "text" for kind, *_ in found)


@pytest.mark.parametrize("dialect", TAGGED, ids=NAMES)
def test_a_line_break_in_a_name_makes_no_call(dialect: Dialect) -> None:
    call = written(dialect, [ONE]).replace("read", "re\nad")
    for found in readings(dialect, call, False, TOOLS):
        assert all(kind == "text" for kind, *_ in found)


@pytest.mark.parametrize("dialect", dialects().values(), ids=list(dialects()))
def test_calls_are_text_in_every_dialect_when_they_are_off(dialect: Dialect) -> None:
    found = run(dialect.parser(TOOLS, thinking_open=False, calls=False), [written(dialect, [Text("So."), ONE])])
    assert all(kind == "text" for kind, *_ in found)


@pytest.mark.parametrize("dialect", TAGGED, ids=NAMES)
def test_soup_of_every_dialects_tags_never_breaks_the_rules_and_never_depends_on_cuts(dialect: Dialect) -> None:
    call, marks = written(dialect, [ONE]), [text for m in dialect.markers.values() for text in (m.open, m.close)]
    inner = re.split(r"(<[^<>]*>|\[[A-Z_]+\]|\n)", call)
    pieces = [*marks, *inner, *inner, *dialect.layout.calls, call, "`", "```", *"\n x<{}[]", '"']
    soup(dialect, [piece for piece in pieces if piece], TOOLS, rounds=400)


CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
READ = ("call", "", "read", '{"path": "a.py"}')
MALFORMED = '<tool_call>\n{"name": "read", "arguments": {"path": }}\n</tool_call>'
HERMES = [
    # (output, thinking already open, events)
    ("Plain answer.\n", False, [("text", "Plain answer.")]),
    ("Let me look.\n" + CALL, True, [("thinking", "Let me look."), READ]),
    ("Maybe `" + CALL.replace("\n", "") + "` is right", True, [("thinking", "Maybe `" + CALL.replace("\n", "") + "` is right")]),
    ("The syntax:\n```\n" + CALL + "\n```\nso", True, [("thinking", "The syntax:\n```\n" + CALL + "\n```\nso")]),
    ("Consider\n" + CALL + "\nno.\n</think>\n\nDone.", True, [("thinking", "Consider\n" + CALL + "\nno."), ("text", "Done.")]),
    ("\n</think>\n\n" + CALL, True, [READ]),
    ("Write `<tool_call>` tags.", False, [("text", "Write `<tool_call>` tags.")]),
    (CALL.replace("<tool_call>", "<tool_call"), False, [READ]),
    (CALL[:-1], False, [READ]),
    (CALL.removesuffix("</tool_call>"), False, [READ]),
    (CALL.removesuffix("}\n</tool_call>"), False, [READ]),
    (CALL.replace("}}", "}"), False, [READ]),
    (CALL.replace('"read"', '"re\nad"'), False, [("text", CALL.replace('"read"', '"re\nad"'))]),
    (CALL.replace('"read"', '"read\\n"'), False, [READ]),
    (MALFORMED + "\n" + CALL, False, [("text", MALFORMED), READ]),
    (CALL[:45], False, [("text", CALL[:45])]),
    ('<tool_call>\n{"name": "read"', False, [("text", '<tool_call>\n{"name": "read"')]),
    ('<tool_call>{"name": "read"}</tool_call>', False, [("call", "", "read", "{}")]),
    ('<tool_call>{"name": "read", "arguments": "{\\"path\\": \\"a.py\\"}"}</tool_call>', False, [READ]),
    ('<tool_call>{"name": "read", "arguments": [1]}</tool_call>', False, [("text", '<tool_call>{"name": "read", "arguments": [1]}</tool_call>')]),
    ('<tool_call>{"name": "read", "arguments": {"n": NaN}}</tool_call>', False, [("text", '<tool_call>{"name": "read", "arguments": {"n": NaN}}</tool_call>')]),
    ('<tool_call>{"name": "read", "arguments": {"path": "a\nb"}}</tool_call>', False, [("call", "", "read", '{"path": "a\\nb"}')]),
    ('<tool_call>{"name": "w", "arguments": {"text": "' + CALL.replace('"', '\\"').replace("\n", "\\n"), False, None),
    ("5 < 6 <think> later", False, [("text", "5 < 6 <think> later")]),
    (CALL + "\nDone.", False, [READ, ("text", "Done.")]),
    ("unfinished <tool_ca", False, [("text", "unfinished <tool_ca")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "thinking_open", "expected"), HERMES)
def test_hermes(text: str, thinking_open: bool, expected: Found | None) -> None:
    if expected is None:
        expected = [("text", text)]  # a cut-off call that quotes another: nothing in it may run
    is_read(dialects()["hermes"], text, [Tool("read", "", {})], expected, thinking_open)


def test_calls_are_text_when_they_are_off() -> None:
    parser = dialects()["hermes"].parser([], thinking_open=False, calls=False)
    assert run(parser, ["A " + CALL]) == [("text", "A " + CALL)]


def test_random_tag_soup_never_breaks_the_rules_and_never_depends_on_cuts() -> None:
    tokens = ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "read", ', '"arguments": ', "{}", "}", "{", '"', "\\", "`", "```", "\n", " ", "x", "<tool_call", ">", CALL]  # fmt: skip
    soup(dialects()["hermes"], tokens, [])


def test_text_streams_as_it_arrives() -> None:
    parser = dialects()["hermes"].parser([], thinking_open=False, calls=True)
    assert parser.feed("Hello") == [TextDelta("Hello")]
    assert parser.feed(" <") == []
    assert parser.feed("b> there") == [TextDelta(" <b> there")]
