"""A compaction that the session itself asks for: after the summary, the whole next prompt up to the user's text is known."""

import pytest

from engine.bench.toy import BASH, language
from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Message, Text, Thinking
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
