"""Short traces through the real scheduler, cache, mover and balancer, with experts whose misses are a formula."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.bench.memory.clairvoyant import Clairvoyant, Misses
from engine.bench.memory.figures import phase_rows, regret_row
from engine.bench.memory.play import play
from engine.bench.memory.trace import THROTTLES, Shape, Turn, load

SHAPE, THROTTLE = Shape(), THROTTLES["emulated"]


def misses(slots: int) -> float:
    return 240 * 0.5 ** (slots / 400)


class Formula:
    """Slots that are only counted."""

    least, most = 8, 3840
    steps, asked = 1, 240.0

    def __init__(self, leased: Sequence[int]) -> None:
        self.slots, self.missed, self.curve = set(leased), 0, self
        self.seen: list[int] = []

    def worth(self, groups: Sequence[Sequence[int]]) -> list[float]:
        return [0.0] * len(groups)

    def offer(self, slots: Sequence[int]) -> None:
        assert not self.slots & set(slots)
        self.slots |= set(slots)

    def withdraw(self, slots: Sequence[int]) -> int:
        assert set(slots) <= self.slots
        self.slots -= set(slots)
        return len(slots)

    def ask(self, slots: int | None) -> None:
        assert slots is None

    def verify(self) -> None:
        assert len(self.slots) >= self.least

    def misses(self, slots: int) -> float:
        return misses(slots)

    def step(self) -> int:
        self.seen.append(len(self.slots))
        missed = round(misses(len(self.slots)))
        self.missed += missed
        return missed


def played(turns: list[Turn]):
    made: list[Formula] = []

    def experts(leased: Sequence[int]) -> Formula:
        made.append(Formula(leased))
        return made[0]

    return play(turns, SHAPE, THROTTLE, experts), made[0]


@pytest.fixture(scope="module")
def growing():
    return load("growing")[:10]


def test_a_growing_session_keeps_all_of_its_kv_and_experts_all_the_rest(growing):
    result, experts = played(growing)
    assert not result.failed and result.replayed <= len(growing)  # each turn's last token was never computed
    assert len(result.decoded) == sum(turn.output - 1 for turn in growing)
    assert all(move["complete"] for move in result.moves)
    need = -(-(growing[-1].prompt + growing[-1].output) // SHAPE.tokens_per_slab)
    free = 2 * (SHAPE.slabs - need)
    assert 0.97 * free <= experts.seen[-1] <= free


def test_what_other_programs_want_they_get_and_nothing_is_computed_again():
    turns = [Turn("a", 4000, 0, 200, 1.0)]
    turns += [Turn("a", 4200 + 200 * i, 4000 + 200 * i, 100, 1.0, lent=0.25 if 2 <= i < 5 else 0.0) for i in range(8)]
    result, experts = played(turns)
    assert not result.failed and result.replayed <= 9
    first = sum(turn.output - 1 for turn in turns[:4])
    assert experts.seen[first] <= 2 * SHAPE.slabs * 0.75 < experts.seen[-1]
    assert {"another program needs memory", "memory came back"} <= {str(move["reason"]) for move in result.moves}


def test_rows_say_how_close_it_came(growing):
    result, _ = played(growing)
    steps = sum(turn.output for turn in growing)
    best = Clairvoyant(SHAPE, THROTTLE, Misses.of({n: [round(misses(n))] * steps for n in range(200, 2401, 200)}))
    rows = {row["name"]: row for row in phase_rows("emulated", result, growing, best, SHAPE)}
    assert rows["memory.emulated.phase"]["ratio"] == min(
        row["ratio"] for name, row in rows.items() if name.startswith("memory.emulated.phase.")
    )
    assert rows["memory.emulated.phase"]["ratio"] > 0.95
    regret = regret_row("emulated", result, growing, best)
    assert 0.99 < regret["ratio"] < 1.05
