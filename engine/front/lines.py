"""What each line of a session sent before: prompts, the replies after them, and what was expected to come next.

A line is one conversation that grows: the agent's main one, one for each subagent, one for each kind of side request.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.prompt.conversation import Block, Prompt, Span
from engine.prompt.edits.turn import Turn
from engine.protocol import EditPoint

PROMPTS_PER_LINE = 3
LIMIT_BYTES = 96 << 20
_SPAN_BYTES = 120


@dataclass(frozen=True, slots=True)
class Expected:
    """A predicted next prompt up to its first unknown token. `rule` "" is a plain continuation; `expects` what kind of request
    it is about, "" for any."""

    rule: str
    edge: str
    expects: str
    tokens: array[int]


@dataclass(slots=True)
class Sent:
    """One prompt, the tokens generated after it, and what was expected to follow."""

    tokens: array[int]
    spans: list[Span]
    end: int
    edit_points: list[EditPoint] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)

    @staticmethod
    def of(prompt: Prompt, edit_points: Sequence[EditPoint]) -> Sent:
        return Sent(array("I", prompt.tokens), prompt.spans, prompt.end, list(edit_points))

    @property
    def bytes(self) -> int:
        expected = sum(len(e.tokens) for e in self.expected)
        return 4 * (len(self.tokens) + expected) + _SPAN_BYTES * len(self.spans)


@dataclass(frozen=True, slots=True)
class Answered:
    """An agent's own request and what it was answered, as the client has it."""

    turn: Turn
    blocks: tuple[Block, ...]

    @property
    def bytes(self) -> int:
        return 6 * len(self.turn.prompt.tokens)  # texts and blocks, which the next request of the line holds again


@dataclass(slots=True)
class Line:
    """The newest prompts of one line, oldest first. `own_id`: the agent itself named it, on the wire.

    `answered` is its newest turn; `cleared` are the keys of blocks that the engine left out of this line, as the client asked it to; `background` the
    prompts that the worker is computing ahead, by request id.
    """

    key: str
    own_id: bool = False
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=PROMPTS_PER_LINE))
    answered: Answered | None = None
    cleared: dict[str, int] = field(default_factory=dict)
    background: dict[str, array[int]] = field(default_factory=dict)
    overdue: bool = False  # something could be cleared at the newest request, and waits for the pause behind it
    plans: int = 0  # how often it was begun to work out what follows; the newest one counts
    worker: int = 0  # process id of the worker that had its newest prompt
    last: float | None = None  # monotonic time at which its newest reply was complete

    @property
    def bytes(self) -> int:
        return sum(sent.bytes for sent in self.sent) + (self.answered.bytes if self.answered else 0)

    def foretold(self, tokens: array[int]) -> Expected | None:
        """The first expectation about the next request that `tokens` fulfil, beyond what the line had sent before: one that
        only repeats that foretells nothing."""
        expected = self.sent[-1].expected if self.sent else []
        return next((e for e in expected if self.adds(e) and common_prefix(e.tokens, tokens) == len(e.tokens)), None)

    def adds(self, expected: Expected) -> bool:
        """Whether an expectation goes beyond each of the line's newest prompts and replies."""
        return all(common_prefix(expected.tokens, sent.tokens) < len(expected.tokens) for sent in self.sent)


class Lines:
    """All lines, bounded in bytes: the line unused for longest is forgotten first, which only costs explanations."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lines: OrderedDict[str, Line] = OrderedDict()

    def get(self, key: str, own_id: bool = False) -> Line:
        """The line of that name, new if need be, as the one used last."""
        line = self._lines.pop(key, None) or Line(key, own_id)
        self._lines[key] = line
        self._trim()
        return line

    def of(self, session: str) -> Iterator[Line]:
        """The lines of one session, the one used last first."""
        for key, line in reversed(self._lines.items()):
            if key.split("/", 1)[0] == session:
                yield line

    def forget(self, session: str) -> None:
        """Drop what a session sent."""
        for line in list(self.of(session)):
            del self._lines[line.key]

    def bytes(self) -> int:
        return sum(line.bytes for line in self._lines.values())

    def _trim(self) -> None:
        total = self.bytes()
        for key in list(self._lines)[:-1]:
            if total <= self._limit_bytes:
                return
            total -= self._lines.pop(key).bytes
        newest = next(reversed(self._lines.values()), None)
        while newest is not None and total > self._limit_bytes and len(newest.sent) > 1:
            total -= newest.sent.popleft().bytes


def common_prefix(a: array[int], b: array[int]) -> int:
    """Number of equal leading tokens."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
