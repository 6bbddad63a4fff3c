from __future__ import annotations

import json
from typing import Any

import pytest

from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.script import Script
from engine.prompt.script_format import ScriptError

SCRIPT = {
    "turns": [
        {"blocks": [{"thinking": "plan"}, {"tool": "read", "args": {"path": "it's.py"}}]},
        {"blocks": [{"text": "running"}, {"tool": "bash", "args": {"command": "ls"}}]},
        {"blocks": [{"text": "done"}]},
    ],
    "subagents": [{"match": "count the files", "turns": [{"blocks": [{"text": "three"}]}]}],
    "side": "A title",
}
MAPPING = {
    "read": [
        {"name": "Read", "args": {"file_path": "{path}", "limit": 20, "opts": {"paths": ["{path}", True]}}},
        {"name": "exec", "args": {"cmd": "cat {path|sh}"}},
    ],
    "bash": [{"name": "exec", "args": {"cmd": "{command}"}}],
}
USER = Message("user", (Text("work"),))


def conversation(*messages: Message, tools: tuple[str, ...] = ("Read", "exec")) -> Conversation:
    return Conversation((USER, *messages), tuple(Tool(name, "", {}) for name in tools))


def assistant(text: str = "x") -> Message:
    return Message("assistant", (Text(text),))


def test_the_turn_is_the_number_of_assistant_turns() -> None:
    script = Script.parse(SCRIPT, MAPPING)
    first = script.turn_for(conversation()).blocks
    assert first[0] == Thinking("plan")
    assert isinstance(first[1], ToolCall) and first[1].name == "Read"
    assert json.loads(first[1].arguments) == {
        "file_path": "it's.py",
        "limit": 20,
        "opts": {"paths": ["it's.py", True]},
    }
    result = Message("user", (ToolResult("c", (Text("r"),)),))
    second = script.turn_for(conversation(assistant(), assistant("same turn"), result))
    assert second.blocks[0] == Text("running") and not second.side
    third = script.turn_for(conversation(assistant(), result, assistant(), result))
    assert third.blocks == (Text("done"),)


def test_the_first_offered_candidate_wins_and_shell_words_are_quoted() -> None:
    block = Script.parse(SCRIPT, MAPPING).turn_for(conversation(tools=("exec",))).blocks[1]
    assert isinstance(block, ToolCall) and block.name == "exec"
    assert json.loads(block.arguments) == {"cmd": "cat 'it'\"'\"'s.py'"}


def test_without_a_mapping_neutral_tools_stand_for_themselves() -> None:
    block = Script.parse(SCRIPT).turn_for(conversation(tools=("read",))).blocks[1]
    assert isinstance(block, ToolCall) and (block.name, json.loads(block.arguments)) == ("read", {"path": "it's.py"})


def test_side_requests_and_subagents_consume_no_main_turn() -> None:
    script = Script.parse(SCRIPT, MAPPING)
    side = script.turn_for(conversation(tools=()))
    assert side.side and side.blocks == (Text("A title"),)
    assert script.turn_for(conversation(), side="title").side
    child = Conversation((Message("user", (Text("please count the files"),)),), conversation().tools)
    assert script.turn_for(child).blocks == (Text("three"),)


def test_a_compaction_takes_turns_out_of_the_history() -> None:
    turns = [{"blocks": [{"text": f"turn {number}"}]} for number in range(8)]
    script = Script.parse({"turns": turns, "side": "A title", "compaction": "So far."})

    def played(answered: int) -> str:
        history = [message for _ in range(answered) for message in (assistant(), USER)]
        (block,) = script.turn_for(conversation(*history)).blocks
        assert isinstance(block, Text)
        return block.text

    assert [played(number) for number in range(4)] == ["turn 0", "turn 1", "turn 2", "turn 3"]
    assert script.turn_for(conversation(tools=()), "compaction").blocks == (Text("So far."),)
    assert script.turn_for(conversation(), "title").blocks == (Text("A title"),)
    assert played(4) == "turn 4", "the agent goes on before it uses the summary"
    assert [played(1), played(1), played(2)] == ["turn 5", "turn 5", "turn 6"], "a request sent again is answered again"
    script.turn_for(conversation(), "compaction")
    assert played(0) == "turn 7"
    plain = Script.parse({"turns": turns, "side": "A title"})
    assert plain.turn_for(conversation(tools=()), "compaction").blocks == (Text("A title"),)


def test_each_compaction_may_have_a_summary_of_its_own() -> None:
    turns = [{"blocks": [{"text": str(number)}]} for number in range(9)]
    script = Script.parse({"turns": turns, "compaction": ["First.", "Second."]})
    for summary in ("First.", "Second.", "Second."):
        script.turn_for(conversation(assistant(), USER))
        assert script.turn_for(conversation(), "compaction").blocks == (Text(summary),)
        assert script.turn_for(conversation(), "compaction").blocks == (Text(summary),), "an agent may ask twice"
        script.turn_for(conversation())


def test_running_out_and_missing_tools_are_errors() -> None:
    script = Script.parse(SCRIPT, MAPPING)
    with pytest.raises(ScriptError, match="run out: turn 4 was asked for, the main line has 3"):
        script.turn_for(conversation(*[assistant(), USER] * 3))
    with pytest.raises(ScriptError, match="offers none of: Read, exec"):
        script.turn_for(conversation(tools=("other",)))


@pytest.mark.parametrize(
    ("data", "mapping", "place"),
    [
        ([], None, "script must be a table, not list"),
        ({}, None, "script.turns must be a list, not nothing"),
        ({"turns": [{"blocks": []}]}, None, r"script.turns\[0\].blocks is empty"),
        ({"turns": [{"blocks": [{"text": "a", "thinking": "b"}]}]}, None, r"blocks\[0\] must have exactly one"),
        ({"turns": [{"blocks": [{"text": 1}]}]}, None, r"blocks\[0\].text must be a string, not int"),
        ({"turns": [{"blocks": [{"tool": "rm"}]}]}, None, r"blocks\[0\].tool is 'rm'"),
        ({"turns": [{"blocks": [{"tool": "bash", "args": {"x": 1}}]}]}, None, r"args has an unknown key 'x'"),
        ({"turns": [], "compaction": None}, None, "script.compaction must be a string, not nothing"),
        ({"turns": [], "subagents": [{"match": "", "turns": []}]}, None, r"subagents\[0\].match is empty"),
        ({"turns": []}, {"read": [{"args": {}}]}, r"tools.read\[0\].name must be a string, not nothing"),
        ({"turns": []}, {"fly": []}, "tools.fly maps an unknown tool"),
    ],
)
def test_mistakes_are_named_with_their_place(data: Any, mapping: Any, place: str) -> None:
    with pytest.raises(ScriptError, match=place):
        Script.parse(data, mapping)


def test_a_missing_argument_is_named() -> None:
    script = Script.parse({"turns": [{"blocks": [{"tool": "read", "args": {}}]}]}, MAPPING)
    with pytest.raises(ScriptError, match="lacks the argument 'path'"):
        script.turn_for(conversation())
