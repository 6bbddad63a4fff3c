"""Who owns which part of the rendered text: blocks with their markers, frames between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine.prompt.dialects.contract import Markers
from engine.prompt.marking import Segment
from engine.prompt.normalise import Leaf

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")  # nothing that could be a control token
Pieces = list[tuple[str, bool]]  # (text, is a control token)


@dataclass(slots=True)
class Run:
    """Text tokenised by itself. `block` is -1 for frames; see conversation.Span for the rest."""

    message: int
    block: int
    kind: str
    turn: int
    pieces: Pieces = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


class RunBuilder:
    """`ends` are the texts of end-of-turn tokens; `split` cuts template text at control tokens."""

    def __init__(self, markers: Mapping[str, Markers], ends: Sequence[str], split: Callable[[str], Pieces]) -> None:
        self._markers = markers
        self._end = re.compile("(?:" + "|".join(map(re.escape, ends)) + r")\s*") if ends else None
        self._split = split

    def build(self, segments: Sequence[Segment]) -> list[Run]:
        """Runs that cover the segments in order; neighbours with one owner are one run."""
        runs: list[Run] = []
        previous: Segment | None = None
        between = ""
        for segment in segments:
            if segment.leaf is None or self._repeated(previous, segment, between):
                between += segment.text
                continue
            self._between(runs, previous, segment, between)
            _extend(runs, _owner(segment), [(segment.text, False)])
            previous, between = segment, ""
        self._between(runs, previous, None, between)
        return runs

    def _repeated(self, before: Segment | None, segment: Segment, between: str) -> bool:
        """Whether a template names a call again behind its end, to say whose result follows."""
        marks = self._markers.get(_kind(segment))
        if before is None or marks is None or before.leaf is not segment.leaf or marks.close not in between:
            return False
        return _PLAIN_NAME.fullmatch(segment.text) is not None

    def chunks(self, text: str) -> list[str]:
        """Cut text behind every end of turn."""
        if self._end is None:
            return [text] if text else []
        cuts = [0, *(match.end() for match in self._end.finditer(text)), len(text)]
        return [text[a:b] for a, b in pairwise(cuts) if b > a]

    def opening(self, text: str, kind: str) -> str:
        """What belongs to the next turn of the template text behind a turn's last leaf, which is of this kind."""
        marks = self._markers.get(kind)
        if marks and marks.close in text:
            text = text[text.find(marks.close) + len(marks.close) :]
        end = self._end.search(text) if self._end else None
        return text[end.end() :] if end else text

    def _between(self, runs: list[Run], before: Segment | None, after: Segment | None, text: str) -> None:
        """Share the template text between two leaves among their blocks and frames."""
        if before and after and _owner(before) == _owner(after):
            _extend(runs, _owner(before), self._split(text))
            return
        if before:
            close = self._markers.get(_kind(before))
            size = text.find(close.close) + len(close.close) if close and close.close in text else 0
            _extend(runs, _owner(before), self._split(text[:size]))
            text = text[size:]
        tail = ""
        if after:
            opening = self._markers.get(_kind(after))
            size = text.rfind(opening.open) if opening else -1
            if size >= 0:
                text, tail = text[:size], text[size:]
        cut = self._boundary(text, before, after)
        if before or after:
            _extend(runs, _frame(before or Segment("")), self._split(text[:cut]))
            _extend(runs, _frame(after or before or Segment("")), self._split(text[cut:]))
        else:
            _extend(runs, _frame(Segment("")), self._split(text))
        if after:
            _extend(runs, _owner(after), self._split(tail))

    def _boundary(self, text: str, before: Segment | None, after: Segment | None) -> int:
        """Where the frame before ends and the frame after begins."""
        if after is None:
            return len(text)
        ends = [match.end() for match in self._end.finditer(text)] if self._end else []
        if before is None:
            return ends[-1] if ends else 0
        if before.turn == after.turn:
            return 0
        return ends[0] if ends else 0


Owner = tuple[int, int, str, int]


def _kind(segment: Segment) -> str:
    return segment.leaf.kind if segment.leaf else ""


def _owner(segment: Segment) -> Owner:
    leaf = segment.leaf or Leaf("", -1, -1, "frame")
    return leaf.message, leaf.block, leaf.kind, segment.turn


def _frame(segment: Segment) -> Owner:
    return (segment.leaf.message if segment.leaf else -1), -1, "frame", segment.turn


def _extend(runs: list[Run], owner: Owner, pieces: Pieces) -> None:
    if not any(text for text, _ in pieces):
        return
    message, block, kind, turn = owner
    if not runs or (runs[-1].message, runs[-1].block, runs[-1].kind, runs[-1].turn) != owner:
        runs.append(Run(message, block, kind, turn))
    runs[-1].pieces += pieces


def cut_prefix(runs: Sequence[Run], prefix: str) -> list[Run] | None:
    """The runs without the text of `prefix` at their start; None when they start otherwise."""
    rest = list(runs)
    while prefix:
        if not rest:
            return None
        run = Run(rest[0].message, rest[0].block, rest[0].kind, rest[0].turn, list(rest[0].pieces))
        while run.pieces and prefix:
            text, control = run.pieces[0]
            if prefix.startswith(text):
                run.pieces.pop(0)
                prefix = prefix[len(text) :]
            elif not control and text.startswith(prefix):
                run.pieces[0] = (text[len(prefix) :], False)
                prefix = ""
            else:
                return None
        rest[0:1] = [run] if run.pieces else []
    return rest
