"""A compaction that the session itself asks for: after the summary, the whole next prompt up to the user's text is known."""

import pytest

from engine.bench.toy import BASH, language
from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Message, Text, Thinking, ToolCall, ToolResult
from engine.prompt.edits.policy import EditPolicy, Turn

RULE = {
    "id": "compact",
    "op": "summarize",
    "at": ["head.end", "summary.start"],
    "known": "reply",
    "when": "total >= 100000",
    "params": {"instruction_re": "^Summarise", "summary": "So far: {summary} Go on."},
    "tail": {"min_messages": 2, "place": "after_summary"},
}


def policy(made, **changes):
    declaration = {"schema": "edits/1", "harness": "test", "versions": ">=1", "rule": [{**RULE, **changes}]}
    return EditPolicy.compose(declaration, made.template)


def user(text):
    return Message("user", (Text(text),))


def said(text):
    return Message("assistant", (Text(text),))


HEAD = Message("system", (Text("sys"),))
HISTORY = (user("one"), said("two"), user("abc"), said("def"))


def turn(made, *messages):
    conversation = Conversation((HEAD, *messages), (BASH,))
    return Turn(conversation, made.render(conversation), 100_000, 1000)


def test_the_compacted_conversation_follows_the_summary():
    made = language()
    (prediction,) = policy(made).predict(
        turn(made, *HISTORY, user("Summarise it.")), (Thinking("hm"), Text(" one two ")), 5
    )
    expected = (HEAD, user("So far: one two Go on."), *HISTORY[-2:])
    assert prediction.conversation.messages == expected
    assert (prediction.rule, prediction.expects) == ("compact", "user")
    after = made.render(Conversation((*expected, user("new")), (BASH,)))
    known = made.certain(prediction)
    assert after.tokens[: len(known)] == known and len(known) > made.render(Conversation(expected, (BASH,))).end


@pytest.mark.parametrize("last", ["Summarise", "Go on."])
def test_only_an_instruction_asks_for_a_summary(last):
    made = language()
    found = policy(made).predict(turn(made, *HISTORY, user(last)), (Text("abc"),), 5)
    assert [p.rule for p in found] == (["compact"] if last == "Summarise" else [""])


def test_the_next_compaction_replaces_the_summary_of_the_last():
    made = language()
    told = user("So far: abc Go on.")
    at = turn(made, told, *HISTORY, user("Summarise"))
    (prediction,) = policy(made).predict(at, (Text("xyz"),), 5)
    assert prediction.conversation.messages == (HEAD, user("So far: xyz Go on."), *HISTORY[-2:])
    anchored = {p.edge: p.position for p in policy(made).anchors(at)}["summary.start"]
    assert made.decode(at.prompt.tokens[:anchored]).endswith("So far:")


def test_a_tail_of_unknown_length_is_left_out():
    made = language()
    tail = {"tokens": "20000", "min_messages": 2, "place": "after_summary"}
    (prediction,) = policy(made, tail=tail).predict(turn(made, *HISTORY, user("Summarise")), (Text("abc"),), 5)
    assert prediction.conversation.messages == (HEAD, user("So far: abc Go on."))


def test_a_bad_pattern_is_named():
    with pytest.raises(BadRequest, match="instruction_re"):
        policy(language(), params={"instruction_re": "(", "summary": "{summary}"})


def beside(**changes):
    """A policy whose compactions are requests of their own."""
    made = language()
    rule = {**RULE, "params": {}, "tail": {}, **changes}
    return made, policy(made, **rule)


ASKED = Conversation((HEAD, user("Sum it up.")))
CALL = (ToolCall("c1", "bash", "{}"),)
SUMMARY = (Thinking("hm"), Text("one two"))


def predicted(made, rules, *history, reply=(Text("ok"),), summary=SUMMARY, asked=ASKED):
    return rules.compacted(turn(made, *history), reply, asked, summary)


def begins(made, prediction, *messages):
    """Whether the prompt of `messages` begins with what is certain of a prediction, and how many of its tokens are left."""
    prompt = made.render(Conversation((HEAD, *messages), (BASH,)))
    known = made.certain(prediction)
    assert prompt.tokens[: len(known)] == known
    return len(prompt.tokens) - len(known)


def test_a_summary_that_answers_a_question_is_followed_by_the_tail():
    made, rules = beside(params={"question": "What was done?"}, tail={"tokens": "8", "place": "after_summary"})
    history = (user("a" * 40), said("b" * 40), user("x" * 16))
    (before,) = predicted(made, rules, *history, reply=CALL, summary=None)
    (after,) = predicted(made, rules, *history, reply=CALL)
    told = (user("What was done?"), Message("assistant", SUMMARY), user("x" * 16), Message("assistant", CALL))
    result = Message("tool", (ToolResult("c1", (Text("abc"),)),))
    whole = (*told, result, user("Go on."))
    assert begins(made, before, *whole) > begins(made, after, *whole)
    assert after.conversation.messages == (HEAD, *told) and after.expects == "tool_result" and after.whenever
    (again,) = predicted(made, rules, *told, result, said("y" * 40), reply=(Text("z"),), summary=(Text("more"),))
    assert again.conversation.messages == (HEAD, told[0], said("more"), said("z"))


def test_users_may_stand_before_the_summary_and_nothing_behind_it():
    made, rules = beside(params={"summary": "So far: {summary}"}, tail={"users": "100", "place": "before_summary"})
    (after,) = predicted(made, rules, *HISTORY, reply=CALL)
    told = (user("one"), user("abc"), user("So far: one two"))
    assert begins(made, after, *told) < 8 and after.expects == ""


def test_an_agent_may_write_on_behind_the_summary():
    made, rules = beside(params={"summary": "So far: {summary}", "more": True})
    (after,) = predicted(made, rules, *HISTORY)
    left = begins(made, after, user("So far: one two and the files a, b"), user("next"))
    assert (
        left
        < begins(made, predicted(made, rules, *HISTORY, summary=None)[0], user("So far: one two"), user("next")) + 40
    )
    assert "one two" in made.decode(made.certain(after))


def test_of_a_summary_that_was_waited_for_nothing_is_known():
    made, rules = beside(params={"summary_begins": "So far:"}, tail={"since": "precompute", "place": "after_summary"})
    assert "So far" in made.decode(made.certain(predicted(made, rules, *HISTORY)[0]))
    meanwhile = Conversation((HEAD, *HISTORY, user("Sum it up.")))
    assert predicted(made, rules, *HISTORY, asked=meanwhile)
    whole = Conversation((HEAD, *HISTORY, said("ok"), user("Sum it up.")))
    assert predicted(made, rules, *HISTORY, asked=whole) == []
