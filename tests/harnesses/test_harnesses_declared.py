"""Declarations without a launcher: what they say happens, happens in the prompt exactly there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.bench.toy import language
from engine.prompt.conversation import Conversation, Message, Text, Tool, ToolCall, ToolResult
from engine.prompt.edits import declaration as parsed
from engine.prompt.edits.policy import EditPolicy, Turn
from harnesses import registry
from harnesses.contract import HarnessError, LaunchContext

DECLARED = ("aider", "cline", "dsh", "mini_swe_agent", "roo", "swe_agent")
TOOLS = (Tool("bash", "Run.", {"type": "object"}),)
WINDOW = 100_000
MakeContext = Callable[..., LaunchContext]


def wired(name):
    return registry.wire_declaration(registry.read_declaration(registry.ROOT / name))


def said(role, text):
    return Message(role, (Text(text),))


def turn_of(conversation, **more):
    return Turn(conversation, language().render(conversation), WINDOW, 4000, **more)


def policy_of(name):
    return EditPolicy.compose(wired(name), language().template)


def test_these_have_a_declaration_and_no_launcher():
    assert registry.declared() == list(DECLARED)
    assert not set(DECLARED) & set(registry.names())


@pytest.mark.parametrize("name", [*DECLARED, "generic", "qwen", "hermes"])
def test_the_engine_takes_it(name):
    parsed.parse(wired(name))


@pytest.mark.parametrize("name", DECLARED)
def test_a_program_is_known_by_its_name(name, make_context: MakeContext):
    data = registry.read_declaration(registry.ROOT / name)
    assert data["launch"]["source"]
    programs = data["launch"]["executables"]
    assert {registry.program_of(word) for word in (name, name.replace("_", "-"), *programs)} == {programs[0]}
    for program in programs:
        harness = registry.load_command(f"/usr/bin/{program}")
        assert (harness.name, harness.observe) == (name, False)
        values = {v.name: v for v in harness.adapter.inject(make_context()).env}
        assert values["OPENAI_BASE_URL"].value == "http://127.0.0.1:1919/s/s-abcdefghij/v1"
        assert values["OPENAI_API_KEY"].secret


def test_any_other_program_is_observed(make_context: MakeContext, tmp_path: Path):
    assert registry.program_of("my-agent") is None
    harness = registry.load_command("my-agent")
    assert harness.observe and harness.adapter.executables == ("my-agent",) and harness.adapter.version_args == ()
    context = make_context(args=["fix", "it"], env={"OPENAI_API_KEY": "sk-real", "OPENAI_ORG_ID": "org"})
    injection = harness.adapter.inject(context)
    assert injection.argv == ["fix", "it"] and injection.unset == ["OPENAI_ORG_ID"]
    assert not any("sk-real" in v.value for v in injection.env)
    with pytest.raises(HarnessError) as refusal:
        harness.adapter.inject(make_context(window_tokens=1000, max_output_tokens=100))
    assert refusal.value.code == 5
    draft = tmp_path / "draft.toml"
    draft.write_text('schema = "edits/1"\nharness = "mine"\nversions = ">=1"\n')
    assert registry.load_command("my-agent", draft).declaration["harness"] == "mine"
    draft.write_text("schema =")
    with pytest.raises(ValueError, match=r"draft\.toml"):
        registry.load_command("my-agent", draft)


def steps(count):
    made = [said("system", "Head."), said("user", "Fix it.")]
    for number in range(count):
        made.append(Message("assistant", (ToolCall(f"c{number}", "bash", '{"command":"ls"}'),)))
        made.append(Message("tool", (ToolResult(f"c{number}", (Text(f"line {number}\n" * 7),)),)))
    return made


def test_swe_agent_leaves_five_observations():
    conversation = Conversation(tuple(steps(6)), tools=TOOLS)
    turn = turn_of(conversation, config={"history_processors": {"last_n_observations": True}})
    reply = (ToolCall("c6", "bash", '{"command":"pwd"}'),)
    guess = policy_of("swe_agent").predict(turn, reply, 10)[0]
    expected = steps(6)
    for number in range(2):  # with the seventh that is coming
        text = "Old environment output: (7 lines omitted)"
        expected[3 + 2 * number] = Message("tool", (ToolResult(f"c{number}", (Text(text),)),))
    expected.append(Message("assistant", reply))
    assert guess.conversation == Conversation(tuple(expected), tools=TOOLS)
    assert guess.rule == "last_n"
    off = policy_of("swe_agent").predict(turn_of(conversation), reply, 10)[0]
    assert off.conversation.messages == (*conversation.messages, Message("assistant", reply))


def test_mini_swe_agent_only_grows():
    conversation = Conversation(tuple(steps(9)), tools=TOOLS)
    reply = (Text("Next."), ToolCall("c9", "bash", '{"command": "pwd"}'))
    guesses = policy_of("mini_swe_agent").predict(turn_of(conversation), reply, 10)
    assert [g.conversation.messages for g in guesses] == [(*conversation.messages, Message("assistant", reply))]


def aider(done, asked):
    files = [
        said(
            "user",
            "I have *added these files to the chat* so you can go ahead and edit them.\n\ncalc.py\n" + "x = 1\n" * 40,
        ),
        said("assistant", "Ok, any changes I propose will be to those files."),
    ]
    return Conversation((said("system", "Act as an expert."), *done, *files, said("user", asked)))


def test_aider_forks_before_the_files_at_each_message_of_the_user():
    before = aider([], "Add a test.")
    done = [said("user", "Add a test."), said("assistant", "Here it is.")]
    after = aider(done, "And another.")
    made = language()
    old, new = made.render(before).tokens, made.render(after).tokens
    fork = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    kept = [point.position for point in policy_of("aider").anchors(turn_of(before)) if point.position <= fork]
    assert 0 <= fork - max(kept) <= 2, "what stays is kept up to the text of the message that moves"


@pytest.mark.parametrize(("name", "kept"), [("cline", 2), ("roo", 1)])
def test_a_condensed_conversation_keeps_its_beginning(name, kept):
    conversation = Conversation(tuple(steps(4)), tools=TOOLS)
    turn = Turn(conversation, language().render(conversation), 200, 50)
    guess = policy_of(name).predict(turn, (ToolCall("c4", "bash", "{}"),), 10)[0]
    assert guess.rule == "condense"
    assert guess.conversation.messages[: kept + 1] == conversation.messages[: kept + 1]
    assert not any(m in conversation.messages for m in guess.conversation.messages[kept + 1 :])


@pytest.mark.parametrize("name", ["cline", "roo"])
def test_what_the_editor_shows_leaves_with_the_next_message(name):
    texts = (Text("Fix it."), Text("<environment_details>\nopen: calc.py\n</environment_details>"))
    conversation = Conversation((said("system", "Head."), Message("user", texts)), tools=TOOLS)
    guess = policy_of(name).predict(turn_of(conversation), (Text("Done."),), 10)[0]
    assert guess.conversation.messages == (said("system", "Head."), said("user", "Fix it."), said("assistant", "Done."))
