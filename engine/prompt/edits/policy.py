"""Harness × chat template: where a request's prompt may fork, and what the next request will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.prompt.conversation import Block, Conversation, Message, ToolCall
from engine.prompt.edits import edges
from engine.prompt.edits.template import Template
from engine.prompt.edits.turn import Hint, Prediction, Turn, Wire
from engine.protocol import EditPoint

__all__ = ["EditPolicy", "Hint", "Prediction", "Turn", "Wire"]


class EditPolicy:
    """`observe` is True when the client's version is outside the range its declaration was verified for."""

    def __init__(self, template: Template, observe: bool = False) -> None:
        self.template = template
        self.observe = observe

    @staticmethod
    def compose(declaration: Mapping[str, Any] | None, template: Template, version: str | None = None) -> EditPolicy:
        """The policy of a session. None: a client that declares nothing. Raises BadRequest naming the field at fault."""
        return EditPolicy(template)

    def canonical(self, conversation: Conversation, body: Mapping[str, Any]) -> Conversation:
        """The conversation to render: without volatile text, late system messages and deferred tools as declared."""
        return conversation

    def anchors(self, turn: Turn) -> list[EditPoint]:
        """Positions in the prompt where the next one may fork, ascending, one per position."""
        return edges.edit_points(turn.conversation, turn.prompt)

    def predict(self, turn: Turn, reply: tuple[Block, ...], completion_tokens: int) -> list[Prediction]:
        """What the next request will be, most probable first, at most two."""
        messages = (*turn.conversation.messages, Message("assistant", reply))
        expects = "tool_result" if any(isinstance(block, ToolCall) for block in reply) else "user"
        return [Prediction("", "prompt.end", replace(turn.conversation, messages=messages), expects)]

    def wire(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Wire:
        """What the request says about itself. `headers` have lower-case names."""
        return Wire()
