"""What follows from a family's chat template and control tokens, for every family."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolChoice, ToolResult
from engine.prompt.dialects import dialects
from engine.prompt.grammar import Matcher, load_tokenizer
from engine.prompt.language import Language
from engine.weights.speech import speech_of
from tests.engine.prompt.families import ARGUMENTS, FAMILIES, Spoken, shattered, speak
from tests.engine.prompt.reading import run

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}}},
    "required": ["path", "limit"],
}  # fmt: skip
TOOLS = (Tool("read", "", SCHEMA), Tool("stop", "", {}, namespace="mcp__ctl"))
ASKED = Conversation((Message("user", (Text("q"),)),), TOOLS)
CALL = ToolCall("call0123456789ABCDEFabcdefgh", "read", ARGUMENTS)
READ = ("call", "", "read", ARGUMENTS)
DONE = Message("tool", (ToolResult(CALL.id, (Text("done"),)),))
RESULT = Conversation((*ASKED.messages, Message("assistant", (CALL,)), DONE), TOOLS)


@pytest.fixture(scope="module", params=list(FAMILIES))
def spoken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    return speak(FAMILIES[request.param], tmp_path_factory.mktemp("family"))


def reread(language: Language, ids: list[int], conversation: Conversation = ASKED) -> list[tuple[str, ...]]:
    stream = language.stream()
    return run(language.parser(conversation), [stream.feed(ids), stream.finish()])


def test_the_template_gives_the_family_away(spoken: Spoken) -> None:
    speech, family = speech_of(spoken.family.template), spoken.family
    assert (speech.dialect, speech.template_family, speech.thinking) == (family.dialect, family.family, family.thinking)
    assert not speech.note
    assert spoken.language._renderer.thinking_open(ASKED) is family.opens
    assert spoken.language._renderer.thinking_open(RESULT) is (family.opens and family.always)


def test_every_dialect_has_a_family() -> None:
    assert {family.dialect for family in FAMILIES.values()} | {"harmony"} == set(dialects())


def test_calls_of_the_past_are_written_by_the_template(spoken: Spoken) -> None:
    prompt = spoken.language.render(RESULT)
    text = spoken.language.decode(prompt.tokens)
    assert spoken.family.call in text
    assert "done" in text.split(spoken.family.call)[1]
    kinds = {span.kind for span in prompt.spans}
    assert {"tool_call", "tool_result"} <= kinds


def test_a_scripted_turn_is_read_again_and_comes_back_in_its_own_tokens(spoken: Spoken) -> None:
    language, family = spoken.language, spoken.family
    thought = [Thinking("Hm.")] if family.thinks else []
    blocks = [*thought, CALL]
    ids = language.script_tokens(blocks, ASKED)
    found = reread(language, ids)
    assert [event for event in found if event != ("thinking", "Hm.")] == [READ]
    assert reread(language, language.script_tokens([Text("Hello.")], ASKED)) == [("text", "Hello.")]
    if not family.thinks:
        return
    assert found[0] == ("thinking", "Hm.")
    prompt = language.render(ASKED)
    language.remember(blocks, ids, prompt.tokens)
    after = language.render(Conversation((*ASKED.messages, Message("assistant", tuple(blocks)), DONE), TOOLS))
    generated = ids[: ids.index(language.stop_ids[0])]
    assert after.tokens[: len(prompt.tokens) + len(generated)] == prompt.tokens + generated


def test_an_answer_to_a_result_comes_back_in_its_own_tokens(spoken: Spoken) -> None:
    """Also where it goes on behind the result without a turn of its own, and when no tokenizer would choose its tokens."""
    language, family = spoken.language, spoken.family
    again = ToolCall("call1123456789ABCDEFabcdefgh", "read", ARGUMENTS)
    said = [Thinking("Hm.") if family.thinks else Text("Hm.")] if family.dialect != "llama" else []
    blocks = [*said, again]  # Llama's template has no text beside a call
    ids = shattered(language, language.script_tokens(blocks, RESULT))
    assert [event[-1] for event in reread(language, ids, RESULT)] == [*(block.text for block in said), ARGUMENTS]
    prompt = language.render(RESULT)
    language.remember(blocks, ids, prompt.tokens)
    done = Message("tool", (ToolResult(again.id, (Text("done"),)),))
    after = language.render(Conversation((*RESULT.messages, Message("assistant", tuple(blocks)), done), TOOLS))
    generated = ids[: ids.index(language.stop_ids[0])]
    assert after.tokens[: len(prompt.tokens) + len(generated)] == prompt.tokens + generated


def test_what_a_prompt_opens_is_what_stands_at_its_end(spoken: Spoken) -> None:
    """For conversations of every order of roles, thinking or not."""
    chance, marks = random.Random(spoken.family.dialect), spoken.language._dialect.markers["thinking"]
    seen = set()
    for turn in range(60):
        messages, words = [], [f"w{turn}x{i}w" for i in range(chance.randint(1, 6))]
        for i, word in enumerate(words):
            role = chance.choice(["user", "user", "system", "call"]) if i else "user"
            if role == "call":
                call = ToolCall(f"call{turn:012}{i:012}", "read", ARGUMENTS)
                result = Message("tool", (ToolResult(call.id, (Text(word),)),))
                messages += [Message("assistant", (call,)), result]
            else:
                messages.append(Message(role, (Text(word),)))
        conversation = Conversation(tuple(messages), TOOLS, thinking=chance.choice([True, False, None]))
        text = spoken.language.decode(spoken.language.render(conversation).tokens)
        tail = text[max(text.rfind(word) + len(word) for word in words) :]
        opened = tail.rfind(marks.open) > tail.rfind(marks.close)
        assert spoken.language._renderer.thinking_open(conversation) is opened, text
        seen.add(opened)
    assert (True in seen) is spoken.family.opens


def test_case_23_an_answer_is_the_same_however_its_bytes_arrive(spoken: Spoken) -> None:
    """Each byte is a token here: one by one, and in two parts cut at every one of them."""
    language, family = spoken.language, spoken.family
    texts = [Thinking("Ü 🎈 `x`")] if family.thinks else []
    call = ToolCall("call1", "read", '{"path": "dir/ä 🎈 b.txt", "limit": 3, "list": ["<é>"]}')
    ids = language.script_tokens([*texts, Text("Grüße, 你好."), call], ASKED)
    whole = reread(language, ids)
    assert [event[0] for event in whole] == [*(["thinking"] if texts else []), "text", "call"]
    assert json.loads(whole[-1][3]) == json.loads(call.arguments)

    def pieces(*parts: list[int]) -> list[tuple[str, ...]]:
        stream = language.stream()
        return run(language.parser(ASKED), [*(stream.feed(part) for part in parts), stream.finish()])

    assert pieces(*([token] for token in ids)) == whole
    for cut in range(len(ids)):
        assert pieces(ids[:cut], ids[cut:]) == whole


def test_case_28_an_answer_cut_at_any_token_has_whole_arguments_or_no_call(spoken: Spoken) -> None:
    language = spoken.language
    arguments = {"path": "dir/ä b.txt", "limit": 12}
    ids = language.script_tokens([ToolCall("call1", "read", json.dumps(arguments)), CALL], ASKED)
    most = 0
    for cut in range(len(ids)):
        calls = [event for event in reread(language, ids[:cut]) if event[0] == "call"]
        assert [json.loads(call[3]) for call in calls] == [arguments, json.loads(ARGUMENTS)][: len(calls)]
        most = max(most, len(calls))
    assert most >= 1


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "read")])
def test_tool_choice_is_obeyed_twenty_times_of_twenty(spoken: Spoken, choice: ToolChoice) -> None:
    """Whatever the logits say, thinking or not, with control tokens and within the budget."""
    random.seed(11)
    language, size = spoken.language, spoken.language.vocab_size
    tokenizer = load_tokenizer(spoken.tokenizer_file, size, tuple(language.stop_ids))
    for turn in range(20):
        conversation = Conversation(ASKED.messages, TOOLS, choice, thinking=bool(turn % 2))
        grammar = language.grammar(conversation)
        assert grammar is not None
        matcher, ids, budget = Matcher(tokenizer, grammar), list[int](), 600
        while not matcher.done:
            bits = np.unpackbits(np.frombuffer(matcher.mask(budget - len(ids)), np.uint8), bitorder="little")[:size]
            token = random.choice(np.flatnonzero(bits).tolist())
            if token in language.stop_ids:
                break
            assert matcher.advance(token) and len(ids) < budget
            ids.append(token)
        *before, (kind, namespace, name, arguments) = reread(language, ids, conversation)
        assert kind == "call" and all(event[0] == "thinking" for event in before)
        values = json.loads(arguments)
        if choice.mode == "named" or name == "read":
            assert (namespace, name) == ("", "read")
            assert {"path", "limit"} <= set(values) <= set(SCHEMA["properties"])
            assert isinstance(values["path"], str) and type(values["limit"]) is int
        else:
            assert (namespace, name, values) == ("mcp__ctl", "stop", {})


def test_malformed_arguments_in_history_are_served(spoken: Spoken) -> None:
    broken = ToolCall(CALL.id, "read", '{"path": ')
    prompt = spoken.language.render(Conversation((*ASKED.messages, Message("assistant", (broken,)), DONE), TOOLS))
    text = spoken.language.decode(prompt.tokens)
    assert '{"path": ' in text and "done" in text
