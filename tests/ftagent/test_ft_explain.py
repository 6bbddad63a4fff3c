"""What `ft ctl explain` and `ft ctl anchors` say about given records."""

import pytest

from ftagent.explain import anchors_text, explain_text, why
from ftagent.settings.config import parse_anticipate, parse_size

BROKE = {
    "token": 12345,
    "message": 3,
    "block": 1,
    "kind": "tool_result",
    "edge": "oldest(tool_result).start",
    "predicted": True,
    "rule": "prune",
}


@pytest.mark.parametrize(
    ("turn", "first", "said"),
    [
        ({}, True, "first of its line"),
        ({}, False, "continues"),
        ({"kind": "title"}, True, "title request, first of its line"),
        ({"resent": True}, False, "the same prompt again"),
        ({"cold": "the worker was restarted"}, False, "continues; cold because the worker was restarted"),
        (
            {"broke_at": BROKE},
            False,
            "message 3 block 1 (tool_result) changed at token 12,345, edge oldest(tool_result).start, predicted by rule prune",
        ),
        ({"broke_at": {**BROKE, "predicted": False}}, False, "not as rule prune predicted"),
        ({"broke_at": {**BROKE, "predicted": False, "rule": ""}}, False, "not predicted"),
        ({"broke_at": {**BROKE, "rule": ""}}, False, "predicted from the template"),
        ({"broke_at": {**BROKE, "kind": "reply"}}, False, "the last reply came back changed"),
        ({"broke_at": {**BROKE, "kind": "tools"}}, False, "the tools changed"),
    ],
)
def test_why(turn: dict, first: bool, said: str) -> None:
    assert said in why(turn, first)


def test_explain_lists_each_turn_with_its_counts_and_texts() -> None:
    session = {
        "id": "s-1",
        "name": "work",
        "predictions": {"prune": {"hits": 3, "misses": 1, "differs": {"message": 7, "kind": "user"}}},
    }
    turns = [
        {"line": "s-1/a", "prompt_tokens": 1000, "cached_tokens": 0, "new_tokens": 1000},
        {"line": "s-1/a", "prompt_tokens": 1200, "cached_tokens": 1100, "new_tokens": 50, "anticipated_tokens": 40}
        | {"replayed_tokens": 50, "wasted_tokens": 7, "broke_at": BROKE, "texts": {"old": "one", "new": "two"}},
    ]
    text = explain_text(session, turns)
    head, columns, first, second, was, now, score = text.splitlines()
    assert head == "session s-1 (work)"
    assert columns.split()[-7:] == ["PROMPT", "CACHED", "REPLAYED", "NEW", "ANTICIPATED", "WASTED", "WHY"]
    assert "first of its line" in first
    assert second.split()[:7] == ["2", "1,200", "1,100", "50", "50", "40", "7"]
    assert was.endswith("'one'") and now.endswith("'two'")
    assert "3 of 4" in score and "message 7 (user)" in score
    assert "no requests" in explain_text(session, [])


def test_anchors_are_in_order_of_line_and_position() -> None:
    listed = [
        {"line": "b", "position": 5, "kind": "head", "tier": "ram"},
        {"line": "a", "position": 900, "kind": "turn", "edge": "prompt.end", "tier": "disk"},
        {"line": "a", "position": 64, "kind": "head", "tier": "ram"},
    ]
    rows = [row.split() for row in anchors_text(listed).splitlines()[1:]]
    assert [row[:2] for row in rows] == [["a", "64"], ["a", "900"], ["b", "5"]]
    assert rows[1][2:] == ["turn", "prompt.end", "disk"]
    assert anchors_text([]) == "no checkpoints"


def test_settings_of_anticipation_and_hibernation() -> None:
    assert [parse_size(v) for v in ("8g", "500M", "2 GiB", "off", False)] == [8 << 30, 500 << 20, 2 << 30, 0, 0]
    assert [parse_anticipate(v) for v in ("auto", "off", True, False)] == ["auto", "off", "on", "off"]
    for parse, wrong in ((parse_size, "lots"), (parse_size, True), (parse_anticipate, "often")):
        with pytest.raises(ValueError):
            parse(wrong)
