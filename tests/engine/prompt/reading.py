"""What the tests of all dialects share: answers written, read however they are cut, and soups of their pieces."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from engine.prompt.conversation import Block, Tool
from engine.prompt.dialects.contract import Dialect
from engine.prompt.output import (
    Event,
    OutputParser,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from engine.prompt.spell import spell

Found = list[tuple[str, ...]]


def flat(events: list[Event]) -> Found:
    """Events with neighbouring deltas joined, ids left out; asserts the order rules every HTTP dialect relies on."""
    result: Found = []
    open_call = -1
    count = 0
    for event in events:
        if isinstance(event, ToolCallStart):
            assert open_call == -1 and event.index == count
            assert event.id.isalnum() and event.id.startswith("call") and len(event.id) == 28
            open_call, count = event.index, count + 1
            result.append(("call", event.namespace, event.name, ""))
        elif isinstance(event, ToolCallDelta):
            assert event.index == open_call and event.arguments
            result[-1] = (*result[-1][:3], result[-1][3] + event.arguments)
        elif isinstance(event, ToolCallEnd):
            assert event.index == open_call
            open_call = -1
            assert isinstance(json.loads(result[-1][3]), dict)
        else:
            assert open_call == -1 and event.text
            kind = "thinking" if isinstance(event, ThinkingDelta) else "text"
            assert isinstance(event, ThinkingDelta | TextDelta)
            if result and result[-1][0] == kind:
                result[-1] = (kind, result[-1][1] + event.text)
            else:
                result.append((kind, event.text))
    assert open_call == -1
    return result


def run(parser: OutputParser, pieces: list[str]) -> Found:
    events = [event for piece in pieces for event in parser.feed(piece)]
    return flat(events + parser.finish())


def written(dialect: Dialect, blocks: list[Block], thinking_open: bool = False) -> str:
    """An answer as the dialect writes it."""
    return "".join(text for run in spell(blocks, dialect, thinking_open, {}) for text, _ in run)


def readings(dialect: Dialect, text: str, thinking_open: bool, tools: Sequence[Tool]) -> Iterator[Found]:
    """What the dialect reads: at once, character by character, and cut at every place."""
    for pieces in ([text], list(text), *([text[:cut], text[cut:]] for cut in range(len(text) + 1))):
        yield run(dialect.parser(tools, thinking_open=thinking_open, calls=True), pieces)


def is_read(dialect: Dialect, text: str, tools: Sequence[Tool], expected: Found, thinking_open: bool = False) -> None:
    """Asserts what an answer means, at once, in single characters and in two pieces cut at every place."""
    for found in readings(dialect, text, thinking_open, tools):
        assert found == expected


def soup(dialect: Dialect, pieces: Sequence[str], tools: Sequence[Tool], rounds: int = 1500) -> None:
    """Asserts that answers put together by chance keep the rules that every HTTP dialect relies on, and that cuts change nothing."""
    chance = random.Random(dialect.name)
    for _ in range(rounds):
        chosen = chance.choices(pieces, k=chance.randint(1, 16))
        thinking_open = dialect.name != "harmony" and chance.random() < 0.4  # which opens no thinking in a prompt
        parsers = [dialect.parser(tools, thinking_open=thinking_open, calls=True) for _ in range(3)]
        whole = run(parsers[0], ["".join(chosen)])
        assert run(parsers[1], chosen) == whole
        assert run(parsers[2], list("".join(chosen))) == whole
