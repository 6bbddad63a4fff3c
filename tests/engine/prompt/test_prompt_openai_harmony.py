"""gpt-oss' dialect against its authors' library: what one writes the other reads.

Needs openai-harmony and its vocabulary, o200k_base.tiktoken, in the folder that TIKTOKEN_ENCODINGS_BASE names.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from engine.prompt.conversation import Block, Text, Thinking, Tool, ToolCall
from engine.prompt.dialects import dialects
from tests.engine.prompt.reading import Found, run, written

if not os.environ.get("TIKTOKEN_ENCODINGS_BASE"):
    pytest.skip("TIKTOKEN_ENCODINGS_BASE names no folder with o200k_base.tiktoken", allow_module_level=True)
harmony = pytest.importorskip("openai_harmony")
DIALECT = dialects()["harmony"]
TOOLS = [Tool("read", "", {"type": "object", "properties": {"path": {"type": "string"}}}), Tool("stop", "", {})]


@pytest.fixture(scope="module")
def encoding() -> Any:
    return harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def reference(encoding: Any, text: str) -> Found:
    """What the library makes of an answer, in the words of ours."""
    tokens = encoding.encode(text, allowed_special="all")
    found: Found = []
    for message in encoding.parse_messages_from_completion_tokens(tokens, harmony.Role.ASSISTANT):
        body = "".join(part.text for part in message.content)
        if message.recipient:
            found.append(
                ("call", "", message.recipient.removeprefix("functions."), json.dumps(json.loads(body or "{}")))
            )
            continue
        kind, body = "thinking" if message.channel == "analysis" else "text", body.strip()
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + body)
        elif body:
            found.append((kind, body))
    return found


def ours(text: str) -> Found:
    found = run(DIALECT.parser(TOOLS, thinking_open=False, calls=True), [text])
    return [(*event[:3], json.dumps(json.loads(event[3]))) if event[0] == "call" else event for event in found]


def test_what_it_writes_is_read(encoding: Any) -> None:
    """Conversations as the library renders them, each answer as its messages."""
    chance = random.Random(5)
    says = ["Hm.", "Grüße, 你好 🎈", "a < b > c", "two\n\nlines", '{"json": 1}', "x"]
    for _ in range(200):
        messages = []
        for channel in chance.choices(["analysis", "commentary", "final"], k=chance.randint(1, 4)):
            made = harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, chance.choice(says))
            messages.append(made.with_channel(channel))
        if chance.random() < 0.6:
            arguments = json.dumps({"path": chance.choice(says)}, ensure_ascii=False)
            call = harmony.Message.from_role_and_content(harmony.Role.ASSISTANT, arguments)
            call = call.with_channel("commentary").with_recipient("functions.read")
            messages.append(call.with_content_type("<|constrain|>json") if chance.random() < 0.5 else call)
        tokens = encoding.render_conversation(harmony.Conversation.from_messages(messages))
        text = encoding.decode_utf8(tokens).removeprefix("<|start|>assistant")
        assert ours(text) == reference(encoding, text), text
        whole = [event for event in ours(text) if event[0] == "call"]
        for cut in range(len(tokens)):
            part = (
                encoding.decode_utf8(tokens[:cut]).removeprefix("<|start|>assistant")
                if _whole(encoding, tokens, cut)
                else ""
            )
            calls = [event for event in ours(part) if event[0] == "call"]
            assert calls == whole[: len(calls)]


def _whole(encoding: Any, tokens: list[int], cut: int) -> bool:
    """Whether the first `cut` tokens end between two characters."""
    try:
        encoding.decode_utf8(tokens[:cut])
    except Exception:
        return False
    return True


def test_what_we_write_is_read_by_it(encoding: Any) -> None:
    turns: list[list[Block]] = [
        [Text("Hello.")],
        [Thinking("Hm."), Text("Grüße, 你好 🎈")],
        [Thinking("Hm."), ToolCall("1", "read", '{"path": "dir/ä <|end b"}')],
        [Thinking("Hm."), Text("I look."), ToolCall("1", "read", '{"path": "x"}')],
        [ToolCall("1", "stop", "{}")],
    ]
    for blocks in turns:
        text = written(DIALECT, blocks)
        kinds = {Text: "text", Thinking: "thinking"}
        expected = [
            ("call", "", block.name, block.arguments)
            if isinstance(block, ToolCall)
            else (kinds[type(block)], block.text)
            for block in blocks
        ]
        found = reference(encoding, text)
        assert [
            (*e[:3], json.dumps(json.loads(e[3]), ensure_ascii=False)) if e[0] == "call" else e for e in found
        ] == expected
        assert ours(text) == found
