"""Protocol-neutral conversations: what a request means, without how a dialect spells it.

A string and a list with one text block are the same thing; `cache_control` positions, key order, item ids and envelope
noise do not survive. Every HTTP dialect parses into this and every renderer starts from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Model reasoning. `opaque` marks text that is not ours to read (redacted or encrypted): kept, never rendered."""

    text: str
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the argument text exactly as the client sent it back (usually JSON, possibly malformed)."""

    id: str
    name: str
    arguments: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Media:
    """An image, document or audio part; models here read text, so it renders as a note that it was omitted."""

    kind: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    content: tuple[Text | Media, ...]
    is_error: bool = False
    name: str = ""


Block = Text | Thinking | ToolCall | ToolResult | Media


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is its JSON schema. Deferred tools are not rendered in the head."""

    name: str
    description: str
    parameters: dict[str, Any]
    namespace: str = ""
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """auto: the model decides; none: no call; required: some call; named: a call of `name`."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""

    @property
    def forced(self) -> bool:
        """The answer is a call."""
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    response_schema: dict[str, Any] | None = None  # JSON schema of the whole answer; {} means any JSON object
    thinking: bool | None = None  # the client asked for thinking on or off; None: the model's default
    preserve_thinking: bool | None = (
        None  # keep reasoning of earlier turns where the template has the switch; None: as loaded
    )


@dataclass(frozen=True, slots=True)
class Span:
    """Token range [start, end) of one block. `block` is -1 for a message's frame, `message` -1 for tools."""

    start: int
    end: int
    message: int
    block: int
    kind: str  # tools system user assistant thinking text tool_call tool_result frame generation


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation: token ids and the spans that cover them without a gap.

    `end` is the position before the generation prefix (the last position the next prompt is sure to share).
    """

    tokens: list[int]
    spans: list[Span] = field(default_factory=list)
    end: int = 0
