"""OpenAI Responses bodies into conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import chat_parse, fields
from engine.errors import BadRequest
from engine.prompt.conversation import (
    Block,
    Conversation,
    Message,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)


def input_items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The request's own input as a list of items. Raises BadRequest."""
    value = body.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return list(fields.objects(value, "input"))


def conversation(body: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Conversation:
    """What a body means when `items` are all its input items, earlier responses included."""
    messages: list[Message] = []
    instructions = fields.get(body, "instructions", str)
    if instructions:
        messages.append(Message("system", (Text(instructions),)))
    for i, item in enumerate(items):
        role, blocks = _item(item, f"input[{i}]")
        if not blocks:
            continue
        # Reasoning, text and calls of one reply are separate items here; together they are one assistant message.
        if messages and role in ("assistant", "tool") and messages[-1].role == role:
            messages[-1] = Message(role, messages[-1].blocks + blocks)
        else:
            messages.append(Message(role, blocks))
    if not messages:
        raise BadRequest("input: at least one item is required.")
    return Conversation(
        messages=tuple(messages),
        tools=tools(body),
        tool_choice=chat_parse.tool_choice(body.get("tool_choice")),
        response_schema=_schema(body),
        thinking=_thinking(body),
    )


def tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Functions, and the functions inside namespaces; kinds that need a vendor's server are left out."""
    found: list[Tool] = []
    for i, entry in enumerate(fields.objects(body.get("tools") or [], "tools")):
        where = f"tools[{i}]."
        if entry.get("type") == "function":
            found.append(chat_parse.function(entry, where))
        elif entry.get("type") == "namespace":
            namespace = fields.need(entry, "name", str, where)
            for j, inner in enumerate(fields.objects(entry.get("tools") or [], f"{where}tools")):
                if inner.get("type", "function") == "function":
                    found.append(chat_parse.function(inner, f"{where}tools[{j}].", namespace))
    return tuple(found)


def _item(item: Mapping[str, Any], where: str) -> tuple[Role, tuple[Block, ...]]:
    """Role and blocks of one item; items that only a vendor's server understands have no blocks."""
    kind = item.get("type", "message")
    if kind == "message":
        return _message(item, where)
    if kind == "reasoning":
        return "assistant", (_reasoning(item, where),)
    if kind == "function_call":
        call_id = fields.need(item, "call_id", str, f"{where}.")
        name = fields.need(item, "name", str, f"{where}.")
        arguments = fields.get(item, "arguments", str, f"{where}.") or ""
        namespace = fields.get(item, "namespace", str, f"{where}.") or ""
        return "assistant", (ToolCall(call_id, name, arguments, namespace),)
    if kind == "custom_tool_call":
        call_id = fields.need(item, "call_id", str, f"{where}.")
        arguments = json.dumps({"input": item.get("input", "")}, ensure_ascii=False)
        return "assistant", (ToolCall(call_id, fields.need(item, "name", str, f"{where}."), arguments),)
    if kind in ("function_call_output", "custom_tool_call_output"):
        call_id = fields.need(item, "call_id", str, f"{where}.")
        output = item.get("output")
        if isinstance(output, dict):
            output = output.get("content") or json.dumps(output, ensure_ascii=False)
        return "tool", (ToolResult(call_id, chat_parse.parts(output, f"{where}.output")),)
    if kind == "item_reference":
        raise BadRequest(f"{where}: items are not stored here by id.", "Send the item itself.")
    return "assistant", ()


def _message(item: Mapping[str, Any], where: str) -> tuple[Role, tuple[Block, ...]]:
    role = fields.need(item, "role", str, f"{where}.")
    content = chat_parse.parts(item.get("content"), f"{where}.content")
    if role in ("system", "developer"):
        return "system", content
    if role == "user":
        return "user", content
    if role == "assistant":
        return "assistant", content
    raise BadRequest(f"{where}.role: {role!r} is not user, assistant, system or developer.")


def _reasoning(item: Mapping[str, Any], where: str) -> Thinking:
    """Readable reasoning, from its content or else its summary; encrypted without either is not ours to read."""
    for name in ("content", "summary"):
        texts = chat_parse.parts(item.get(name), f"{where}.{name}")
        text = "".join(part.text for part in texts if isinstance(part, Text))
        if text:
            return Thinking(text)
    return Thinking("", opaque=True)


def _schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    config = fields.get(body, "text", dict) or {}
    form = fields.get(config, "format", dict, "text.") or {}
    kind = form.get("type", "text")
    if kind == "json_object":
        return {}
    if kind == "json_schema":
        return fields.get(form, "schema", dict, "text.format.") or {}
    return None


def _thinking(body: Mapping[str, Any]) -> bool | None:
    reasoning = fields.get(body, "reasoning", dict) or {}
    effort = reasoning.get("effort")
    return None if effort is None else effort != "none"
