"""Anthropic Messages bodies into conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.api import fields
from engine.errors import BadRequest
from engine.prompt.conversation import (
    Block,
    Conversation,
    Media,
    Message,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

# A nonce that changes per session and after each compaction; only a first system block can be one.
_BILLING = "x-anthropic-billing-header:"


def conversation(body: Mapping[str, Any]) -> Conversation:
    """What a /v1/messages or count_tokens body means. Raises BadRequest naming the field at fault."""
    tools = _tools(body.get("tools"))
    messages: list[Message] = []
    system = _system(body.get("system"))
    if system:
        messages.append(Message("system", system))
    for i, entry in enumerate(fields.objects(body.get("messages"), "messages")):
        messages += _message(entry, f"messages[{i}]", tools)
    if not any(m.role != "system" for m in messages):
        raise BadRequest("messages: at least one message is required.")
    return Conversation(
        messages=tuple(messages),
        tools=tuple(tools.values()),
        tool_choice=_tool_choice(body),
        response_schema=_schema(body),
        thinking=thinking_enabled(body),
    )


def thinking_enabled(body: Mapping[str, Any]) -> bool:
    """Thinking is off in this dialect unless asked for."""
    thinking = fields.get(body, "thinking", dict)
    return bool(thinking) and thinking is not None and thinking.get("type") in ("enabled", "adaptive")


def _system(value: Any) -> tuple[Block, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),) if value else ()
    blocks: list[Block] = []
    for i, entry in enumerate(fields.objects(value, "system")):
        text = fields.text_of(entry.get("text", ""), f"system[{i}].text")
        if text and not (i == 0 and text.startswith(_BILLING)):
            blocks.append(Text(text))
    return tuple(blocks)


def _message(entry: Mapping[str, Any], where: str, tools: Mapping[str, Tool]) -> list[Message]:
    """One wire message; a user message with tool results becomes tool and user messages, in their order."""
    role = fields.need(entry, "role", str, f"{where}.")
    content = entry.get("content")
    if isinstance(content, str):
        parts: list[dict[str, Any]] = [{"type": "text", "text": content}]
    else:
        parts = fields.objects(content, f"{where}.content")
    if role not in ("user", "assistant", "system", "developer"):
        raise BadRequest(f"{where}.role: {role!r} is not user, assistant or system.")
    messages: list[Message] = []
    for i, part in enumerate(parts):
        here = f"{where}.content[{i}]"
        for block in _blocks(part, here, tools):
            if isinstance(block, ToolResult):
                kind: Role = "tool"
            else:
                kind = "system" if role == "developer" else role  # type: ignore[assignment]
            if messages and messages[-1].role == kind:
                messages[-1] = Message(kind, (*messages[-1].blocks, block))
            else:
                messages.append(Message(kind, (block,)))
    return messages


def _blocks(part: Mapping[str, Any], where: str, tools: Mapping[str, Tool]) -> list[Block]:
    kind = part.get("type", "text")
    if kind == "text":
        text = fields.text_of(part.get("text"), f"{where}.text")
        return [Text(text)] if text else []
    if kind == "thinking":
        thought = fields.text_of(part.get("thinking", ""), f"{where}.thinking")
        return [Thinking(thought)] if thought else []
    if kind == "redacted_thinking":
        return [Thinking("", opaque=True)]
    if kind == "tool_use":
        arguments = part.get("input", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call_id = fields.text_of(part.get("id"), f"{where}.id")
        return [ToolCall(call_id, fields.text_of(part.get("name"), f"{where}.name"), text)]
    if kind == "tool_result":
        call_id = fields.text_of(part.get("tool_use_id"), f"{where}.tool_use_id")
        content = _result_content(part.get("content"), f"{where}.content", tools)
        return [ToolResult(call_id, content, is_error=bool(part.get("is_error")))]
    return list(_media(part, where))


def _result_content(value: Any, where: str, tools: Mapping[str, Tool]) -> tuple[Text | Media, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),)
    content: list[Text | Media] = []
    for i, part in enumerate(fields.objects(value, where)):
        if part.get("type", "text") == "text":
            content.append(Text(fields.text_of(part.get("text"), f"{where}[{i}].text")))
        elif part.get("type") == "tool_reference":
            content.append(Text(_definition(str(part.get("tool_name", "")), tools)))
        else:
            content += _media(part, f"{where}[{i}]")
    return tuple(content)


def _definition(name: str, tools: Mapping[str, Tool]) -> str:
    """A deferred tool's definition, at the place where the conversation discovers it."""
    tool = tools.get(name)
    if tool is None:
        return f"Tool {name} was found."
    definition = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return "This tool is now available: " + json.dumps(definition, ensure_ascii=False)


def _media(part: Mapping[str, Any], where: str) -> tuple[Text | Media, ...]:
    """Plain-text documents are text; what else is not text becomes a note that it was left out."""
    kind = str(part.get("type"))
    source = part.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return (Text(fields.text_of(source.get("data"), f"{where}.source.data")),)
    if kind == "search_result":
        found = fields.objects(part.get("content") or [], f"{where}.content")
        return tuple(Text(str(p.get("text", ""))) for p in found)
    return (Media(kind),)


def _tools(value: Any) -> dict[str, Tool]:
    """Function tools by name; server-side kinds (web_search …) cannot run here and are left out."""
    tools: dict[str, Tool] = {}
    for i, entry in enumerate(fields.objects(value or [], "tools")):
        schema = entry.get("input_schema")
        if schema is None and entry.get("type") not in (None, "custom"):
            continue
        where = f"tools[{i}]."
        name = fields.need(entry, "name", str, where)
        tools[name] = Tool(
            name=name,
            description=fields.get(entry, "description", str, where) or "",
            parameters=fields.get(entry, "input_schema", dict, where) or {"type": "object", "properties": {}},
            deferred=entry.get("defer_loading") is True,
        )
    return tools


def _tool_choice(body: Mapping[str, Any]) -> ToolChoice:
    choice = fields.get(body, "tool_choice", dict)
    kind = (choice or {}).get("type", "auto")
    if kind == "tool":
        return ToolChoice("named", fields.need(choice or {}, "name", str, "tool_choice."))
    modes: dict[str, ToolChoice] = {
        "auto": ToolChoice("auto"),
        "any": ToolChoice("required"),
        "none": ToolChoice("none"),
    }
    if kind not in modes:
        raise BadRequest(f"tool_choice.type: {kind!r} is not auto, any, tool or none.")
    return modes[kind]


def _schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else body.get("output_format")
    if isinstance(form, dict) and form.get("type") == "json_schema" and isinstance(form.get("schema"), dict):
        schema: dict[str, Any] = form["schema"]
        return schema
    return None
