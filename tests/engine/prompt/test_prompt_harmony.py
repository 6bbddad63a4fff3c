"""gpt-oss' dialect, beyond what every dialect promises: read, written, rendered by a template of its kind, and enforced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.prompt.conversation import Conversation, Message, Text, Thinking, Tool, ToolCall, ToolChoice, ToolResult
from engine.prompt.dialects import dialects
from engine.prompt.grammar import Matcher, load_tokenizer
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer
from tests.engine.prompt.families import byte_tokenizer
from tests.engine.prompt.reading import Found, is_read, run, soup

DIALECT = dialects()["harmony"]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (Tool("read", "", SCHEMA), Tool("get", "", {}, namespace="mcp__web"))
CONTROL = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
READ = ("call", "", "read", '{"path": "a"}')
# As published: analysis only while no final message follows, one call a message, results named by the last call.
TEMPLATE = """{%- if messages[0].role == "system" %}{% set rules = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set rules = "" %}{% set rest = messages %}{% endif %}
{{- "<|start|>system<|message|>You are a model.<|end|>" }}
{%- if rules or tools %}{{ "<|start|>developer<|message|>" + rules }}
{%- for tool in tools or [] %}{{ "\\n" + tool.function.name + " " + (tool.function.parameters | tojson) }}{% endfor %}
{{- "<|end|>" }}{% endif %}
{%- set last = namespace(name=none) %}
{%- for m in rest %}
{%- if m.role == "assistant" and "tool_calls" in m %}
{%- set done = namespace(found=false) %}
{%- for later in rest[loop.index:] %}{% if later.role == "assistant" and "tool_calls" not in later %}{% set done.found = true %}{% endif %}{% endfor %}
{%- set call = m.tool_calls[0].function %}
{%- if m.content and m.thinking %}{{ raise_exception("not both") }}
{%- elif (m.content or m.thinking) and not done.found %}{{ "<|start|>assistant<|channel|>analysis<|message|>" + (m.content or m.thinking) + "<|end|>" }}{% endif %}
{{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" }}{{ call.arguments | tojson }}{{ "<|call|>" }}
{%- set last.name = call.name %}
{%- elif m.role == "assistant" %}
{%- if loop.last and not add_generation_prompt and m.thinking %}{{ "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}{% endif %}
{{- "<|start|>assistant<|channel|>final<|message|>" + m.content }}{{ "<|return|>" if loop.last and not add_generation_prompt else "<|end|>" }}
{%- elif m.role == "tool" %}
{%- if last.name is none %}{{ raise_exception("no call") }}{% endif %}
{{- "<|start|>functions." + last.name + " to=assistant<|channel|>commentary<|message|>" }}{{ m.content | tojson }}{{ "<|end|>" }}
{%- else %}{{ "<|start|>user<|message|>" + m.content + "<|end|>" }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|start|>assistant" }}{% endif %}"""

CASES = [
    (FINAL + "Hello.", [("text", "Hello.")]),
    (ANALYSIS + "Hm." + NEXT + FINAL + "Hello.", [("thinking", "Hm."), ("text", "Hello.")]),
    (ANALYSIS + "Hm." + NEXT + '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a"}', [("thinking", "Hm."), READ]),
    (ANALYSIS + "Hm." + NEXT + ' to=functions.read<|channel|>commentary json<|message|>{"path": "a"}<|call|>', [("thinking", "Hm."), READ]),
    (' to=functions.read<|channel|>analysis code<|message|>{"path": "a"}', [READ]),
    ("<|channel|>commentary<|message|>I look." + NEXT + '<|channel|>commentary to=functions.read<|message|>{"path": "a"}', [("text", "I look."), READ]),
    (" to=functions.mcp__web__get<|channel|>commentary json<|message|>", [("call", "mcp__web", "get", "{}")]),
    (" to=functions.read<|channel|>commentary json<|message|>{\"path\": ", [("text", '{"path":')]),
    (" to=functions.re!ad<|channel|>commentary json<|message|>{}", [("text", "{}")]),
    (ANALYSIS + "one" + NEXT + ANALYSIS + "two" + NEXT + FINAL + "x", [("thinking", "onetwo"), ("text", "x")]),
    ("No header at all, to=nobody.", [("text", "No header at all, to=nobody.")]),
    ("t", [("text", "t")]),
    ("<|channel|>fin", []),
    (FINAL + "a < b <|en", [("text", "a < b <|en")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_an_answer_is_read_however_it_is_cut(text: str, expected: Found) -> None:
    is_read(DIALECT, text, TOOLS, expected)


def test_calls_are_text_when_they_are_off() -> None:
    parser = DIALECT.parser((), thinking_open=False, calls=False)
    assert run(parser, [' to=functions.read<|channel|>commentary json<|message|>{"path": "a"}']) == [
        ("text", '{"path": "a"}')
    ]


def test_token_soup_never_breaks_the_rules_and_never_depends_on_cuts() -> None:
    words = [
        " to=functions.read",
        "analysis",
        "final",
        "commentary",
        '{"path": "a"}',
        "{",
        "}",
        " ",
        "\n",
        "x",
        "<",
        "to=",
    ]
    soup(DIALECT, [*CONTROL, *words], TOOLS)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("harmony") / "tokenizer.json"
    byte_tokenizer(path, list(CONTROL))
    return path


@pytest.fixture
def language(tokenizer_file: Path) -> Language:
    tokenizer = Tokenizer.load(tokenizer_file)
    stops = [tokenizer.control[token] for token in ("<|return|>", "<|call|>")]
    return Language(tokenizer, ChatTemplate(TEMPLATE, {}), DIALECT, stops, True, family="gpt-oss")


ASKED = Conversation((Message("system", (Text("Rules."),)), Message("user", (Text("q <|end|>"),))), TOOLS)
CALL = ToolCall("call1", "read", '{"path": "a"}')


def reread(language: Language, ids: list[int]) -> list[tuple[str, ...]]:
    stream = language.stream()
    return run(language.parser(ASKED), [stream.feed(ids), stream.finish()])


def test_a_turn_is_written_as_the_model_writes_it(language: Language) -> None:
    ids = language.script_tokens([Thinking("Hm."), CALL], ASKED)
    assert language.decode(ids) == (
        ANALYSIS
        + "Hm."
        + NEXT
        + '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a"}<|call|><|return|>'
    )
    assert reread(language, ids) == [("thinking", "Hm."), READ]
    ids = language.script_tokens([Thinking("Hm."), Text("Hello <|end|>.")], ASKED)
    assert language.decode(ids) == ANALYSIS + "Hm." + NEXT + FINAL + "Hello <|end|>.<|return|>"
    assert (
        len(ids) == len("analysisHm.assistantfinalHello <|end|>.") + 7
    )  # the frame is control tokens, the text is not


def test_a_call_and_its_result_come_back_in_the_models_own_tokens(language: Language) -> None:
    prompt = language.render(ASKED)
    assert language.decode(prompt.tokens).endswith("<|start|>user<|message|>q <|end|><|end|><|start|>assistant")
    blocks = [Thinking("Hm."), CALL]
    ids = [token for token in language.script_tokens(blocks, ASKED) if token != language.stop_ids[0]]
    language.remember(blocks, ids, prompt.tokens)
    result = Message("tool", (ToolResult("call1", (Text('text "quoted"'),)),))
    after = language.render(Conversation((*ASKED.messages, Message("assistant", tuple(blocks)), result), TOOLS))
    assert after.tokens[: len(prompt.tokens) + len(ids)] == prompt.tokens + ids
    text = language.decode(after.tokens)
    assert text.endswith(
        '<|call|><|start|>functions.read to=assistant<|channel|>commentary<|message|>"text \\"quoted\\""<|end|><|start|>assistant'
    )
    kinds = {span.kind: language.decode(after.tokens[span.start : span.end]) for span in after.spans}
    assert kinds["thinking"] == ANALYSIS + "Hm.<|end|>"
    assert '"text' in kinds["tool_result"]


def test_past_thinking_is_dropped_once_an_answer_follows(language: Language) -> None:
    messages = (
        *ASKED.messages,
        Message("assistant", (Thinking("Hm."), CALL)),
        Message("tool", (ToolResult("call1", (Text("r"),)),)),
        Message("assistant", (Thinking("So."), Text("Done."))),
        Message("user", (Text("next"),)),
    )
    text = language.decode(language.render(Conversation(messages, TOOLS)).tokens)
    assert "Hm." not in text
    assert "So." not in text
    assert FINAL + "Done.<|end|><|start|>user<|message|>next" in text
    assert language.template.strips(tools=True)


def test_what_the_template_cannot_hold_goes_where_it_can(language: Language) -> None:
    both = (Thinking("Hm."), Text("I look."), CALL, ToolCall("call2", "mcp__web__get", "{}"))
    results = Message("tool", (ToolResult("call1", (Text("r1"),)), ToolResult("call2", (Text("r2"),))))
    text = language.decode(
        language.render(Conversation((*ASKED.messages, Message("assistant", both), results), TOOLS)).tokens
    )
    assert ANALYSIS + "Hm.\nI look.<|end|>" in text
    assert text.count("<|call|>") == 2
    assert "functions.read<|channel|>" in text
    assert "functions.mcp__web__get<|channel|>" in text


def test_a_forced_call_and_a_forced_shape_begin_as_messages_do(language: Language, tokenizer_file: Path) -> None:
    stops = tuple(language.stop_ids)
    tokenizer = load_tokenizer(tokenizer_file, language.vocab_size, stops)
    forced = language.grammar(Conversation(ASKED.messages, TOOLS[:1], tool_choice=ToolChoice("named", "read")))
    assert forced is not None
    ids = language._tokenizer.encode_pieces(
        [
            (" to=functions.read ", False),
            ("<|constrain|>", True),
            ("json", False),
            ("<|message|>", True),
            ('{"path": "a"}', False),
        ]
    )
    matcher = Matcher(tokenizer, forced)
    assert all(matcher.advance(token) for token in ids)
    assert not Matcher(tokenizer, forced).advance(language.encode("x")[0])
    shaped = language.grammar(Conversation(ASKED.messages, response_schema={"type": "object", "properties": {}}))
    assert shaped is not None
    ids = language._tokenizer.encode_pieces(
        [("<|channel|>", True), ("final", False), ("<|message|>", True), ("{}", False)]
    )
    matcher = Matcher(tokenizer, shaped)
    assert all(matcher.advance(token) for token in ids)


def test_other_templates_are_not_touched(hybrid: Language) -> None:
    assert json.dumps(hybrid.script_tokens([Text("a")]))  # a dialect without a frame of its own writes as before
    assert hybrid.decode(hybrid.script_tokens([Thinking("t"), Text("a")])).startswith("t\n</think>\n\na")
