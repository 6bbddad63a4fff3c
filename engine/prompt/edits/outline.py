"""What a conversation consists of, as declarations count it: the head, messages, items, the user's queries, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.prompt.conversation import Block, Conversation, Media, Message, Text, Thinking, ToolCall, ToolResult
from engine.prompt.dialects.contract import full_name
from engine.prompt.edits.patterns import Pattern

Place = tuple[int, int]  # (message, block)


class Outline:
    """A view on one conversation. `not_query` are patterns of user messages that open no turn."""

    def __init__(self, conversation: Conversation, not_query: tuple[Pattern, ...] = ()) -> None:
        self.conversation = conversation
        self._not_query = not_query

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.conversation.messages

    @cached_property
    def head(self) -> int:
        """How many leading messages are system messages."""
        return next((i for i, m in enumerate(self.messages) if m.role != "system"), len(self.messages))

    @cached_property
    def system_blocks(self) -> list[Place]:
        return [(i, j) for i in range(self.head) for j in range(len(self.messages[i].blocks))]

    @cached_property
    def queries(self) -> list[int]:
        """The messages at which turns start: the first user message behind each answer that asks something."""
        found: list[int] = []
        open_turn = False
        for index in range(self.head, len(self.messages)):
            message = self.messages[index]
            if message.role in ("assistant", "tool"):
                open_turn = False
            elif self.asks(message) and not open_turn:
                found.append(index)
                open_turn = True
        return found

    @cached_property
    def users(self) -> list[int]:
        """Every user message that asks something."""
        return [i for i in range(self.head, len(self.messages)) if self.asks(self.messages[i])]

    @cached_property
    def items(self) -> list[Place]:
        """The input items of a Responses request: (message, last block of the item) for each."""
        found: list[Place] = []
        for i, message in enumerate(self.messages):
            count = len(message.blocks)
            single = message.role in ("system", "user")
            found += [(i, count - 1)] if single else [(i, j) for j in range(count)]
        return found

    @cached_property
    def call_names(self) -> dict[str, str]:
        """Tool names by call id."""
        return {b.id: full_name(b.namespace, b.name) for _, b in self.blocks() if isinstance(b, ToolCall)}

    def asks(self, message: Message) -> bool:
        """Whether a message is the user's own: a user message with something in it that no pattern exempts."""
        if message.role != "user":
            return False
        own = [block for block in message.blocks if isinstance(block, Text | Media)]
        return any(
            not (isinstance(block, Text) and any(p.matches(block.text) for p in self._not_query)) for block in own
        )

    def blocks(self) -> Iterator[tuple[Place, Block]]:
        for i, message in enumerate(self.messages):
            for j, block in enumerate(message.blocks):
                yield (i, j), block

    def answer_to(self, message: int) -> int | None:
        """The first assistant message behind `message`."""
        return next((i for i in range(message + 1, len(self.messages)) if self.messages[i].role == "assistant"), None)


@dataclass(frozen=True, slots=True)
class Select:
    """Which blocks a rule takes. Sizes are characters; `keep_chars4` protects the newest in units of four."""

    kind: str = "tool_result"
    status: str = "any"
    except_tools: frozenset[str] = frozenset()
    not_cleared: bool = True
    before_user: int | None = None  # only before the k-th query, from the end
    after_first_user: bool = False
    min_chars: int = 0
    keep_assistant_turns: int = 0
    keep_newest: int = 0
    batch: int = 1  # only so many at a time
    keep_chars4: int = 0
    older_turns: int = 0

    def places(self, outline: Outline, placeholder: Callable[[str], bool], coming: int = 0) -> list[Place]:
        """The chosen blocks, oldest first. `placeholder` says whether a text is what a cleared block holds; `coming` is
        how many newer blocks of the kind the next request will have."""
        last = self._limit(outline)
        first = outline.queries[0] if self.after_first_user and outline.queries else -1
        found: list[Place] = []
        for place, block in outline.blocks():
            if place[0] >= last or place[0] <= first or not kind_is(block, self.kind):
                continue
            found.append(place)
        if self.keep_newest:
            stale = max(0, len(found) + coming - self.keep_newest)
            found = found[: stale // self.batch * self.batch]
        return [place for place in self._outside(found, outline) if self._takes(place, outline, placeholder)]

    def frontier(self, outline: Outline, placeholder: Callable[[str], bool]) -> Place | None:
        """The block that this choice will reach next: the oldest one of its kind that still holds its text."""
        wanted = Select(self.kind, self.status, self.except_tools, self.not_cleared, min_chars=self.min_chars)
        return next(iter(wanted.places(outline, placeholder)), None)

    def _limit(self, outline: Outline) -> int:
        """The message at which the choice ends."""
        limit = len(outline.messages)
        if self.before_user is not None:
            index = self.before_user if self.before_user >= 0 else len(outline.queries) + self.before_user
            limit = outline.queries[index] if 0 <= index < len(outline.queries) else 0
        if self.keep_assistant_turns:
            answers = [i for i, m in enumerate(outline.messages) if m.role == "assistant"]
            kept = answers[-self.keep_assistant_turns :]
            limit = min(limit, kept[0] if len(kept) == self.keep_assistant_turns else 0)
        if self.older_turns:
            index = len(outline.queries) - self.older_turns
            limit = min(limit, outline.queries[index] if 0 <= index < len(outline.queries) else 0)
        return limit

    def _outside(self, found: list[Place], outline: Outline) -> list[Place]:
        """Without the newest blocks that `keep_chars4` protects."""
        if not self.keep_chars4:
            return found
        kept, total = len(found), 0
        for place in reversed(found):
            total += size_of(block_at(outline.conversation, place)) // 4
            if total > self.keep_chars4:
                break
            kept -= 1
        return found[:kept]

    def _takes(self, place: Place, outline: Outline, placeholder: Callable[[str], bool]) -> bool:
        block = block_at(outline.conversation, place)
        if self.not_cleared and placeholder(text_of(block)):
            return False
        if isinstance(block, ToolResult):
            if (self.status == "completed" and block.is_error) or (self.status == "error" and not block.is_error):
                return False
            if outline.call_names.get(block.call_id, block.name) in self.except_tools:
                return False
        return size_of(block) >= self.min_chars


def block_at(conversation: Conversation, place: Place) -> Block:
    return conversation.messages[place[0]].blocks[place[1]]


def kind_is(block: Block, kind: str) -> bool:
    """Whether a block is of a kind that declarations name; a result that holds an image counts as one."""
    if isinstance(block, ToolResult) and kind in ("image", "document", "media"):
        return any(kind_is(part, kind) for part in block.content)
    if isinstance(block, Media):
        return kind in ("media", block.kind)
    names: Mapping[type, str] = {Text: "text", Thinking: "thinking", ToolCall: "tool_call", ToolResult: "tool_result"}
    return names.get(type(block)) == kind


def text_of(block: Block) -> str:
    """The text a block holds; "" for media."""
    if isinstance(block, Text | Thinking):
        return block.text
    if isinstance(block, ToolCall):
        return block.arguments
    if isinstance(block, ToolResult):
        return "\n".join(part.text for part in block.content if isinstance(part, Text))
    return ""


def size_of(block: Block) -> int:
    """Characters of a block."""
    return len(text_of(block))
