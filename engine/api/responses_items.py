"""Output items of the Responses dialect: built from output events, with the stream events that announce each step."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any

from engine.prompt.conversation import Block, Text, Thinking, ToolCall
from engine.prompt.output import Event, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

Announced = list[tuple[str, dict[str, Any]]]  # (event type, its fields)


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class Items:
    """The answer's items. `output` holds the finished ones; at most one is open."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._pieces: list[str] = []

    def add(self, event: Event) -> Announced:
        """Take the next output event; what is to be sent for it."""
        if isinstance(event, ToolCallStart):
            return self._start(_call(event.id, event.name, event.namespace))
        if isinstance(event, ToolCallDelta):
            return [self._delta("response.function_call_arguments.delta", event.arguments)]
        if isinstance(event, ToolCallEnd):
            return self.close()
        if isinstance(event, TextDelta):
            return [*self._enter("message"), self._delta("response.output_text.delta", event.text, content_index=0)]
        assert isinstance(event, ThinkingDelta)
        enter = self._enter("reasoning")
        return [*enter, self._delta("response.reasoning_summary_text.delta", event.text, summary_index=0)]

    def add_whole(self, block: Block) -> None:
        """Add a finished block without announcing anything."""
        if isinstance(block, ToolCall):
            self._start(_call(block.id, block.name, block.namespace))
            self._pieces = [block.arguments]
        elif isinstance(block, Text):
            self._enter("message")
            self._pieces = [block.text]
        elif isinstance(block, Thinking):
            self._enter("reasoning")
            self._pieces = [block.text]
        self.close()

    def close(self) -> Announced:
        """End the open item, if any."""
        item, text = self._open, "".join(self._pieces)
        self._open, self._pieces = None, []
        if item is None:
            return []
        where = {"item_id": item["id"], "output_index": len(self.output)}
        out: Announced = []
        if item["type"] == "message":
            part = _text_part(text)
            done = {**where, "content_index": 0}
            out.append(("response.output_text.done", {**done, "text": text, "logprobs": []}))
            out.append(("response.content_part.done", {**done, "part": part}))
            item = {**item, "status": "completed", "content": [part]}
        elif item["type"] == "reasoning":
            summary = {"type": "summary_text", "text": text}
            done = {**where, "summary_index": 0}
            out.append(("response.reasoning_summary_text.done", {**done, "text": text}))
            out.append(("response.reasoning_summary_part.done", {**done, "part": summary}))
            item = {**item, "status": "completed", "summary": [summary], "encrypted_content": _opaque(text)}
        else:
            done = {**where, "name": item["name"], "arguments": text}
            out.append(("response.function_call_arguments.done", done))
            item = {**item, "status": "completed", "arguments": text}
        out.append(("response.output_item.done", {"output_index": len(self.output), "item": item}))
        self.output.append(item)
        return out

    def _enter(self, kind: str) -> Announced:
        """Make an item of `kind` the open one, unless it is already."""
        if self._open is not None and self._open["type"] == kind:
            return []
        if kind == "message":
            item: dict[str, Any] = {"id": new_id("msg"), "type": "message", "role": "assistant"}
            item |= {"status": "in_progress", "content": []}
            part, name, index = _text_part(""), "response.content_part.added", "content_index"
        else:
            item = {"id": new_id("rs"), "type": "reasoning", "status": "in_progress", "summary": []}
            part, name, index = (
                {"type": "summary_text", "text": ""},
                "response.reasoning_summary_part.added",
                "summary_index",
            )
        out = self._start(item)
        where = {"item_id": item["id"], "output_index": len(self.output), index: 0}
        return [*out, (name, {**where, "part": part})]

    def _start(self, item: dict[str, Any]) -> Announced:
        out = self.close()
        self._open = item
        return [*out, ("response.output_item.added", {"output_index": len(self.output), "item": item})]

    def _delta(self, kind: str, text: str, **index: int) -> tuple[str, dict[str, Any]]:
        assert self._open is not None
        self._pieces.append(text)
        data: dict[str, Any] = {"item_id": self._open["id"], "output_index": len(self.output), **index, "delta": text}
        if kind == "response.output_text.delta":
            data["logprobs"] = []
        return kind, data


def _call(call_id: str, name: str, namespace: str) -> dict[str, Any]:
    item: dict[str, Any] = {"id": new_id("fc"), "type": "function_call", "status": "in_progress"}
    item |= {"call_id": call_id, "name": name, "arguments": ""}
    if namespace:
        item["namespace"] = namespace
    return item


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _opaque(text: str) -> str:
    """Clients that carry reasoning by its encrypted form need one; ours says only whose it is."""
    return base64.b64encode(b"ft1:" + hashlib.sha256(text.encode()).digest()).decode()
