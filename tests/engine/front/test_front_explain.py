"""Lines, breaks and scores over prompts made by hand: positions are known, so every answer has one right value."""

from __future__ import annotations

from array import array

import pytest

from engine.front.explain import find_break
from engine.front.lines import Expected, Line, Lines, Sent, common_prefix
from engine.front.scores import Scores
from engine.prompt.conversation import Conversation, Message, Prompt, Span, Text, ToolResult
from engine.protocol import EditPoint


def prompt(*parts: tuple[str, list[int]], generation: list[int] | None = None) -> Prompt:
    """One message for each part; the generation prefix behind them."""
    tokens: list[int] = []
    spans = []
    for i, (kind, ids) in enumerate(parts):
        spans.append(Span(len(tokens), len(tokens) + len(ids), i, 0, kind))
        tokens += ids
    end = len(tokens)
    if generation:
        spans.append(Span(end, end + len(generation), len(parts), -1, "generation"))
        tokens += generation
    return Prompt(tokens, spans, end)


HEAD, USER, CALL, RESULT = ("system", [1, 2, 3]), ("user", [10, 11]), ("tool_call", [20, 21, 22]), ("tool_result", [30])
FIRST = prompt(HEAD, USER, generation=[90, 91])


def line_with(*sent: Sent) -> Line:
    line = Line("s/x")
    line.sent.extend(sent)
    return line


def sent_first(reply: list[int] | None = None, **fields: object) -> Sent:
    sent = Sent.of(FIRST, [EditPoint(3, "head", edge="head.end"), EditPoint(5, "prompt", edge="prompt.end")])
    sent.tokens += array("I", reply or [])
    for name, value in fields.items():
        setattr(sent, name, value)
    return sent


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_common_prefix_is_where_a_loop_says(size: int) -> None:
    a = array("I", range(1000))
    b = array("I", [*range(size), *([5000] * (size < 1000))])
    assert common_prefix(a, b) == common_prefix(b, a) == size
    assert common_prefix(a, array("I")) == 0


def test_no_break_when_a_prompt_continues_repeats_or_rolls_back() -> None:
    line = line_with(sent_first([20, 21]))
    continued = prompt(HEAD, USER, ("text", [90, 91, 20, 21, 99]), ("tool_result", [30]), generation=[90, 91])
    assert find_break(line, [], continued) is None
    assert find_break(line, [], FIRST) is None
    assert find_break(line, [], prompt(HEAD, ("user", [10]), generation=[90, 91])) is None
    assert find_break(Line("s/new"), [], FIRST) is None


def test_a_break_names_the_block_the_edge_and_what_stood_there() -> None:
    line = line_with(sent_first([20, 21]))
    other = prompt(HEAD, ("user", [12, 13]), generation=[90, 91])
    found = find_break(line, [], other)
    assert found is not None
    assert found.json() == {
        "token": 3,
        "message": 1,
        "block": 0,
        "kind": "user",
        "edge": "head.end",
        "predicted": False,
        "rule": "",
    }
    assert found.lost == 6 and found.old[:5] == (1, 2, 3, 10, 11) and found.new[:5] == (1, 2, 3, 12, 13)


def test_a_reply_that_comes_back_changed_breaks_in_the_reply() -> None:
    line = line_with(sent_first([20, 21]))
    found = find_break(line, [], prompt(HEAD, USER, ("text", [90, 91, 20, 77]), generation=[90]))
    assert found is not None and (found.kind, found.message, found.token) == ("reply", 2, 8)
    stripped = find_break(line, [], prompt(HEAD, USER, ("text", [90, 60, 61]), generation=[90]))
    assert stripped is not None and (stripped.kind, stripped.token, stripped.edge) == ("reply", 6, "prompt.end")


def test_the_best_of_several_earlier_prompts_counts() -> None:
    older = Sent.of(prompt(HEAD, USER, CALL, RESULT, generation=[90]), [])
    line = line_with(older, Sent.of(prompt(HEAD, ("user", [40]), generation=[90]), []))
    assert find_break(line, [], prompt(HEAD, USER, CALL, RESULT, ("user", [50]), generation=[90])) is not None
    assert find_break(line, [], prompt(HEAD, USER, CALL, RESULT, generation=[90])) is None


