"""What each line of a session sent before: prompts, the replies after them, and what was expected to come next.

A line is one conversation that grows: the agent's main one, one for each subagent, one for each kind of side request.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.prompt.conversation import Prompt, Span
from engine.protocol import EditPoint

PROMPTS_PER_LINE = 3
LIMIT_BYTES = 96 << 20
_SPAN_BYTES = 120


@dataclass(frozen=True, slots=True)
class Expected:
    """A predicted next prompt up to its first unknown token. `rule` "" is a plain continuation; `expects` what comes then."""

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


@dataclass(slots=True)
class Line:
    """The newest prompts of one line, oldest first. `own_id`: the agent itself named it, on the wire.

    `cleared` are the keys of blocks that the engine left out of this line, as the client asked it to; `background` the
    prompts that the worker is computing ahead, by request id.
    """

    key: str
    own_id: bool = False
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=PROMPTS_PER_LINE))
    cleared: dict[str, int] = field(default_factory=dict)
    background: dict[str, array[int]] = field(default_factory=dict)
    overdue: bool = False  # something could be cleared at the newest request, and waits for the pause behind it
    worker: int = 0  # process id of the worker that had its newest prompt
    last: float | None = None  # monotonic time at which its newest reply was complete


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
        return sum(sent.bytes for line in self._lines.values() for sent in line.sent)

    def _trim(self) -> None:
        total = self.bytes()
        for key in list(self._lines)[:-1]:
            if total <= self._limit_bytes:
                return
            total -= sum(sent.bytes for sent in self._lines.pop(key).sent)
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
