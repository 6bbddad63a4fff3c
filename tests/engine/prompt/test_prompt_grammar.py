"""Whatever the logits say, the answer obeys: random logits stand for the worst model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Message, Text, Tool, ToolChoice
from engine.prompt.dialects.hermes import DIALECT
from engine.prompt.grammar import Matcher, load_tokenizer
from engine.prompt.language import Language
from engine.prompt.output import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer
from engine.weights.manifest import load_manifest

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "mode": {"enum": ["fast", "slow", "ünï"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
        "deep": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False},
    },
    "required": ["mode", "count", "deep"],
    "additionalProperties": False,
}  # fmt: skip
READ = Tool("read", "", SCHEMA)
STOP = Tool("stop", "", {"properties": {}, "additionalProperties": False}, namespace="mcp__ctl")
USER = (Message("user", (Text("chat with me"),)),)


def check(arguments: dict[str, Any]) -> None:
    assert set(arguments) <= set(SCHEMA["properties"]) and set(SCHEMA["required"]) <= set(arguments)
    assert arguments["mode"] in ("fast", "slow", "ünï")
    assert type(arguments["count"]) is int and 1 <= arguments["count"] <= 99
    assert type(arguments["deep"]["ok"]) is bool and len(arguments["deep"]) == 1
    assert all(isinstance(n, str) and len(n) <= 6 for n in arguments.get("names", [])[:3])
    assert len(arguments.get("names", [])) <= 3


def generate(model: Path, grammar: str, thoughts: list[int] | None = None, budget: int = 2000) -> list[int]:
    """Tokens sampled uniformly from the allowed ones, after forcing `thoughts`; without the end-of-turn token."""
    manifest = load_manifest(model)
    size = manifest.geometry.vocab_size
    tokenizer = load_tokenizer(model / manifest.tokenizer, size, manifest.eos_token_ids)
    matcher = Matcher(tokenizer, grammar)
    ids = []
    for token in thoughts or []:
        assert matcher.advance(token)
        ids.append(token)
    while not matcher.done:
        assert len(ids) < budget
        mask = matcher.mask(budget - len(ids))
        assert len(mask) == (size + 7) // 8
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:size]
        token = random.choice(np.flatnonzero(bits).tolist())
        if token in manifest.eos_token_ids:
            break
        assert not matcher.advance(int(bits.argmin()))
        assert matcher.advance(token)
        ids.append(token)
    return ids


def text_of(language: Language, ids: list[int]) -> str:
    stream = language.stream()
    return stream.feed(ids) + stream.finish()


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "read")])
def test_tool_choice_is_obeyed_twenty_times_of_twenty(models_dir: Path, smollm: Language, choice: ToolChoice) -> None:
    random.seed(4)
    conversation = Conversation(USER, (READ, STOP), choice)
    grammar = smollm.grammar(conversation)
    assert grammar is not None
    names = set()
    for _ in range(20):
        parser = smollm.parser(conversation)
        events = parser.feed(text_of(smollm, generate(models_dir / "smollm2-moe", grammar))) + parser.finish()
        start, delta, _ = events
        assert isinstance(start, ToolCallStart) and isinstance(delta, ToolCallDelta)
        names.add((start.namespace, start.name))
        if start.name == "read":
            check(json.loads(delta.arguments))
        else:
            assert isinstance(json.loads(delta.arguments), dict)
    assert names == ({("", "read")} if choice.mode == "named" else {("", "read"), ("mcp__ctl", "stop")})


OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": {"type": "object"},
        "inner": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    },
    "required": ["text", "inner"],
}


@pytest.mark.parametrize("name", ["smollm2-moe", "tiny-hybrid"])
def test_a_call_ends_in_its_budget_whatever_the_schema_leaves_open(
    models_dir: Path, smollm: Language, hybrid: Language, name: str
) -> None:
    random.seed(8)
    language = smollm if name == "smollm2-moe" else hybrid
    tools = (Tool("write", "", OPEN), Tool("now", "", {"type": "object"}), Tool("later", "", {}))
    called = set()
    for i in range(20):
        choice = [ToolChoice("required"), *(ToolChoice("named", tool.name) for tool in tools)][i % 4]
        conversation = Conversation(USER, tools, choice, thinking=False)
        grammar = language.grammar(conversation)
        assert grammar is not None
        ids = generate(models_dir / name, grammar, budget=200)
        parser = language.parser(conversation)
        start, delta, _ = parser.feed(text_of(language, ids)) + parser.finish()
        assert isinstance(start, ToolCallStart) and isinstance(delta, ToolCallDelta)
        arguments = json.loads(delta.arguments)
        called.add(start.name)
        if start.name == "write":
            assert {"text", "inner"} <= set(arguments) <= set(OPEN["properties"]) and set(arguments["inner"]) == {"a"}
        else:
            assert arguments == {}
    assert called == {"write", "now", "later"}


def test_an_open_answer_and_open_thinking_end_in_their_budget(
    models_dir: Path, smollm: Language, hybrid: Language
) -> None:
    random.seed(9)
    for _ in range(5):
        grammar = smollm.grammar(Conversation(USER, response_schema={}))
        assert grammar is not None
        assert isinstance(json.loads(text_of(smollm, generate(models_dir / "smollm2-moe", grammar, budget=60))), dict)
        conversation = Conversation(USER, (Tool("write", "", OPEN),), ToolChoice("required"))
        grammar = hybrid.grammar(conversation)
        assert grammar is not None
        text = text_of(hybrid, generate(models_dir / "tiny-hybrid", grammar, budget=150))
        events = (parser := hybrid.parser(conversation)).feed(text) + parser.finish()
        assert isinstance(events[-2], ToolCallDelta)


def test_response_schema_is_obeyed_twenty_times_of_twenty(models_dir: Path, smollm: Language) -> None:
    random.seed(5)
    grammar = smollm.grammar(Conversation(USER, response_schema=SCHEMA))
    assert grammar is not None
    for _ in range(20):
        check(json.loads(text_of(smollm, generate(models_dir / "smollm2-moe", grammar))))


def test_an_empty_response_schema_means_any_object(models_dir: Path, smollm: Language) -> None:
    grammar = smollm.grammar(Conversation(USER, response_schema={}))
    assert grammar is not None
    model = models_dir / "smollm2-moe"
    tokenizer = load_tokenizer(model / "tokenizer.json", 49152, (2, 0))
    assert Matcher(tokenizer, grammar).advance(smollm.encode("{")[0])
    assert not Matcher(tokenizer, grammar).advance(smollm.encode("[")[0])


def test_open_thinking_comes_first_and_tags_are_control_tokens(models_dir: Path, hybrid: Language) -> None:
    random.seed(6)
    conversation = Conversation(USER, (READ,), ToolChoice("required"))
    grammar = hybrid.grammar(conversation)
    assert grammar is not None
    control = hybrid._tokenizer.control
    for _ in range(5):
        thoughts = [*hybrid.encode("I think {so}.\n"), control["</think>"]]
        ids = generate(models_dir / "tiny-hybrid", grammar, thoughts)
        assert ids.count(control["<tool_call>"]) == ids.count(control["</tool_call>"]) == 1
        parser = hybrid.parser(conversation)
        events = parser.feed(text_of(hybrid, ids)) + parser.finish()
        assert events[0] == ThinkingDelta("I think {so}.")
        delta = events[2]
        assert isinstance(delta, ToolCallDelta)
        check(json.loads(delta.arguments))


def test_a_schema_leaves_the_model_free_to_call_tools(models_dir: Path, smollm: Language) -> None:
    conversation = Conversation(USER, (READ,), response_schema=SCHEMA)
    grammar = smollm.grammar(conversation)
    assert grammar is not None
    tokenizer = load_tokenizer(models_dir / "smollm2-moe" / "tokenizer.json", 49152, (2, 0))
    assert Matcher(tokenizer, grammar).advance(smollm.encode("{")[0])
    assert Matcher(tokenizer, grammar).advance(smollm.encode("<tool_call>")[0])


def test_nothing_to_enforce(language: Language) -> None:
    assert language.grammar(Conversation(USER, (READ,))) is None
    assert language.grammar(Conversation(USER, (READ,), ToolChoice("none"))) is None


def test_tool_choice_none_gives_text(language: Language) -> None:
    parser = language.parser(Conversation(USER, (READ,), ToolChoice("none"), thinking=False))
    text = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    events = parser.feed(text) + parser.finish()
    assert all(isinstance(event, TextDelta) for event in events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, "not"),
        ({"type": "string", "format": "no-such-format"}, "no-such-format"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(smollm: Language, schema: dict[str, Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        smollm.grammar(Conversation(USER, response_schema=schema))
    tool = Tool("t", "", {"type": "object", "properties": {"x": schema}})
    with pytest.raises(BadRequest, match=named):
        smollm.grammar(Conversation(USER, (tool,), ToolChoice("required")))


def test_choices_that_cannot_be_met_are_refused(smollm: Language) -> None:
    with pytest.raises(BadRequest, match="'write'"):
        smollm.grammar(Conversation(USER, (READ,), ToolChoice("named", "write")))
    with pytest.raises(BadRequest, match="no tools"):
        smollm.grammar(Conversation(USER, (), ToolChoice("required")))


def test_a_broken_grammar_is_refused(models_dir: Path) -> None:
    tokenizer = load_tokenizer(models_dir / "smollm2-moe" / "tokenizer.json", 49152, (2, 0))
    with pytest.raises(BadRequest):
        Matcher(tokenizer, "{}")


def test_open_thinking_spelled_in_ordinary_tokens(models_dir: Path) -> None:
    random.seed(7)
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
    )
    model = models_dir / "smollm2-moe"
    tokenizer = Tokenizer.load(model / "tokenizer.json")
    language = Language(tokenizer, ChatTemplate(template, {}), DIALECT, [2], True)
    conversation = Conversation(USER, response_schema=SCHEMA)
    grammar = language.grammar(conversation)
    assert grammar is not None
    for _ in range(5):
        ids = generate(model, grammar, language.encode("well < so </ yes\n</think>"))
        parser = language.parser(conversation)
        thinking, *answer = parser.feed(text_of(language, ids)) + parser.finish()
        assert thinking == ThinkingDelta("well < so </ yes")
        check(json.loads("".join(event.text for event in answer if isinstance(event, TextDelta))))
