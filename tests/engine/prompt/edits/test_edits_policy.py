"""What a policy makes of a request: canonical text, what the wire says, edges, and the next conversation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.api import anthropic_parse, chat_parse
from engine.errors import BadRequest
from engine.prompt.conversation import (
    Block,
    Conversation,
    Media,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from engine.prompt.edits import ops, wire
from engine.prompt.edits.outline import Outline, Select, block_at
from engine.prompt.edits.places import shared
from engine.prompt.edits.policy import EditPolicy, Hint, Turn
from engine.prompt.edits.template import Template
from engine.prompt.language import Language

BASE: dict[str, Any] = {"schema": "edits/1", "harness": "h", "versions": ">=1"}
PLAIN = Template("plain")


def system(*texts: str) -> Message:
    return Message("system", tuple(Text(t) for t in texts))


def user(*texts: str) -> Message:
    return Message("user", tuple(Text(t) for t in texts))


def said(text: str, *calls: str) -> Message:
    blocks: list[Block] = [Text(text), *(ToolCall(c, "bash", "{}") for c in calls)]
    return Message("assistant", tuple(blocks))


def results(**texts: str) -> Message:
    return Message("tool", tuple(ToolResult(id, (Text(t),)) for id, t in texts.items()))


def policy(**sections: Any) -> EditPolicy:
    return EditPolicy.compose({**BASE, **sections}, PLAIN)


def turn(language: Language, *messages: Message, **fields: Any) -> Turn:
    conversation = Conversation(tuple(messages))
    return Turn(conversation, language.render(conversation), fields.pop("window", 10_000), 1_000, **fields)


def rule(op: str, at: str, **fields: Any) -> dict[str, Any]:
    return {"id": "r", "op": op, "at": [at], "known": "record", "when": "always", **fields}


REPLY: tuple[Block, ...] = (Text("done"),)
CALL: tuple[Block, ...] = (Text("look"), ToolCall("c9", "bash", "{}"))


def test_volatile_lines_go_and_user_text_with_the_same_words_stays() -> None:
    volatile = [{"at": "system.block[0]", "re": "^x-billing:", "action": "strip"}]
    declared = policy(wire={"volatile": volatile})
    sent = Conversation((system("x-billing: 1f", "S"), user("x-billing: mine")))
    assert declared.canonical(sent, {}) == Conversation((system("S"), user("x-billing: mine")))
    within = Conversation((system("x-billing: 1f\nrest\nx-billing: later"), user("u")))
    assert declared.canonical(within, {}).messages[0] == system("rest\nx-billing: later")
    kept = Conversation((system("S", "x-billing: 2"), user("u")))
    assert declared.canonical(kept, {}) is kept


def test_volatile_text_may_repeat_and_may_be_everything() -> None:
    volatile = [{"at": "system", "re": "(?m)^Now: ", "action": "strip"}]
    declared = policy(wire={"volatile": volatile})
    sent = Conversation((system("a\nNow: 1\nb\nNow: 2", "Now: 3"), user("u")))
    assert declared.canonical(sent, {}).messages == (system("a\nb\n"), user("u"))
    assert declared.canonical(Conversation((system("Now: 3"), user("u"))), {}).messages == (user("u"),)


def test_late_system_messages_and_deferred_tools_as_declared() -> None:
    tool = Tool("t", "", {}, deferred=True)
    sent = Conversation((system("S"), user("u"), system("late")), (tool,))
    assert policy().canonical(sent, {}) is sent
    found = policy(render={"system_mid": "user", "deferred_tools": "head"}).canonical(sent, {})
    assert [m.role for m in found.messages] == ["system", "user", "user"] and not found.tools[0].deferred


def test_the_wire_names_session_subagent_epoch_and_kind() -> None:
    declared = policy(
        wire={
            "session": ["header:x-session", "body:metadata.user_id:json(session_id)"],
            "parent": ["header:x-agent-id:presence"],
            "epoch": ["header:x-window:after(':')"],
            "kind": ["header:x-meta:json(kind)"],
        }
    )
    headers = {"x-session": "s1", "x-window": "s1:4", "x-meta": '{"kind": "compaction"}'}
    found = declared.wire(headers, {})
    assert (found.session, found.parent, found.epoch, found.kind) == ("s1", "", "4", "compaction")
    assert declared.wire({**headers, "x-agent-id": "a7"}, {}).parent == "s1"
    assert declared.wire({**headers, "x-agent-id": "a7"}, {}).session == "s1/a7"
    assert declared.wire({}, {"metadata": {"user_id": json.dumps({"session_id": "s2"})}}).session == "s2"
    assert declared.wire(headers, {"epoch": 9}).epoch == "9"
    for odd in ({"metadata": []}, {"metadata": {"user_id": "{"}}, {"epoch": True}, {"epoch": [1]}):
        assert declared.wire({}, odd) == policy().wire({}, {})


@pytest.mark.parametrize(
    ("hints", "field"),
    [
        ({}, "edit_hints:"),
        ([1], "edit_hints[0]:"),
        ([{"at": "last.start"}], "edit_hints[0].op"),
        ([{"at": "last.start", "op": "append"}], "edit_hints[0].op"),
        ([{"at": "there", "op": "drop_block"}], "edit_hints[0].at"),
        ([{"at": "last.start", "op": "drop_block", "after": "soon"}], "edit_hints[0].after"),
        ([{"at": "last.start", "op": "drop_block", "when": "x"}], "edit_hints[0].when"),
        ([{"at": "last.start", "op": "drop_block"}] * 257, "edit_hints:"),
    ],
)
def test_malformed_hints_are_refused_by_field(hints: Any, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        policy().wire({}, {"edit_hints": hints})
    assert caught.value.message.startswith(field)


MARK = {"cache_control": {"type": "ephemeral"}}
MESSAGES = {
    "tools": [{"name": "t", "input_schema": {}, **MARK}],
    "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "MARK1", **MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "MARK2", **MARK}]},
        {"role": "system", "content": "mid"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "c", "name": "t", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}, {"type": "text", "text": "MARK3", **MARK}]},
    ],
}  # fmt: skip
CHAT = {
    "messages": [
        {"role": "developer", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "MARK1", **MARK}]},
        {"role": "assistant", "content": "x", "reasoning_content": "t", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}, {"id": "d", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "tool", "tool_call_id": "d", "content": "MARK2", **MARK},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "y"}, {"type": "text", "text": "MARK3", **MARK}]},
    ]
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "conversation"),
    [(MESSAGES, anthropic_parse.conversation(MESSAGES)), (CHAT, chat_parse.conversation(CHAT))],
    ids=["messages", "chat"],
)
def test_marks_are_the_blocks_that_the_parsers_made(body: dict[str, Any], conversation: Conversation) -> None:
    marks = wire.marks_of(body)
    texts = [repr(block_at(conversation, mark)) for mark in marks if mark[0] >= 0]
    assert [f"MARK{i + 1}" in text for i, text in enumerate(texts)] == [True, True, True]
    assert ((-1, 0) in marks) is ("tools" in body)


def test_odd_bodies_have_no_marks() -> None:
    for body in (
        {},
        {"messages": 3},
        {"messages": [1, {"role": "user"}, {"content": [None]}]},
        {"system": {}, "tools": 1},
    ):
        assert wire.marks_of(body) == ()


def test_marks_and_hints_become_edit_points(hybrid: Language) -> None:
    messages = (system("S"), user("q"), said("a", "c1"), results(c1="out " * 20), said("b"), user("next"))
    hints = (Hint("result(c1).start", "clear_result"),)
    declared = EditPolicy.compose(BASE, hybrid.template)
    points = declared.anchors(turn(hybrid, *messages, hints=hints, marks=((1, 0),)))
    prompt = hybrid.render(Conversation(messages))
    by_edge = {p.edge: hybrid.decode(prompt.tokens[: p.position]) for p in points}
    assert by_edge["mark"].endswith("q<|im_end|>\n")
    assert by_edge["hint result(c1).start"].rstrip("\n").endswith("<tool_response>")
    assert "prompt.end" in by_edge


def test_declared_edges_resolve_in_a_real_prompt(hybrid: Language) -> None:
    messages = (
        system("Rules.\nToday's date: 1", "more"),
        user("<system-reminder>git", "first"),
        said("a", "c1", "c2"),
        results(c1="one", c2="two"),
        said("b"),
        user("second", "<system-reminder>plan"),
    )
    expected = {
        "head.end": "more<|im_end|>\n",
        "system.block[0].end": "date: 1",
        "system.re('Today.s date').start": "<|im_start|>system\n",
        "message[0].block[0].end": "<system-reminder>git",
        "message[0].end": "first<|im_end|>\n",
        "first(1).end": "first<|im_end|>\n",
        "message[-1].start": "b<|im_end|>\n",
        "user[-1].block[0].end": "second",
        "user[0].end": "first<|im_end|>\n",
        "turn[0].query.end": "first<|im_end|>\n",
        "last.start": "b<|im_end|>\n",
        "nth_newest(tool_result, 1).start": "one\n</tool_response>\n",
        "result(c1).start": "<|im_start|>user\n",
        "prompt.end": "<system-reminder>plan<|im_end|>\n",
        "tail('^second').start": "b<|im_end|>\n",
    }
    keeps = [{"edge": edge, "class": "live", "quota": 1} for edge in expected]
    for keep in keeps:
        declared = policy(keep=[keep], render={"not_query": ["^<system-reminder>"]})
        here = turn(hybrid, *messages)
        found = [p for p in declared.anchors(here) if p.edge == keep["edge"]]
        assert found, keep["edge"]
        before = hybrid.decode(here.prompt.tokens[: found[0].position])
        assert before.endswith(expected[keep["edge"]]), (keep["edge"], before[-60:])


@pytest.mark.parametrize(
    ("edge", "before"),
    [
        ("system.re('Today.s date').start", "Be brief.\n"),
        ("message[0].re('<all>').start", "Sum up:\n"),
        ("user[-1].re('<all>\\n').end", "Sum up:\n<all>\n"),
    ],
)
def test_a_place_inside_a_block_is_found_by_its_tokens(hybrid: Language, edge: str, before: str) -> None:
    declared = EditPolicy.compose({**BASE, "keep": [{"edge": edge, "class": "head"}]}, hybrid.template)
    here = turn(hybrid, system("Rules. Be brief.\nToday's date: 1"), user("Sum up:\n<all>\none\n</all>"))
    (point,) = [p for p in declared.anchors(here) if p.edge == edge]
    date = 2 if edge.startswith("system") else 1
    messages = (system(f"Rules. Be brief.\nToday's date: {date}"), user("Sum up:\n<all>\ntwo\n</all>"))
    other = hybrid.render(Conversation(messages))
    assert other.tokens[: point.position] == here.prompt.tokens[: point.position]
    assert hybrid.decode(here.prompt.tokens[: point.position]).endswith(before)


@pytest.mark.parametrize("left_out", [["edit"], ["bash", "write"], ["write"]])
def test_a_prompt_without_some_tools_forks_at_their_edge(hybrid: Language, left_out: list[str]) -> None:
    edge = f"tool({', '.join(left_out)}).start"
    declared = EditPolicy.compose({**BASE, "keep": [{"edge": edge, "class": "head"}]}, hybrid.template)

    def asked(tools: list[Tool], question: str) -> Turn:
        conversation = Conversation((system("S"), user(question)), tuple(tools))
        return Turn(conversation, hybrid.render(conversation), 10_000, 1_000)

    tools = [Tool(name, f"To {name}.", {"type": "object"}) for name in ("bash", "edit", "read", "write")]
    here, other = asked(tools, "one"), asked([tool for tool in tools if tool.name not in left_out], "two")
    (point,) = [p for p in declared.anchors(here) if p.edge == edge]
    assert point.position == shared(here.prompt.tokens, other.prompt.tokens)
    assert not [p for p in declared.anchors(other) if p.edge == edge]


def test_a_head_forks_behind_its_header_from_another_head(hybrid: Language) -> None:
    declared = EditPolicy.compose({**BASE, "keep": [{"edge": "head.start", "class": "prompt"}]}, hybrid.template)
    points = [p for p in declared.anchors(turn(hybrid, system("S"), user("u"))) if p.edge == "head.start"]
    assert [hybrid.decode(hybrid.render(Conversation((system("T"),))).tokens[: p.position]) for p in points] == [
        "<|im_start|>system\n"
    ]


def test_a_client_that_declares_nothing_may_send_back_another_answer(hybrid: Language) -> None:
    policy = EditPolicy.compose(None, hybrid.template)
    here = turn(hybrid, system("S"), user("u"))
    other = hybrid.render(Conversation((system("S"), user("u"), said("mine"), user("more"))))
    assert shared(here.prompt.tokens, other.tokens) in [p.position for p in policy.anchors(here)]


def test_edges_that_a_prompt_does_not_have_give_no_points(hybrid: Language) -> None:
    edges = ["message[7].end", "user[-4].end", "nth_newest(tool_result, 2).start", "result(zz).start", "summary.start"]
    keeps = [{"edge": edge, "class": "live"} for edge in [*edges, "turn[5].query.end", "oldest(image).start"]]
    points = policy(keep=keeps).anchors(turn(hybrid, system("S"), user("u")))
    assert [p.edge for p in points] == ["prompt.end"]


def test_classes_and_quotas_travel_and_the_most_protected_class_wins(hybrid: Language) -> None:
    keeps = [
        {"edge": "prompt.end", "class": "live", "quota": 2},
        {"edge": "turn[-1].query.end", "class": "turn", "quota": 3},
        {"edge": "head.end", "class": "head", "quota": 2},
    ]
    points = policy(keep=keeps).anchors(
        turn(hybrid, system("S"), user("u1"), said("a"), user("u2"), said("b"), user("u3"))
    )
    assert [(p.kind, p.quota) for p in points] == [("head", 2), ("turn", 3), ("turn", 3), ("turn", 3)]
    assert [p.edge for p in points] == ["head.end"] + ["turn[-1].query.end"] * 3
    assert [p.position for p in points] == sorted(p.position for p in points)


def test_observe_mode_keeps_the_default_edges_too(hybrid: Language) -> None:
    declaration = {**BASE, "keep": [{"edge": "prompt.end", "class": "live", "quota": 2}]}
    here = turn(hybrid, system("S"), user("u"), said("a"), user("v"))
    inside = EditPolicy.compose(declaration, PLAIN, "1.0").anchors(here)
    outside = EditPolicy.compose(declaration, PLAIN, "0.9").anchors(here)
    assert {p.position for p in inside} < {p.position for p in outside}


def test_a_keep_of_a_rule_depends_on_it(hybrid: Language) -> None:
    reminder = {
        **rule("drop_block", "user[-1].block[0].end", known="request"),
        "when": "matches(user[-1].block[-1].end, '^<system-reminder>')",
    }
    keep = [{"edge": "user[-1].block[0].end", "class": "reminder", "quota": 1, "if": "rule:r"}]
    declared = policy(rule=[reminder], keep=keep)
    with_it = declared.anchors(turn(hybrid, user("u", "<system-reminder>x")))
    without = declared.anchors(turn(hybrid, user("u", "more")))
    assert "reminder" in {p.kind for p in with_it} and {p.kind for p in without} == {"prompt"}


def test_prune_waits_for_the_next_user_turn_its_setting_and_its_size(hybrid: Language) -> None:
    prune = rule(
        "clear_result",
        "oldest(tool_result, not_cleared, except skill).start",
        when="chars4(prunable) > 10",
        enabled="config:compaction.prune",
        applies="next_user_turn",
        placeholder="[cleared]",
        select={"kind": "tool_result", "before": "user[-2].start", "keep_chars4": 30, "except_tools": ["skill"]},
    )
    history = (user("a"), said("x", "c1"), results(c1="o" * 200), said("y", "c2"), results(c2="n" * 100), said("z"))
    messages = (*history, user("b"), said("w"), user("c"))
    declared = policy(rule=[prune])
    on = turn(hybrid, *messages, config={"compaction": {"prune": True}})
    first = declared.predict(on, REPLY, 1)[0]
    assert first.rule == "r" and first.expects == "user"
    cleared = [b.content for m in first.conversation.messages for b in m.blocks if isinstance(b, ToolResult)]
    assert cleared == [(Text("[cleared]"),), (Text("n" * 100),)]
    assert declared.predict(on, CALL, 1)[0].rule == ""
    assert declared.predict(replace(on, config={}), REPLY, 1)[0].rule == ""
    small = policy(rule=[{**prune, "when": "chars4(prunable) > 50"}])
    assert small.predict(on, REPLY, 1)[0].rule == ""


def test_compaction_is_predicted_from_usage_at_its_threshold(hybrid: Language) -> None:
    compact = rule("summarize", "message[0].block[0].end", known="reply", when="total >= window - 1000")
    declared = policy(rule=[compact])
    here = turn(hybrid, system("S"), user("env", "task"), said("a"), user("next"))
    size = len(here.prompt.tokens)
    at = replace(here, window=size + 10 + 1000)
    assert [p.rule for p in declared.predict(at, REPLY, 9)] == [""]
    found = declared.predict(at, REPLY, 10)
    assert [p.rule for p in found] == ["r"], "what was said so far does not go on"
    assert found[0].conversation.messages == (system("S"), user("env"))
    certain = hybrid.decode(hybrid.certain(found[0]))
    assert certain.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nenv") and "task" not in certain
    in_session = policy(
        rule=[compact], side=[{"kind": "compaction", "match": {"last_block_re": "^Summarize"}, "head": "session"}]
    )
    assert [p.rule for p in in_session.predict(at, REPLY, 10)] == ["", "r"]


def test_compaction_keeps_the_newest_user_messages_where_declared(hybrid: Language) -> None:
    compact = rule("summarize", "head.end", known="reply", tail={"users": "6", "place": "before_summary"})
    here = turn(hybrid, system("S"), user("o" * 40), said("a"), user("m" * 12), said("b"), user("n" * 12))
    found = policy(rule=[compact]).predict(here, REPLY, 1)[0]
    assert found.conversation.messages == (system("S"), user("m" * 12), user("n" * 12), Message("user", ()))
    told = hybrid.render(replace(here.conversation, messages=(*found.conversation.messages[:-1], user("So far: x"))))
    certain = hybrid.certain(found)
    assert told.tokens[: len(certain)] == certain
    assert hybrid.decode(certain).endswith("n<|im_end|>\n<|im_start|>user\n")


def test_ends_lie_behind_what_an_answer_and_another_user_message_share(hybrid: Language) -> None:
    edges = [{"edge": "turn[-1].query.end", "class": "turn"}, {"edge": "prompt.end", "class": "live"}]
    here = turn(hybrid, system("S"), user("q"), said("a", "c"), results(c="r"), marks=((3, 0),))
    keeping = rule("summarize", "head.end", known="reply", tail={"users": "6", "place": "before_summary"})
    served = replace(hybrid.template, thinking="all", keeps=())
    in_session = {"kind": "compaction", "match": {"last_block_re": "^Summarise"}, "head": "session"}
    for sections in ({"rule": [keeping]}, {"side": [in_session]}):
        points = EditPolicy.compose({**BASE, "keep": edges, **sections}, served).anchors(here)
        before = {p.edge: hybrid.decode(here.prompt.tokens[: p.position]) for p in points}
        assert set(before) >= {"turn[-1].query.end", "prompt.end"} and "mark" not in before
        assert all(before[edge["edge"]].endswith("<|im_end|>\n<|im_start|>") for edge in edges), sections


def test_hints_are_applied_when_they_say(hybrid: Language) -> None:
    messages = (user("a"), said("x", "c1"), results(c1="long"), said("y"), user("b"))
    hints = (Hint("result(c1).start", "clear_result", "user", "[gone]"),)
    here = turn(hybrid, *messages, hints=hints)
    assert policy().predict(here, CALL, 1)[0].rule == ""
    found = policy().predict(here, REPLY, 1)[0]
    assert found.rule == "hint:clear_result" and found.conversation.messages[2] == results(c1="[gone]")
    now = replace(here, hints=(Hint("result(c1).start", "clear_result", "", "[gone]"),))
    assert policy().predict(now, CALL, 1)[0].conversation.messages[2] == results(c1="[gone]")


def test_operations_are_pure_and_do_one_thing() -> None:
    sent = Conversation((system("S"), user("a", "b"), said("x", "c1"), results(c1="1\n2\n3"), user("last")))
    before = repr(sent)
    assert ops.clear_result(sent, [(3, 0)], "({lines} lines)").messages[3] == results(c1="(3 lines)")
    assert ops.drop_block(sent, [(1, 1)]).messages[1] == user("a")
    assert ops.drop_block(sent, [(4, 0)]).messages == sent.messages[:4]
    assert ops.move_tail(sent).messages == sent.messages[:4]
    assert ops.move_tail(sent, lambda text: text == "other") is sent
    assert ops.insert_block(sent, (1, 1), Text("i")).messages[1] == user("a", "i", "b")
    assert ops.truncate_turns(sent, 1).messages == sent.messages[:1]
    assert ops.replace_head(sent, ["T"]).messages == (system("T"), *sent.messages[1:])
    assert ops.reorder(sent, 1, [1, 0]).messages[1:3] == (sent.messages[2], sent.messages[1])
    assert ops.reorder(sent, 1, [0, 0]) is sent
    assert ops.summarize(sent, (1, 1)).messages == (system("S"), user("a"))
    assert ops.append(sent, []) is sent and ops.clear_result(sent, [], "x") is sent
    assert repr(sent) == before


def test_thinking_media_and_calls_are_edited_in_place() -> None:
    call = ToolCall("c1", "bash", '{"b": 1, "a": [1, 2]}')
    picture = Message("user", (Text("see"), Media("image")))
    shot = Message("tool", (ToolResult("c1", (Text("ok"), Media("image"))),))
    sent = Conversation((picture, Message("assistant", (Thinking("t"), call)), shot))
    assert ops.drop_thinking(sent, 2).messages[1].blocks == (call,)
    assert ops.drop_thinking(sent, 1) is sent
    found = ops.strip_media(sent, [(0, 1), (2, 0)], "image", "[image]")
    assert found.messages[0] == user("see", "[image]")
    assert found.messages[2] == Message("tool", (ToolResult("c1", (Text("ok"), Text("[image]"))),))
    compact = ops.rewrite_call(sent, [(1, 1)], "json_compact").messages[1].blocks[1]
    assert compact == replace(call, arguments='{"b":1,"a":[1,2]}')
    ordered = ops.rewrite_call(sent, [(1, 1)], "json_sorted").messages[1].blocks[1]
    assert ordered == replace(call, arguments='{"a": [1, 2], "b": 1}')


def test_batches_count_the_results_that_are_about_to_come() -> None:
    outline = Outline(
        Conversation((user("a"), *(m for i in range(5) for m in (said("x", f"c{i}"), results(**{f"c{i}": "r"})))))
    )
    select = Select(keep_newest=3, batch=2)
    assert len(select.places(outline, lambda text: False)) == 2
    assert len(Select(keep_newest=4, batch=2).places(outline, lambda text: False)) == 0
    assert len(Select(keep_newest=4, batch=2).places(outline, lambda text: False, coming=1)) == 2
