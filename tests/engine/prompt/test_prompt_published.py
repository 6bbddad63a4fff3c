"""Against chat templates as published: what a template writes of an answer is what its dialect reads, and what a script writes.

FT_TEMPLATES names a folder of them, such as models/templates in the sources of llama.cpp. Mistral's own come from mistral_common,
where it is installed.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking, Tool, ToolCall, ToolResult
from engine.prompt.dialects import find
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.weights.speech import speech_of
from tests.engine.prompt.families import FAMILIES, byte_tokenizer
from tests.engine.prompt.reading import Found, run


@dataclass(frozen=True)
class Published:
    """`opens`: thinking for a question, and for a result. `keeps`: what of thinking and of text it shows beside a call."""

    file: str
    dialect: str
    opens: tuple[bool, bool] = (False, False)
    keeps: tuple[bool, bool] = (True, True)
    together: bool = True  # several calls in one turn
    spelled: bool = True  # a script writes the very text of the template


TABLE = [
    Published("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek", (True, False), (False, True)),
    # Somebody else's template: its own authors publish code, which writes a call without arguments as we do.
    Published("deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v32", (True, True), spelled=False),
    Published("deepseek-ai-DeepSeek-V4.jinja", "deepseek_v4", (True, True)),
    Published("GLM-4.6.jinja", "glm"),
    Published("GLM-4.7-Flash.jinja", "glm_47", (True, True)),
    Published("Kimi-K2-Thinking.jinja", "kimi"),
    Published("moonshotai-Kimi-K2.jinja", "kimi"),
    Published("Kimi-K3.jinja", "kimi_k3", (True, True)),
    Published("MiniMax-M2.jinja", "minimax", (True, True), spelled=False),
    Published("openai-gpt-oss-120b.jinja", "harmony", keeps=(True, False), together=False, spelled=False),
    Published("Qwen-Qwen3-0.6B.jinja", "hermes"),
    Published("Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", spelled=False),
    Published("NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "hermes", keeps=(False, False)),
    Published("Qwen3-Coder.jinja", "qwen_xml"),
    Published("Qwen3.5-4B.jinja", "qwen_xml", (True, True)),
    Published("meta-llama-Llama-3.1-8B-Instruct.jinja", "llama", keeps=(False, False), together=False),
    Published("mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral_json", keeps=(False, False), spelled=False),
    Published("Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral", keeps=(False, False), spelled=False),
    Published("mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral"),
    Published("mistral_common v3", "mistral_json", keeps=(False, False), spelled=False),
    Published("mistral_common v7", "mistral_json", spelled=False),
    Published("mistral_common v11", "mistral", spelled=False),
    Published("mistral_common v13", "mistral"),
    Published("mistral_common v13 thinking_support", "mistral"),
]
VALUES = {"path": 'dir/ä "b" <c> & \\ d', "limit": 3, "text": "two\n\nlines", "list": ["x", "é"], "deep": {"k": None}}
KINDS = {"path": "string", "limit": "integer", "text": "string", "list": "array", "deep": "object"}
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {name: {"type": kind} for name, kind in KINDS.items()}}
TOOLS = (Tool("read", "Reads.", PARAMETERS), Tool("get", "Gets.", {"type": "object", "properties": {}}))
ASKED = Conversation((Message("user", (Text("Q7Q"),)),), TOOLS)
READ = ToolCall("call00000000000000000000001a", "read", json.dumps(VALUES, ensure_ascii=False))
GET = ToolCall("call00000000000000000000002b", "get", "{}")


def source_of(file: str) -> str:
    """The template's text; skips the test where it is not here."""
    package, *asked = file.split()
    if package == "mistral_common":
        made = pytest.importorskip("mistral_common.integrations.chat_templates.template_generator")
        base = pytest.importorskip("mistral_common.tokens.tokenizers.base")
        config = made.TemplateConfig(version=base.TokenizerVersion(asked[0]), **dict.fromkeys(asked[1:], True))
        return str(made.build_chat_template(config))
    if "FT_TEMPLATES" not in os.environ:
        pytest.skip("FT_TEMPLATES names no folder of published chat templates")
    return (Path(os.environ["FT_TEMPLATES"]) / file).read_text()


@pytest.fixture(scope="module", params=TABLE, ids=lambda one: one.file.removesuffix(".jinja"))
def case(request: pytest.FixtureRequest) -> Published:
    return request.param