def test_a_new_line_without_a_name_is_held_against_the_session() -> None:
    old = line_with(sent_first())
    compacted = prompt(HEAD, ("user", [77]), generation=[90, 91])
    fresh, named = Line("s/~new"), Line("s/agent-2", own_id=True)
    found = find_break(fresh, [old], compacted)
    assert found is not None and found.token == 3
    assert find_break(named, [old], compacted) is None


def test_a_prediction_that_came_true_names_its_rule() -> None:
    edited = prompt(HEAD, ("user", [12, 13]), generation=[90, 91])
    right = Expected("prune", "oldest(tool_result).start", "user", array("I", [1, 2, 3, 12]))
    found = find_break(line_with(sent_first(expected=[right])), [], edited)
    assert found is not None and found.predicted and found.rule == "prune"
    wrong = Expected("prune", "", "user", array("I", [1, 2, 3, 9]))
    found = find_break(line_with(sent_first(expected=[wrong])), [], edited)
    assert found is not None and not found.predicted and found.rule == "prune"


def test_scores_count_only_what_can_be_judged() -> None:
    user = Conversation((Message("user", (Text("a"),)),))
    tool = Conversation((Message("tool", (ToolResult("c", (Text("r"),)),)),))
    came = prompt(HEAD, USER, generation=[90])
    append = Expected("", "", "user", array("I", [1, 2, 3]))
    pruned = Expected("prune", "", "user", array("I", [1, 2, 7]))
    scores = Scores()

    def judge(*expected: Expected, came_of: Conversation = user) -> Expected | None:
        earlier = Sent.of(prompt(("system", [1, 2, 4])), [])
        earlier.expected = list(expected)
        return scores.judge(line_with(earlier), came_of, came)

    assert judge(pruned, append) is append
    assert judge(pruned, came_of=tool) is None  # a rule about the next user text says nothing about a result
    assert judge(append, pruned) is append  # what is less probable is not asked
    assert judge(pruned) is None
    nowhere = {"token": 2, "message": 0, "block": 0, "kind": "system"}
    assert scores.json() == {
        "prune": {"hits": 0, "misses": 1, "early": 1, "differs": nowhere},
        "append": {"hits": 2, "misses": 0, "early": 0, "differs": None},
    }


def test_a_prediction_that_only_repeats_what_was_sent_proves_nothing() -> None:
    user = Conversation((Message("user", (Text("a"),)),))
    head = Expected("compact", "head.end", "", array("I", HEAD[1]))
    further = Expected("compact", "head.end", "", array("I", [*HEAD[1], 40]))
    compacted = prompt(HEAD, ("user", [40, 41]), generation=[90])
    scores = Scores()
    assert scores.judge(line_with(sent_first(expected=[head])), user, compacted) is None
    assert scores.json() == {}
    broke = find_break(line_with(sent_first(expected=[head])), [], compacted)
    assert broke is not None and not broke.predicted
    assert scores.judge(line_with(sent_first(expected=[further])), user, compacted) is further
    assert scores.judge(line_with(sent_first(expected=[further])), user, prompt(HEAD, ("user", [50]))) is None
    assert (scores.rules["compact"].hits, scores.rules["compact"].misses) == (1, 1)
    # Said once before, beside another request: an older prompt of the line counts too.
    assert scores.judge(line_with(Sent.of(compacted, []), sent_first(expected=[further])), user, compacted) is None


def test_lines_are_bounded_and_forget_what_is_oldest() -> None:
    lines = Lines(limit_bytes=10_000)
    for i in range(5):
        lines.get(f"s{i % 2}/{i}").sent.append(Sent(array("I", range(1000)), [], 1000))
    lines.get("s0/4")
    assert lines.bytes() <= 10_000
    assert [line.key for line in lines.of("s0")] == ["s0/4"] and [line.key for line in lines.of("s1")] == ["s1/3"]
    lines.forget("s0")
    assert not list(lines.of("s0"))


def test_one_huge_line_keeps_its_newest_prompt() -> None:
    lines = Lines(limit_bytes=1000)
    line = lines.get("s")
    line.sent.extend(Sent(array("I", range(400)), [], 400) for _ in range(3))
    lines.get("s")
    assert len(line.sent) == 1
