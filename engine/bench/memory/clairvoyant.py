"""Who knows the whole trace: the cheapest schedule there is, and the best split for each phase of a session."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from engine.bench.memory.trace import Shape, Throttle, Turn

BLOCK = 64  # decode steps for which a split is held
LEAST = 1e-3  # misses of a block below this are as good as none


@dataclass(frozen=True, slots=True)
class Misses:
    """Misses of the decode steps of a whole run, replayed with each of a few fixed numbers of slots."""

    slots: tuple[int, ...]  # ascending
    sums: tuple[tuple[int, ...], ...]  # per number of slots, of all steps before each step

    @staticmethod
    def of(replayed: dict[int, Sequence[int]]) -> Misses:
        """From the misses of each step, by number of slots."""
        slots = tuple(sorted(replayed))
        return Misses(slots, tuple(tuple(accumulate(replayed[n], initial=0)) for n in slots))

    def between(self, start: int, end: int, slots: int) -> float:
        """Misses of steps [start, end) with `slots` slots all along; between two replayed numbers they fall geometrically."""
        i = min(max(1, bisect_left(self.slots, slots)), len(self.slots) - 1)
        low, high = (max(LEAST, float(self.sums[j][end] - self.sums[j][start])) for j in (i - 1, i))
        share = (slots - self.slots[i - 1]) / (self.slots[i] - self.slots[i - 1])
        return math.exp(math.log(low) + min(1.0, max(0.0, share)) * (math.log(high) - math.log(low)))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The seconds that turns cost beyond computing what nobody had seen: decoding, computing again, and moving."""

    decode_s: float = 0.0
    replay_s: float = 0.0
    move_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.decode_s + self.replay_s + self.move_s


class Clairvoyant:
    """Dynamic programming over turns. The state is which resting conversations keep their KV: all of it or nothing. Whatever
    KV does not hold at a moment belongs to experts, in slots as warm as if they had always had them, and moves take no time:
    no engine can be as quick."""

    def __init__(self, shape: Shape, throttle: Throttle, misses: Misses) -> None:
        self._shape, self._throttle, self._misses = shape, throttle, misses
        self._miss_s = shape.expert_bytes / throttle.fill_bytes_per_s

    def best(self, turns: Sequence[Turn]) -> Schedule:
        """Raises ValueError when some turn has no room at all."""
        ends: dict[str, int] = {}
        states: dict[frozenset[str], Schedule] = {frozenset(): Schedule()}
        first = 0
        for turn in turns:
            following: dict[frozenset[str], Schedule] = {}
            for kept, so_far in states.items():
                made = self._turn(turn, first, kept, ends, so_far)
                if made is None:
                    continue
                for left in _subsets(kept | {turn.line}):
                    if left not in following or made.seconds < following[left].seconds:
                        following[left] = made
            if not following:
                raise ValueError(f"a turn of {turn.prompt} tokens has no room")
            states, first = following, first + turn.output
            ends[turn.line] = turn.prompt + turn.output
        return min(states.values(), key=lambda schedule: schedule.seconds)

    def static(self, turns: Sequence[Turn], kv_slabs: int) -> list[tuple[int, float]]:
        """(context, seconds) of every block of decode steps with one split all the time."""
        slots = (self._shape.slabs - kv_slabs) * self._shape.slots_per_slab
        return [(at, self._decode_s(a, b, slots)) for at, a, b in blocks(turns)]

    def slabs(self, tokens: int) -> int:
        """For the KV of one conversation."""
        return -(-tokens // self._shape.tokens_per_slab)

    def _turn(
        self, turn: Turn, first: int, kept: frozenset[str], ends: dict[str, int], so_far: Schedule
    ) -> Schedule | None:
        """`so_far` and this turn, whose decode steps begin at `first`; None where there is no room."""
        usable = self._shape.slabs - math.ceil(turn.lent * self._shape.slabs)
        resting = sum(self.slabs(ends[line]) for line in kept if line != turn.line)
        least = -(-self._shape.top_k // self._shape.slots_per_slab)
        decode_s = so_far.decode_s
        for at, a, b in blocks([turn], first):
            experts = usable - resting - self.slabs(at + b - a)
            if experts < least:
                return None
            decode_s += self._decode_s(a, b, experts * self._shape.slots_per_slab)
        again = 0 if turn.line in kept else turn.shared
        return Schedule(decode_s, so_far.replay_s + again / self._throttle.prefill_tokens_per_s)

    def _decode_s(self, start: int, end: int, slots: int) -> float:
        return (end - start) * self._throttle.step_s + self._misses.between(start, end, slots) * self._miss_s


def blocks(turns: Sequence[Turn], first: int = 0) -> Iterator[tuple[int, int, int]]:
    """(context, first step, last step + 1) of each block of decode steps, counted over the whole run."""
    for turn in turns:
        for at in range(0, turn.output, BLOCK):
            end = min(turn.output, at + BLOCK)
            yield turn.prompt + at, first + at, first + end
        first += turn.output


def _subsets(lines: frozenset[str]) -> Iterator[frozenset[str]]:
    for n in range(len(lines) + 1):
        yield from (frozenset(chosen) for chosen in combinations(sorted(lines), n))