@pytest.fixture(scope="module")
def language(case: Published, tmp_path_factory: pytest.TempPathFactory) -> Language:
    source = source_of(case.file)
    speech = speech_of(source)
    assert speech.dialect == case.dialect and not speech.note
    family = next((family for family in FAMILIES.values() if family.dialect == case.dialect), None)
    control = [*family.control, family.end] if family else []
    control += re.findall(r"<\|[a-z_]+\|>", source)
    end = next(
        token
        for token in [*speech.ends, "<|im_end|>", "<|eot_id|>", *control[::-1]]
        if token in [*control, *speech.ends]
    )
    end = family.end if family and family.end in [*control] and family.dialect not in ("hermes", "qwen_xml") else end
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("published") / "tokenizer.json", [*control, *speech.ends])
    ends = list(dict.fromkeys([tokenizer.control[end], *(tokenizer.control[text] for text in speech.ends)]))
    template = ChatTemplate(source, {"bos_token": "", "eos_token": end})
    return Language(tokenizer, template, find(speech.dialect), ends, speech.thinking, family=speech.template_family)


def turn(language: Language, *blocks: Block) -> str:
    """What the template writes of an answer, behind the opening of its turn and up to the end of it."""
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    results = [Message("tool", (ToolResult(call.id, (Text("D9D"),)),)) for call in calls]
    messages = (*ASKED.messages, Message("assistant", blocks), *results)
    text = language.decode(language.render(Conversation(messages, TOOLS)).tokens)
    text = text.rpartition("Q7Q")[2].partition("D9D")[0]
    renderer = language._renderer
    marks = language._dialect.markers["thinking"]
    openings = [renderer._tails.opening(own, "user") for own in (True, False)]
    openings += [opening.partition(marks.open)[0] for opening in openings if marks.open in opening]
    start, opening = max((text.find(opening) + len(opening), opening) for opening in openings if opening in text)
    opened = marks.open if opening.rfind(marks.open) > opening.rfind(marks.close) else ""
    stops = [language.decode([token]) for token in language.stop_ids]
    body = text[start:]
    return opened + body[: min((at for stop in stops if (at := body.find(stop)) >= 0), default=len(body))]


def read(language: Language, text: str) -> Found:
    return run(language._dialect.parser(TOOLS, thinking_open=False, calls=True), [text])


def expected(*blocks: Block) -> list[Any]:
    def one(block: Block) -> Any:
        if isinstance(block, ToolCall):
            return ("call", block.name, json.loads(block.arguments))
        return ("thinking" if isinstance(block, Thinking) else "text", block.text)

    return [one(block) for block in blocks]


def told(found: Found) -> list[Any]:
    return [("call", event[2], json.loads(event[3])) if event[0] == "call" else event for event in found]


def test_what_it_opens_for_a_question_and_for_a_result(case: Published, language: Language) -> None:
    result = Message("tool", (ToolResult(READ.id, (Text("D9D"),)),))
    after = Conversation((*ASKED.messages, Message("assistant", (READ,)), result), TOOLS)
    opened = []
    marks = language._dialect.markers["thinking"]
    for conversation, word in ((ASKED, "Q7Q"), (after, "D9D")):
        tail = language.decode(language.render(conversation).tokens).rpartition(word)[2]
        opened.append(tail.rfind(marks.open) > tail.rfind(marks.close))
        assert language._renderer.thinking_open(conversation) is opened[-1]
    assert tuple(opened) == case.opens


def test_what_it_writes_is_read(case: Published, language: Language) -> None:
    assert told(read(language, turn(language, READ))) == expected(READ)
    thinking, text = case.keeps
    found = told(read(language, turn(language, Thinking("Hm."), READ)))
    assert found == expected(*([Thinking("Hm.")] if thinking else []), READ)
    calls = [READ, GET] if case.together else [READ]
    found = told(read(language, turn(language, Text("I look."), *calls)))
    assert [event for event in found if event[0] != "thinking"] == expected(
        *([Text("I look.")] if text else []), *calls
    )


def test_a_script_writes_what_it_writes(case: Published, language: Language) -> None:
    if not case.spelled:
        pytest.skip("the template has a form of its own for history")
    kinds: list[list[Block]] = [[READ]]
    kinds += [[Thinking("Hm."), READ]] if case.keeps[0] else []
    kinds += [[Text("I look."), READ, GET]] if case.keeps[1] and case.together else []
    for blocks in kinds:
        ids = language.script_tokens(
            blocks, Conversation(ASKED.messages, TOOLS, thinking=isinstance(blocks[0], Thinking))
        )
        written = language.decode([token for token in ids if token not in language.stop_ids])
        assert turn(language, *blocks).endswith(written), blocks
