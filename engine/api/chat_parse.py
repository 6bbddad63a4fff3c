"""OpenAI chat bodies into conversations."""

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
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)


def conversation(body: Mapping[str, Any]) -> Conversation:
    """What a /v1/chat/completions body means. Raises BadRequest naming the field at fault."""
    messages: list[Message] = []
    for i, entry in enumerate(fields.objects(body.get("messages"), "messages")):
        message = _message(entry, f"messages[{i}]")
        if message.role == "tool" and messages and messages[-1].role == "tool":
            messages[-1] = Message("tool", messages[-1].blocks + message.blocks)
        elif message.blocks:
            messages.append(message)
    if not messages:
        raise BadRequest("messages: at least one message is required.")
    return Conversation(
        messages=tuple(messages),
        tools=tools(body),
        tool_choice=tool_choice(body.get("tool_choice")),
        response_schema=_schema(body),
        thinking=_thinking(body),
    )


def tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Function tools; other kinds cannot run here and are left out."""
    found = []
    for i, entry in enumerate(fields.objects(body.get("tools") or [], "tools")):
        if entry.get("type", "function") == "function":
            where = f"tools[{i}].function."
            found.append(function(fields.need(entry, "function", dict, f"tools[{i}]."), where))
    return tuple(found)


def function(entry: Mapping[str, Any], where: str, namespace: str = "") -> Tool:
    """One function definition, as chat nests it and Responses has it flat."""
    return Tool(
        name=fields.need(entry, "name", str, where),
        description=fields.get(entry, "description", str, where) or "",
        parameters=fields.get(entry, "parameters", dict, where) or {"type": "object", "properties": {}},
        namespace=namespace,
        deferred=entry.get("defer_loading") is True,
    )


def tool_choice(value: Any) -> ToolChoice:
    """auto, none, required, or one function by name, in either OpenAI spelling."""
    if value is None:
        return ToolChoice()
    if value == "none":
        return ToolChoice("none")
    if value in ("required", "any"):
        return ToolChoice("required")
    if value == "auto":
        return ToolChoice("auto")
    if isinstance(value, dict):
        inner = value.get("function", value)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            return ToolChoice("named", inner["name"])
        if value.get("type") == "allowed_tools":
            return ToolChoice("required" if value.get("mode") == "required" else "auto")
    raise BadRequest("tool_choice: expected auto, none, required, or an object that names a function.")


def parts(value: Any, where: str) -> tuple[Text | Media, ...]:
    """Content as a string or as a list of typed parts; what is not text becomes a note that it was left out."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),) if value else ()
    content: list[Text | Media] = []
    for i, part in enumerate(fields.objects(value, where)):
        kind = part.get("type", "text")
        if kind in ("text", "input_text", "output_text", "summary_text", "reasoning_text"):
            text = fields.text_of(part.get("text"), f"{where}[{i}].text")
            content += [Text(text)] if text else []
        elif kind == "refusal":
            content.append(Text(fields.text_of(part.get("refusal"), f"{where}[{i}].refusal")))
        else:
            content.append(Media(str(kind).removeprefix("input_").removesuffix("_url")))
    return tuple(content)


def _message(entry: Mapping[str, Any], where: str) -> Message:
    role = fields.need(entry, "role", str, f"{where}.")
    content = parts(entry.get("content"), f"{where}.content")
    if role in ("system", "developer"):
        return Message("system", content)
    if role == "user":
        return Message("user", content)
    if role in ("tool", "function"):
        call_id = fields.get(entry, "tool_call_id", str, f"{where}.") or ""
        name = fields.get(entry, "name", str, f"{where}.") or ""
        return Message("tool", (ToolResult(call_id, content, name=name),))
    if role != "assistant":
        raise BadRequest(f"{where}.role: {role!r} is not system, developer, user, assistant or tool.")
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    blocks: list[Block] = [Thinking(thought)] if isinstance(thought, str) else []
    blocks += content
    for i, call in enumerate(fields.objects(entry.get("tool_calls") or [], f"{where}.tool_calls")):
        here = f"{where}.tool_calls[{i}]."
        spec = fields.need(call, "function", dict, here)
        arguments = spec.get("arguments", "")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call_id = fields.get(call, "id", str, here) or ""
        blocks.append(ToolCall(call_id, fields.need(spec, "name", str, f"{here}function."), text))
    return Message("assistant", tuple(blocks))


def _schema(body: Mapping[str, Any]) -> dict[str, Any] | None:
    form = fields.get(body, "response_format", dict)
    kind = (form or {}).get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    if kind == "json_schema":
        inner = fields.need(form or {}, "json_schema", dict, "response_format.")
        return fields.get(inner, "schema", dict, "response_format.json_schema.") or {}
    raise BadRequest(f"response_format.type: {kind!r} is not text, json_object or json_schema.")


def _thinking(body: Mapping[str, Any]) -> bool | None:
    """An effort or a template switch turns thinking on or off; without one the model's default holds."""
    switches = body.get("chat_template_kwargs")
    for source in (switches if isinstance(switches, dict) else {}, body):
        if isinstance(source.get("enable_thinking"), bool):
            return bool(source["enable_thinking"])
    effort = body.get("reasoning_effort")
    return None if effort is None else effort != "none"
