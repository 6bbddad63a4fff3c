"""Bodies of three dialects into one conversation: what must survive and what must not."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from engine.api import anthropic_parse, chat_parse, responses_parse
from engine.api.fields import _plain
from engine.api.gate import _host_name
from engine.errors import BadRequest
from engine.prompt.conversation import (
    Conversation,
    Media,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

SCHEMA = {"type": "object", "properties": {"p": {"type": "string"}}}
EXPECTED = Conversation(
    messages=(
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Read x."),)),
        Message("assistant", (Thinking("Hm."), Text("Reading."), ToolCall("c1", "Read", '{"p": "x"}'))),
        Message("tool", (ToolResult("c1", (Text("ok"), Media("image"))),)),
        Message("system", (Text("A reminder."),)),
        Message("user", (Text("And now?"),)),
    ),
    tools=(Tool("Read", "Reads.", SCHEMA),),
    tool_choice=ToolChoice("named", "Read"),
    response_schema=None,
    thinking=True,
)


def test_three_dialects_mean_the_same() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "x"}}
    messages = anthropic_parse.conversation(
        {
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "Read x."},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                        {"type": "text", "text": "Reading."},
                        {"type": "tool_use", "id": "c1", "name": "Read", "input": {"p": "x"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "ok"}, image]}
                    ],
                },
                {"role": "system", "content": "A reminder."},
                {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
            ],
            "tools": [{"name": "Read", "description": "Reads.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "Read"},
            "thinking": {"type": "enabled", "budget_tokens": 2000},
        }
    )
    function = {"name": "Read", "description": "Reads.", "parameters": SCHEMA}
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"p": "x"}'}}
    chat = chat_parse.conversation(
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Read x."}]},
                {"role": "assistant", "content": "Reading.", "reasoning_content": "Hm.", "tool_calls": [call]},
                {
                    "role": "tool",
                    "tool_call_id": "c1",
                    "content": [{"type": "text", "text": "ok"}, {"type": "image_url", "image_url": {"url": "u"}}],
                },
                {"role": "system", "content": "A reminder."},
                {"role": "user", "content": "And now?"},
            ],
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": "Read"}},
            "reasoning_effort": "low",
        }
    )
    body: dict[str, Any] = {
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Read x."}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Reading."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "Read", "arguments": '{"p": "x"}'},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "ok"}, {"type": "input_image", "image_url": "u"}],
            },
            {"type": "message", "role": "developer", "content": "A reminder."},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [{"type": "function", **function}],
        "tool_choice": {"type": "function", "name": "Read"},
        "reasoning": {"effort": "high", "summary": "auto"},
    }
    responses = responses_parse.conversation(body, responses_parse.input_items(body))
    assert messages == EXPECTED
    assert chat == EXPECTED
    assert responses == EXPECTED


def test_billing_line_goes_only_from_the_first_system_block() -> None:
    line = "x-anthropic-billing-header: cc_version=2; cch=0a1b2;"
    body = {
        "system": [{"type": "text", "text": line}, {"type": "text", "text": line}],
        "messages": [{"role": "user", "content": line}],
    }
    system, user = anthropic_parse.conversation(body).messages
    assert system.blocks == (Text(line),) and user.blocks == (Text(line),)


def test_deferred_tools_appear_where_they_are_found() -> None:
    body: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "find"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ToolSearch", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "tool_reference", "tool_name": "Web"}],
                    }
                ],
            },
        ],
        "tools": [
            {"name": "ToolSearch", "input_schema": SCHEMA},
            {"name": "Web", "description": "Fetches.", "input_schema": SCHEMA, "defer_loading": True},
        ],
    }
    conversation = anthropic_parse.conversation(body)
    assert [(t.name, t.deferred) for t in conversation.tools] == [("ToolSearch", False), ("Web", True)]
    result = conversation.messages[-1].blocks[0]
    assert isinstance(result, ToolResult) and isinstance(result.content[0], Text)
    definition = json.loads(result.content[0].text.partition(": ")[2])
    assert definition == {"name": "Web", "description": "Fetches.", "parameters": SCHEMA}


def test_results_and_text_of_one_user_message_keep_their_order() -> None:
    body = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "tool_result", "tool_use_id": "1", "content": "x"},
                    {"type": "tool_result", "tool_use_id": "2", "content": "y", "is_error": True},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
                    {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}},
                ],
            }
        ]
    }
    assert anthropic_parse.conversation(body).messages == (
        Message("user", (Text("a"),)),
        Message("tool", (ToolResult("1", (Text("x"),)), ToolResult("2", (Text("y"),), is_error=True))),
        Message("user", (Text("doc"), Media("document"))),
    )


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, SCHEMA),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, SCHEMA),
        ({"output_config": {"effort": "high"}}, None),
        ({}, None),
    ],
)
def test_anthropic_output_schema(form: dict[str, Any], schema: Any) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], **form}
    assert anthropic_parse.conversation(body).response_schema == schema


@pytest.mark.parametrize(
    ("choice", "parsed"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("named", "f")),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, ToolChoice("required")),
    ],
)
def test_tool_choice(choice: Any, parsed: ToolChoice) -> None:
    assert chat_parse.tool_choice(choice) == parsed


def test_compressed_bodies() -> None:
    assert _plain(gzip.compress(b'{"a":1}'), "gzip") == b'{"a":1}'
    for raw, encoding in ((b"plain", "gzip"), (b"x", "br")):
        with pytest.raises(BadRequest):
            _plain(raw, encoding)


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1:80", "127.0.0.1"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a:b:c", ""), ("x@y:1", "x@y"), ("", "")],
)
def test_host_name(host: str, name: str) -> None:
    assert _host_name(host) == name
