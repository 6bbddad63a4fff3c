"""A draft learnt from a client's own requests: what it says is true of a client whose edits are known."""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path

import pytest

from engine.bench import traces
from engine.bench.prefix import declarations, run_trace
from engine.bench.simulate import Machine
from engine.bench.toy import language
from engine.front.draft import draft
from engine.front.observe import Observer
from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.edits import declaration as parsed
from engine.prompt.edits.policy import EditPolicy, Turn

ROOT = Path(__file__).parents[3]
WINDOW = 120_000
BASH = Tool("bash", "Run.", {"type": "object"})


def said(role, text):
    return Message(role, (Text(text),))


class Client:
    """A session whose history is kept whole; `view` is what it sends of it."""

    def __init__(self, view, turns=3, steps=5):
        self.view = view
        self.history = [said("system", "You are a tester.\nToday is Monday.")]
        self.turns, self.steps = turns, steps
        self.sent = []

    def run(self, observer, policy=None, made=None):
        number = 0
        for turn in range(self.turns):
            self.history.append(said("user", f"Do part {turn}. " + "ask " * 20))
            for step in range(self.steps):
                number += 1
                conversation = Conversation(tuple(self.view(self.history)), tools=(BASH,))
                last = step + 1 == self.steps
                call = ToolCall(f"call{number}", "bash", '{"command": "ls"}')
                reply = (Thinking(f"think {number} " * 5), Text(f"Done {turn}.") if last else call)
                self.sent.append((conversation, reply))
                seen = observer.asked(conversation, size(conversation), WINDOW, "chat", {"user-agent": "tester/1.2"})
                observer.answered(seen, reply, 10)
                self.history.append(Message("assistant", reply))
                if not last:
                    result = ToolResult(call.id, (Text(f"line {number}\n" * 30),))
                    self.history.append(Message("tool", (result,)))


def size(conversation):
    return sum(len(str(m)) for m in conversation.messages) // 4


def predicted(sent, declaration, made):
    """(requests that begin with a prediction made beforehand, tokens of all such predictions)."""
    policy = EditPolicy.compose(declaration, made.template)
    hits = tokens = 0
    for (before, reply), (now, _) in pairwise(sent):
        turn = Turn(before, made.render(before), WINDOW, 1000)
        prompt = made.render(now).tokens
        best = 0
        for guess in policy.predict(turn, reply, 10):
            guessed = made.render(guess.conversation)
            if prompt[: guessed.end] == guessed.tokens[: guessed.end]:
                best = max(best, guessed.end)
        hits += best > 0
        tokens += best
    return hits, tokens


def learnt(view, **sizes):
    observer = Observer()
    client = Client(view, **sizes)
    client.run(observer)
    return client.sent, draft(observer.evidence, "tester", "1.2")


def cleared(history, keep=2):
    results = [i for i, m in enumerate(history) if m.role == "tool"]
    gone = set(results[:-keep])
    return [
        Message("tool", (ToolResult(m.blocks[0].call_id, (Text("[left out: 30 lines]"),)),)) if i in gone else m
        for i, m in enumerate(history)
    ]


def thoughtless(history):
    return [Message(m.role, tuple(b for b in m.blocks if not isinstance(b, Thinking))) for m in history]


def reminded(history):
    last = max(i for i, m in enumerate(history) if m.role == "user")
    reminder = Text(f"<reminder> keep to the plan, part {last}")
    return [Message("user", (*m.blocks, reminder)) if i == last else m for i, m in enumerate(history)]


def carried(history):
    return [*history, said("user", f"<<context>> now at {len(history)}")]


@pytest.mark.parametrize(
    ("view", "rule", "expected"),
    [
        (cleared, "clear_results", {"select": {"kind": "tool_result", "keep_newest": 2, "batch": 1}}),
        (cleared, "clear_results", {"placeholder": "[left out: {lines} lines]"}),
        (reminded, "reminder", {"op": "drop_block", "applies": "next_user_turn"}),
        (carried, "tail", {"op": "move_tail", "at": ["tail('^<<context>> now at ').start"]}),
    ],
    ids=["clear", "placeholder", "reminder", "carrier"],
)
def test_an_edit_is_named_as_it_is(view, rule, expected):
    _, found = learnt(view)
    rules = {entry["id"]: entry for entry in found["declaration"]["rule"]}
    assert set(rules) == {rule}
    assert {key: rules[rule][key] for key in expected} == expected
    assert any(rule in line["about"] and line["seen"] >= 2 and line["confidence"] > 0.7 for line in found["evidence"])


@pytest.mark.parametrize("view", [cleared, thoughtless, reminded, carried])
def test_the_draft_predicts_better_than_nothing(view):
    made = language()
    sent, found = learnt(view)
    nothing, with_draft = predicted(sent, None, made), predicted(sent, found["declaration"], made)
    assert with_draft[0] > nothing[0] and with_draft[1] > nothing[1]
    assert with_draft[0] == len(sent) - 1, "a request was not foreseen"


def test_thinking_that_never_comes_back_is_an_echo():
    _, found = learnt(thoughtless)
    assert found["declaration"]["echo"]["thinking"] == "drop_all"
    assert found["declaration"]["rule"] == []


def test_an_append_only_client_gets_no_rule():
    sent, found = learnt(lambda history: history)
    assert found["declaration"]["rule"] == [] and found["declaration"]["echo"] == {}
    made = language()
    assert predicted(sent, found["declaration"], made) == predicted(sent, None, made)


