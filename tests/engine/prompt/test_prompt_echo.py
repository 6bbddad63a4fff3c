"""Prompt N+1 must extend prompt N and the generated tokens exactly, however the model cut its text into tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.language import Language
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart

READ = Tool("read", "Reads.", {"type": "object"})


def blocks_of(language: Language, conversation: Conversation, ids: Sequence[int]) -> list[Block]:
    """What the front makes of generated tokens."""
    stream, parser = language.stream(), language.parser(conversation)
    events = parser.feed(stream.feed(ids) + stream.finish()) + parser.finish()
    blocks: list[Block] = []
    for event in events:
        last = blocks[-1] if blocks else None
        if isinstance(event, TextDelta):
            blocks[-1:] = [Text(last.text + event.text)] if isinstance(last, Text) else [*blocks[-1:], Text(event.text)]
        elif isinstance(event, ThinkingDelta):
            text = last.text + event.text if isinstance(last, Thinking) else event.text
            blocks[-1:] = [Thinking(text)] if isinstance(last, Thinking) else [*blocks[-1:], Thinking(text)]
        elif isinstance(event, ToolCallStart):
            blocks.append(ToolCall(event.id, event.name, ""))
        elif isinstance(event, ToolCallDelta):
            assert isinstance(last, ToolCall)
            blocks[-1] = ToolCall(last.id, last.name, last.arguments + event.arguments)
    return blocks


def shatter(language: Language, ids: Sequence[int]) -> list[int]:
    """Other tokens for the same text: ordinary tokens are spelled in random pieces, as a sampling model may do."""
    control = set(language._tokenizer.control.values())
    result: list[int] = []
    for token in ids:
        text = language.decode([token])
        if token in control or "\ufffd" in text or random.random() < 0.5:
            result.append(token)
        else:
            cut = random.randint(0, len(text))
            result += language.encode(text[:cut]) + language.encode(text[cut:])
    return result


def reserialised(block: Block) -> Block:
    if not isinstance(block, ToolCall):
        return block
    return ToolCall(block.id, block.name, json.dumps(json.loads(block.arguments), indent=2, sort_keys=True))


def reply(number: int) -> list[Block]:
    blocks: list[Block] = []
    if random.random() < 0.6:
        blocks.append(Thinking(random.choice(["short", "one\n\ntwo  `x`", "Zoë 日本 🎈\n- a\n- b"])))
    if random.random() < 0.6:
        blocks.append(Text(random.choice(["Ok.", "Let me see:\n\n```py\nx = 1\n```", "日本 🎈 <b>"])))
    if not blocks or random.random() < 0.6:
        for _ in range(random.randint(1, 2)):
            arguments = {"z": f'é "{number}"\n', "a": [1, {"k": None}], "path": "x.py"}
            blocks.append(ToolCall("unused", "read", json.dumps(arguments, ensure_ascii=False)))
    return blocks


@pytest.mark.parametrize("thinking", [None, False])
def test_the_next_prompt_extends_this_one_and_its_answer(fresh: Language, thinking: bool | None) -> None:
    random.seed(2)
    for _ in range(8):
        messages = [Message("system", (Text("S"),)), Message("user", (Text("go"),))]
        for number in range(5):
            conversation = Conversation(tuple(messages), (READ,), thinking=thinking)
            prompt = fresh.render(conversation)
            script = [b for b in reply(number) if thinking is None or not isinstance(b, Thinking)]
            script = script or [Text("x")]
            generated = shatter(fresh, fresh.script_tokens(script, conversation))
            blocks = blocks_of(fresh, conversation, generated)
            assert [type(b) for b in blocks] == [type(b) for b in script]
            fresh.remember(blocks, generated, prompt.tokens)
            messages.append(Message("assistant", tuple(reserialised(b) for b in blocks)))
            results = tuple(ToolResult(b.id, (Text("result"),)) for b in blocks if isinstance(b, ToolCall))
            messages.append(Message("user", results or (Text("next"),)))
            following = fresh.render(Conversation(tuple(messages), (READ,), thinking=thinking))
            expected = prompt.tokens + generated
            assert following.tokens[: len(expected)] == expected
            position = 0
            for span in following.spans:
                assert span.start == position < span.end
                position = span.end
            assert position == len(following.tokens)


def test_an_answer_that_was_cut_is_remembered_unless_inside_a_call(fresh: Language) -> None:
    random.seed(3)
    user = Message("user", (Text("go"),))
    asked = Conversation((user,), (READ,), thinking=False)
    prompt = fresh.render(asked)
    call = ToolCall("unused", "read", '{"path": "x.py"}')
    generated = shatter(fresh, fresh.script_tokens([Text("Let me see: 日本"), call], asked))[:-1]
    for size in range(1, len(generated) + 1):
        ids = generated[:size]
        blocks = blocks_of(fresh, asked, ids)
        fresh.remember(blocks, ids, prompt.tokens)
        following = fresh.render(
            Conversation((user, Message("assistant", tuple(blocks)), user), (READ,), thinking=False)
        )
        expected = prompt.tokens + ids
        text = fresh.decode(ids)
        if text.rfind("<tool_call>") > text.rfind("</tool_call>"):
            assert following.tokens[: len(expected)] != expected
        else:
            assert following.tokens[: len(expected)] == expected, size


def test_what_looks_like_half_a_call_is_text_where_nothing_can_be_called(models_dir: Path) -> None:
    hybrid = Language.load(models_dir / "tiny-hybrid")
    user = Message("user", (Text("go"),))
    asked = Conversation((user,), thinking=False)
    prompt = hybrid.render(asked).tokens
    (opening,) = [t for t in range(hybrid.vocab_size) if hybrid.decode([t]) == "<tool_call>"]
    words = hybrid.encode("some words that go on")
    for place in range(len(words) + 1):
        ids = [*words[:place], opening, *words[place:]]
        blocks = blocks_of(hybrid, asked, ids)
        hybrid.remember(blocks, ids, prompt, calls=False)
        following = hybrid.render(Conversation((user, Message("assistant", tuple(blocks)), user), thinking=False))
        assert following.tokens[: len(prompt) + len(ids)] == [*prompt, *ids]


def test_spans_inside_a_remembered_turn_follow_its_blocks(models_dir: Path) -> None:
    hybrid = Language.load(models_dir / "tiny-hybrid")
    blocks = [Thinking("hm"), Text("Reading."), ToolCall("callA", "read", '{"path": "a"}')]
    hybrid.remember(blocks, hybrid.script_tokens(blocks))
    conversation = Conversation((Message("user", (Text("u"),)), Message("assistant", tuple(blocks))), (READ,))
    prompt = hybrid.render(conversation)
    texts = {s.kind: hybrid.decode(prompt.tokens[s.start : s.end]).strip() for s in prompt.spans if s.message == 1}
    assert texts["thinking"] == "hm\n</think>"
    assert texts["text"] == "Reading."
    assert texts["tool_call"] == '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def test_without_memory_a_scripted_turn_renders_to_the_same_tokens(hybrid: Language) -> None:
    """A script must replay onto the same cached prefix after a restart."""
    blocks = [Thinking("fresh thought"), Text("Reading it."), ToolCall("callB", "read", '{"path": "b"}')]
    user = Message("user", (Text("u"),))
    before = hybrid.render(Conversation((user,), (READ,)))
    after = hybrid.render(Conversation((user, Message("assistant", tuple(blocks))), (READ,)))
    expected = before.tokens + hybrid.script_tokens(blocks)
    assert after.tokens[: len(expected)] == expected


def test_a_changed_turn_is_rendered_as_the_client_sent_it(fresh: Language) -> None:
    blocks = [Text("The answer is 4.")]
    fresh.remember(blocks, fresh.script_tokens(blocks))
    user = Message("user", (Text("u"),))
    prompt = fresh.render(Conversation((user, Message("assistant", (Text("The answer is 5."),)))))
    text = fresh.decode(prompt.tokens)
    assert "is 5." in text and "is 4." not in text


def test_thinking_that_the_client_dropped_stays_dropped(fresh: Language) -> None:
    blocks = [Thinking("secret plan"), Text("Done.")]
    fresh.remember(blocks, fresh.script_tokens(blocks))
    user = Message("user", (Text("u"),))
    prompt = fresh.render(Conversation((user, Message("assistant", (Text("Done."),)))))
    assert "secret plan" not in fresh.decode(prompt.tokens)


def test_a_template_that_drops_old_thinking_keeps_dropping_it(models_dir: Path) -> None:
    dropping = Language.load(models_dir / "tiny-hybrid", preserve_thinking=False)
    user = Message("user", (Text("u"),))
    blocks = [Thinking("old plan"), Text("Done."), ToolCall("callC", "read", "{}")]
    asked = dropping.render(Conversation((user,), (READ,)))
    generated = dropping.script_tokens(blocks)
    dropping.remember(blocks, generated, asked.tokens)
    turn, result = Message("assistant", tuple(blocks)), Message("user", (ToolResult("callC", (Text("r"),)),))
    within = dropping.render(Conversation((user, turn, result), (READ,)))
    expected = asked.tokens + generated
    assert within.tokens[: len(expected)] == expected
    later = dropping.render(Conversation((user, turn, result, user), (READ,)))
    assert "old plan" not in dropping.decode(later.tokens)
    assert later.tokens[: asked.end] == asked.tokens[: asked.end]
