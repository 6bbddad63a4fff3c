"""From edges to token positions in a rendered prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.prompt.conversation import Prompt, Text
from engine.prompt.edits.edges import Edge
from engine.prompt.edits.outline import Outline, Place, Select, block_at, kind_is, text_of
from engine.prompt.edits.patterns import Pattern, compile_pattern

SUMMARY = "{summary}"  # in a compaction's `summary`: where the model's text stands
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """What an edge may refer to beyond itself: its rule's choice, its placeholder, its parameters."""

    select: Select | None = None
    cleared: Callable[[str], bool] = lambda text: False
    params: Mapping[str, Any] = field(default_factory=dict)


class Places:
    """The edges of one prompt. `encode` finds positions inside a block; without it the block's start is taken."""

    def __init__(
        self, outline: Outline, prompt: Prompt, body: Mapping[str, Any], encode: Callable[[str], Sequence[int]] | None
    ) -> None:
        self.outline = outline
        self._prompt = prompt
        self._encode = encode
        self._input_offset = 1 if body.get("instructions") else 0
        self._starts: dict[int, int] = {}
        self._blocks: dict[Place, tuple[int, int]] = {}
        for span in prompt.spans:
            if span.kind == "generation":
                continue
            if span.message >= 0:
                self._starts.setdefault(span.message, span.start)
            place = (span.message, span.block)
            if span.block >= 0 or span.kind == "tools":
                start, _ = self._blocks.get(place, (span.start, 0))
                self._blocks[place] = (start, span.end)

    def position(self, edge: Edge, context: Context) -> int | None:
        """The token position of an edge; None when this prompt has no such place."""
        if edge.kind == "prompt":
            return self._prompt.end
        if edge.kind == "head":
            return self.message_start(self.outline.head) if edge.side == "end" else 0
        place = self.place(edge, context)
        if place is None:
            return None
        if edge.kind in ("system_re", "message", "user") and edge.pattern is not None:
            return self._inside(place, edge.pattern, edge.side)
        if place[1] < 0:
            return self.message_start(place[0])
        if edge.side == "end":
            return self.block_end(place)
        # A message's first block starts where the message does: what replaces it may come with another header.
        return self.message_start(place[0]) if place[1] == 0 and edge.kind == "tail" else self.block_start(place)

    def place(self, edge: Edge, context: Context) -> Place | None:
        """The block an edge belongs to; block -1: the edge is the start of that message, which may be one past the end."""
        outline, kind, index = self.outline, edge.kind, edge.index
        after = 1 if edge.side == "end" else 0
        if kind == "head":
            return outline.head if edge.side == "end" else 0, -1
        if kind == "prompt":
            return len(outline.messages), -1
        if kind == "first":
            return (outline.head + index, -1) if outline.head + index <= len(outline.messages) else None
        if kind == "last":
            return (len(outline.messages) - 1, -1) if len(outline.messages) > outline.head else None
        if kind == "turn":
            return self._query(index, edge.side)
        if kind == "system":
            return _pick(outline.system_blocks, edge.block)
        if kind == "input":
            item = _pick(outline.items, index + self._input_offset if index >= 0 else index)
            return None if item is None else self._item_edge(item, after)
        if kind in ("message", "user"):
            numbers = list(range(outline.head, len(outline.messages))) if kind == "message" else outline.users
            message = _pick(numbers, index)
            if message is None:
                return None
            if edge.pattern is not None:
                return self._matching(
                    [(message, b) for b in range(len(outline.messages[message].blocks))], edge.pattern
                )
            if edge.block is None:
                return message + after, -1
            block = _pick(range(len(outline.messages[message].blocks)), edge.block)
            return None if block is None else (message, block)
        return self._found(edge, context)

    def message_start(self, message: int) -> int:
        """Where a message starts, its header included; past the last one, the prompt's end."""
        later = [start for number, start in self._starts.items() if number >= message]
        return min(later, default=self._prompt.end)

    def block_start(self, place: Place) -> int | None:
        found = self._blocks.get(place)
        return None if found is None else found[0]

    def block_end(self, place: Place) -> int | None:
        found = self._blocks.get(place)
        return None if found is None else found[1]

    def tools_end(self) -> int | None:
        return self.block_end((-1, -1))

    def mark_end(self, mark: Place) -> int | None:
        """Where the text before a cache mark ends: behind its block, and behind its message when that is over with it."""
        message, block = mark
        if message < 0:
            return self.tools_end()
        if message >= len(self.outline.messages):
            return None
        if block >= len(self.outline.messages[message].blocks) - 1:
            return self.message_start(message + 1)
        return self.block_end(mark)

    def _query(self, index: int, side: str) -> Place | None:
        start = _pick(self.outline.queries, index)
        if start is None or side == "start":
            return None if start is None else (start, -1)
        answer = self.outline.answer_to(start)
        return (len(self.outline.messages) if answer is None else answer), -1

    def _item_edge(self, item: Place, after: int) -> Place:
        message, block = item
        last = block == len(self.outline.messages[message].blocks) - 1
        if self.outline.messages[message].role in ("system", "user"):
            return message + after, -1
        return (message + 1, -1) if after and last else (message, block + after)

    def _found(self, edge: Edge, context: Context) -> Place | None:
        """Edges that are looked for in the blocks."""
        if edge.kind == "result":
            return next((p for p, b in self.outline.blocks() if getattr(b, "call_id", None) == edge.what), None)
        if edge.kind == "system_re" and edge.pattern is not None:
            return self._matching(self.outline.system_blocks, edge.pattern)
        if edge.kind == "tail" and edge.pattern is not None:
            return self._tail(edge.pattern)
        if edge.kind == "oldest":
            return self._oldest(edge, context)
        if edge.kind == "nth_newest":
            places = [place for place, block in self.outline.blocks() if kind_is(block, edge.what)]
            count = int(context.params.get(edge.param, 0)) if edge.param else edge.index
            return places[-count] if 0 < count <= len(places) else None
        if edge.kind == "summary":
            return self._summary(context.params)
        return None

    def _matching(self, places: Sequence[Place], pattern: Pattern) -> Place | None:
        return next((p for p in places if pattern.matches(text_of(block_at(self.outline.conversation, p)))), None)

    def _oldest(self, edge: Edge, context: Context) -> Place | None:
        if edge.eligible and context.select is not None:
            return next(iter(context.select.places(self.outline, context.cleared)), None)
        wanted = Select(edge.what, except_tools=frozenset(edge.except_tools), not_cleared=edge.not_cleared)
        return next(iter(wanted.places(self.outline, context.cleared)), None)

    def _tail(self, pattern: Pattern) -> Place | None:
        """The first block that matches in the trailing user messages."""
        messages = self.outline.messages
        found: Place | None = None
        for i in range(len(messages) - 1, self.outline.head - 1, -1):
            if messages[i].role != "user":
                break
            hits = [j for j, block in enumerate(messages[i].blocks) if pattern.matches(text_of(block))]
            found = (i, hits[0]) if hits else found
        return found

    def _summary(self, params: Mapping[str, Any]) -> Place | None:
        """The text of the last compaction, known by a pattern, by what stands around it or by the question that it
        answers."""
        question, pattern = params.get("question"), params.get("summary_re")
        matcher = compile_pattern(str(pattern), "summary_re") if pattern else None
        before = summary_before(params)
        for place, block in self.outline.blocks():
            if place[0] < self.outline.head or not isinstance(block, Text):
                continue
            if matcher is not None and matcher.matches(block.text):
                return place
            if matcher is None and before and block.text.startswith(before):
                return place
            if question and block.text.strip() == question and place[0] + 1 < len(self.outline.messages):
                return place[0] + 1, -1
        return None

    def _inside(self, place: Place, pattern: Pattern, side: str) -> int | None:
        """The last token boundary before the start or end of the pattern's match that the text before it alone
        determines."""
        span = self._blocks.get(place)
        text = text_of(block_at(self.outline.conversation, place))
        found = pattern.span(text)
        if span is None or found is None or self._encode is None:
            return None if span is None else span[0]
        before = self._encode(text[: found[0] if side == "start" else found[1]])
        return span[0] + shared(before, self._prompt.tokens[span[0] : span[1]])


def summary_before(params: Mapping[str, Any]) -> str:
    """The text that a compaction's message begins with, before the summary itself or what else is not known of it."""
    if begins := params.get("summary_begins"):
        return str(begins)
    before, found, _ = str(params.get("summary", "")).partition(SUMMARY)
    return before if found else ""


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences have in common."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _pick(values: Sequence[T], index: int | None) -> T | None:
    if index is None or not -len(values) <= index < len(values):
        return None
    return values[index]
