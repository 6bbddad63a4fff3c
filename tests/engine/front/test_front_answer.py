"""Blocks from events, stop strings, selectors and side rules."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.front.answer import Answer, StopStrings
from engine.front.sides import side_kind
from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart


def test_blocks_of_an_answer() -> None:
    answer = Answer()
    for event in (
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        TextDelta("c"),
        ToolCallStart(0, "id1", "Read", "ns"),
        ToolCallDelta(0, '{"x":'),
        ToolCallDelta(0, "1}"),
        ToolCallEnd(0),
        TextDelta("d"),
        ThinkingDelta("e"),
    ):
        answer.add(event)
    call = ToolCall("id1", "Read", '{"x":1}', "ns")
    assert answer.blocks() == (Thinking("ab"), Text("c"), call, Text("d"), Thinking("e"))
    assert answer.tool_calls == 1


@given(
    text=st.text(alphabet="ab ", max_size=30),
    stops=st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=10),
)
def test_stop_strings_cut_alike_however_the_text_arrives(text: str, stops: list[str], cuts: list[int]) -> None:
    bounds = [0, *sorted({min(c, len(text)) for c in cuts}), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds) if a < b]
    # The oracle: read one character at a time and end as soon as the text so far ends with a stop string.
    expected, hit = text, None
    for i in range(1, len(text) + 1):
        ending = [s for s in stops if text[:i].endswith(s)]
        if ending:
            hit = max(ending, key=len)
            expected = text[: i - len(hit)]
            break
    filtered = StopStrings(stops)
    shown = ""
    for piece in pieces:
        for event in filtered.feed([TextDelta(piece)]):
            assert isinstance(event, TextDelta)
            shown += event.text
        if filtered.hit is not None:
            break
    if filtered.hit is None:
        shown += "".join(e.text for e in filtered.flush() if isinstance(e, TextDelta))
    assert (shown, filtered.hit) == (expected, hit)


def test_a_stop_string_does_not_reach_across_a_call() -> None:
    filtered = StopStrings(["ab"])
    call = ToolCallStart(0, "i", "n")
    assert filtered.feed([TextDelta("xa"), call, TextDelta("b")]) == [
        TextDelta("x"),
        TextDelta("a"),
        call,
        TextDelta("b"),
    ]


@pytest.mark.parametrize(
    ("match", "side"),
    [
        ({"tools": 0}, False),
        ({"tools": 1}, True),
        ({"system_re": "^You are a title"}, True),
        ({"system_re": "title$"}, False),
        ({"last_block_re": "^CRITICAL"}, True),
        ({"tools": 1, "body": "output_config.format"}, True),
        ({"tools": 1, "body": "output_config.none"}, False),
        ({"kind": "compaction", "tools": 1}, True),
        ({"kind": "title"}, False),
        ({"phase_of_moon": "full"}, False),
        ({"system_re": "("}, False),
        ({}, False),
    ],
)
def test_side_rules(match: dict, side: bool) -> None:
    messages = (
        Message("system", (Text("You are a title generator"),)),
        Message("user", (Text("context"), Text("CRITICAL: text only"))),
    )
    conversation = Conversation(messages, tools=(Tool("t", "", {}),))
    body = {"output_config": {"format": {}}}
    declaration = {"side": [{"kind": "never", "match": {"tools": 9}}, {"kind": "x", "match": match}]}
    assert side_kind(declaration, conversation, body, "compaction") == ("x" if side else None)
    assert side_kind(None, conversation, body, "compaction") is None