def test_a_summary_is_known_with_its_words_its_tail_and_its_moment():
    observer = Observer()
    history = [said("system", "Head."), said("user", "first " * 30)]
    for number in range(8):
        history += [said("assistant", f"answer {number} " * 12), said("user", f"go on {number} " * 12)]
    full = Conversation(tuple(history), tools=(BASH,))
    seen = observer.asked(full, 50_000, WINDOW, "chat", {})
    observer.answered(seen, (Text("It is all done so far, as asked."),), 200)
    asked = Conversation((said("system", "You sum up conversations."), said("user", "all of it")))
    summary = "The files were read, two of them were changed, and the tests passed afterwards."
    observer.answered(observer.asked(asked, 40_000, WINDOW, "chat", {}), (Text(summary),), 60)
    short = (history[0], history[1], said("user", f"Summary so far:\n{summary}\nGo on."), *history[-2:])
    answer = Message("assistant", (Text("It is all done so far, as asked."),))
    observer.asked(Conversation((*short, answer, said("user", "next")), tools=(BASH,)), 9_000, WINDOW, "chat", {})
    found = draft(observer.evidence, "tester")["declaration"]
    rule = next(entry for entry in found["rule"] if entry["op"] == "summarize")
    assert rule["at"] == ["first(1).end", "summary.start"]
    assert rule["params"] == {"summary": "Summary so far:\n{summary}\nGo on."}
    assert rule["tail"] == {"min_messages": 3, "place": "after_summary"}
    assert rule["when"] == "total >= window - 69800"
    assert found["side"][0]["match"]["system_re"] == "^You sum up conversations\\."


def test_a_line_of_the_system_text_that_changes_is_an_edge():
    days = iter(("Monday", "Monday", "Tuesday", "Wednesday", *["Wednesday"] * 20))

    def dated(history):
        return [said("system", f"You are a tester.\nToday is {next(days)}."), *history[1:]]

    _, found = learnt(dated)
    assert [entry["at"] for entry in found["declaration"]["rule"]] == [["system.re('Today is ').start"]]


@pytest.mark.parametrize(
    ("echoed", "style"),
    [('{"command":"ls"}', "json_compact"), ('{"background": false, "command": "ls"}', "json_defaults")],
)
def test_how_arguments_come_back(echoed, style):
    def respelled(history):
        return [
            Message(
                m.role,
                tuple(ToolCall(b.id, b.name, echoed) if isinstance(b, ToolCall) else b for b in m.blocks),
            )
            for m in history
        ]

    _, found = learnt(respelled)
    assert found["declaration"]["echo"] == {"args": style}


KNOWN = declarations(ROOT / "harnesses")
RECORDED = ("r_pi_basic", "r_sub_oc", "s_cc", "s_cx", "s_hm", "s_oc", "s_occ")


@functools.cache
def recorded(name):
    """(requests of a recorded session, its lines as nobody declared them, the draft)."""
    requests, _ = traces.load(ROOT / f"tests/prefix/traces/{name}.jsonl.gz", KNOWN)
    observer, made = Observer(), language()
    policy = EditPolicy.compose(None, made.template)
    asks = list(traces.asks(requests, policy, None))
    lines = {}
    for request, ask in zip(requests, asks, strict=True):
        tokens = len(made.render(ask.conversation).tokens)
        seen = observer.asked(ask.conversation, tokens, WINDOW, "chat", request.headers)
        observer.answered(seen, ask.reply, 10)
        lines.setdefault(ask.line, []).append((ask.conversation, ask.reply))
    return requests, lines, draft(observer.evidence, name)


@pytest.mark.parametrize("name", RECORDED)
def test_a_draft_from_a_recorded_session_is_valid_and_foresees_no_less(name):
    _, lines, found = recorded(name)
    parsed.parse(found["declaration"])
    made = language()
    for sent in lines.values():
        nothing, with_draft = predicted(sent, None, made), predicted(sent, found["declaration"], made)
        assert with_draft[0] >= nothing[0] and with_draft[1] >= nothing[1]


@pytest.mark.parametrize("name", ["s_hm", "s_occ"])
def test_a_draft_foresees_the_summaries_of_a_recorded_session(name):
    """The other recorded sessions only grow, and their drafts have no rule."""
    _, lines, found = recorded(name)
    assert [rule["op"] for rule in found["declaration"]["rule"]] == ["summarize"]
    made = language()
    counts = [[predicted(sent, d, made) for sent in lines.values()] for d in (None, found["declaration"])]
    nothing, with_draft = ([sum(column) for column in zip(*rows, strict=True)] for rows in counts)
    assert with_draft[0] > nothing[0] and with_draft[1] > nothing[1]


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_kept_for_a_draft_serves_a_recorded_session_as_well(name):
    requests, _, found = recorded(name)
    nothing = run_trace(requests, None, True, Machine(), anticipate=True)
    drafted = run_trace(requests, found["declaration"], True, Machine(), anticipate=True)
    assert sum(s.critical for s in drafted.served) <= 1.005 * sum(s.critical for s in nothing.served)


def test_a_request_that_ends_earlier_than_the_one_before_it_is_taken_in() -> None:
    """Nothing stands where the last user message stood, and no reply came that could tell."""
    observer = Observer()
    told = [said("system", "s"), said("user", "one " * 20), said("assistant", "two " * 20), said("user", "three " * 20)]
    for messages in (told, told[:3], told[:2], told):
        conversation = Conversation(tuple(messages), tools=(BASH,))
        observer.asked(conversation, size(conversation), WINDOW, "chat", {})
    assert observer.evidence.compared == 3
