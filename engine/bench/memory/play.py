"""A trace through the real arena, pools, prefix cache, scheduler, mover and balancer, on a runner made of clocks.

What is modelled is time: a step takes what the throttle says for its prompt tokens and for each expert that the routing misses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.bench.memory.trace import Shape, Throttle, Turn
from engine.cache.radix import RadixCache
from engine.memory.arena import Arena
from engine.memory.balance.growth import Growth
from engine.memory.balancer import Balancer, Proposal, Split, View
from engine.memory.pools import PagePool, Pools, SlotPool
from engine.protocol import Submit
from engine.scheduler.loop import Limits, Scheduler
from engine.scheduler.moves import ExpertSlots, Mover
from engine.scheduler.residency import Residency
from engine.scheduler.step import Sampled, Slice

VOCAB = 1 << 30
CHUNK_TOKENS = 2048
EVERY_STEPS = 64  # between two looks at the split
START_TOKENS = 4096


class Experts(ExpertSlots, Protocol):
    """Slots under recorded routing."""

    def step(self) -> int:
        """One decode step; returns its misses."""

    def expected(self, slots: int) -> float:
        """Misses of a step with so many slots, as learnt from the steps so far."""


MakeExperts = Callable[[Sequence[int]], Experts]  # from the slots that are leased at first


@dataclass(slots=True)
class Move:
    """One move: what was proposed, steps that decoded before it, and the longest time that it kept a step waiting."""

    proposal: Proposal
    at_step: int
    longest_s: float
    complete: bool


@dataclass(slots=True)
class Played:
    """`decoded` has (context, seconds, misses) of every decode step; `replayed` prompt tokens were computed again. `failed`
    are the error messages that requests got."""

    decoded: list[tuple[int, float, int]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    replayed: int = 0
    replay_s: float = 0.0
    move_s: float = 0.0
    failed: list[str] = field(default_factory=list)

    @property
    def decode_s(self) -> float:
        return sum(seconds for _, seconds, _ in self.decoded)

    @property
    def seconds(self) -> float:
        """What turns cost beyond computing what nobody had seen."""
        return self.decode_s + self.replay_s + self.move_s


def play(turns: Sequence[Turn], shape: Shape, throttle: Throttle, make: MakeExperts, balancer: Balancer) -> Played:
    """Every turn in order, one at a time."""
    engine = _Engine(shape, throttle, make, balancer)
    for turn in turns:
        engine.turn(turn)
    engine.finish()
    return engine.played


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Runner:
    """Computes nothing. `computed`: prompt tokens so far."""

    def __init__(self, shape: Shape, throttle: Throttle, clock: _Clock, experts: Experts, played: Played) -> None:
        self._throttle, self._clock, self._experts, self._played = throttle, clock, experts, played
        self._page_s = 2 * shape.page_bytes / throttle.copy_bytes_per_s  # read and written
        self._miss_s = shape.expert_bytes / throttle.fill_bytes_per_s
        self.computed = 0

    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        seconds = 0.0
        decodes = [s for s in slices if len(s.tokens) == 1 and s.sample is not None and s.sample.index > 0]
        prompt = sum(len(s.tokens) for s in slices if s not in decodes)
        if decodes:
            misses = self._experts.step()
            seconds += self._throttle.step_s + misses * self._miss_s
            self._played.decoded.append((decodes[0].start, seconds, misses))
        self.computed += prompt
        self._clock.now += seconds + prompt / self._throttle.prefill_tokens_per_s
        return [Sampled(s.seq, s.sample.forced or 0) for s in slices if s.sample is not None]

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        self._clock.now += self._page_s

    def copy_state(self, source: int, target: int) -> None:
        raise AssertionError("a model without recurrent layers")

    zero_state = read_page = write_page = read_state = write_state = copy_state  # type: ignore[assignment]


class _Engine:
    def __init__(self, shape: Shape, throttle: Throttle, make: MakeExperts, balancer: Balancer) -> None:
        self.played, self._clock = Played(), _Clock()
        self._shape, self._throttle, self._balancer = shape, throttle, balancer
        kv = -(-START_TOKENS // shape.tokens_per_slab) + 1
        arena = Arena(shape.slab_bytes, shape.slabs, {"kv": kv, "state": 0, "experts": shape.slabs - kv})
        pages, slots = PagePool(arena, shape.page_bytes), SlotPool(arena, shape.expert_bytes)
        self._pools = Pools(arena, pages, shape.page_tokens, None, slots)
        self._experts = make(slots.lease(shape.slabs - kv))
        self._runner = _Runner(shape, throttle, self._clock, self._experts, self.played)
        cache = RadixCache(pages, shape.page_tokens, clock=self._clock)
        limits = Limits(1 << 20, VOCAB, max_running=4, chunk_tokens=CHUNK_TOKENS)
        self._scheduler = Scheduler(self._runner, self._pools, cache, None, limits, self._emit, clock=self._clock)
        residency: Residency = self._scheduler._residency
        self._mover = Mover(self._pools, cache, None, self._runner, self._experts, residency, self._clock)
        self._growth, self._lent = Growth(), 0
        self._lines: dict[str, list[int]] = {}
        self._next_token, self._turns, self._steps, self._busy = 1, 0, 0, False
        self._needed = 0  # tokens of the request that comes

    def turn(self, turn: Turn) -> None:
        """Idle time, then one request until its answer is complete."""
        clock, played = self._clock, self.played
        self._lent = int(turn.lent * self._shape.slabs)
        for _ in range(2):
            clock.now += turn.gap_s / 2
            self._look({})
        tokens = self._lines.get(turn.line, [])[: turn.shared] + self._fresh(turn.prompt - turn.shared)
        output = self._fresh(turn.output)
        self._needed = turn.prompt
        self._look({turn.line: turn.prompt})
        computed = self._runner.computed
        self._turns += 1
        forced = Submit(f"r{self._turns}", tokens, turn.output, session=turn.line, forced=output)
        self._scheduler.submit(forced)
        self._busy = True
        while self._busy:
            before = len(played.decoded)
            self._scheduler.step()
            if len(played.decoded) > before:
                self._steps += 1
                self._needed = played.decoded[-1][0]
                if not self._steps % EVERY_STEPS:
                    self._look({turn.line: self._needed})
        again = max(0, self._runner.computed - computed - (turn.prompt - turn.shared))
        played.replayed += again
        played.replay_s += again / self._throttle.prefill_tokens_per_s
        self._lines[turn.line] = tokens + output
        self._needed = 0
        self._growth.ended(turn.line, turn.prompt + turn.output, turn.output, clock.now)

    def finish(self) -> None:
        self._pools.check()

    def _look(self, running: dict[str, int]) -> None:
        shape, throttle, mover = self._shape, self._throttle, self._mover
        least = mover.least()
        split = mover.split
        lent = shape.slabs - split.slabs
        pages = -(-(self._needed + EVERY_STEPS) // shape.page_tokens) + 1 if running else 1
        view = View(
            now_s=self._clock.now,
            split=split,
            slabs=shape.slabs,
            slots_per_slab=shape.slots_per_slab,
            tokens_per_slab=shape.tokens_per_slab,
            least=least,
            misses=self._experts.expected,
            miss_s=shape.expert_bytes / throttle.fill_bytes_per_s,
            step_s=throttle.step_s,
            need_kv=-(-pages * shape.page_tokens // shape.tokens_per_slab),
            lent=min(lent, self._lent),
            give_back=max(0, self._lent - lent),
            take_back=max(0, lent - self._lent),
            lines=self._growth.lines(self._clock.now, running),
            replay_s=1 / throttle.prefill_tokens_per_s,
            steps_per_turn=self._growth.steps_per_turn,
            experts=shape.layers * shape.experts,
            slab_s=2 * shape.slab_bytes / throttle.copy_bytes_per_s,
        )
        proposal = self._balancer.propose(view)
        if proposal is not None:
            started = self._clock.now
            moved = mover.apply(proposal.split)
            self.played.move_s += self._clock.now - started
            self.played.moves.append(Move(proposal, len(self.played.decoded), moved.longest_s, moved.complete))

    def _emit(self, message: dict[str, Any]) -> None:
        if message["t"] in ("done", "error"):
            self._busy = False
            if message["t"] == "error":
                self.played.failed.append(message["message"])

    def _fresh(self, n: int) -> list[int]:
        self._next_token += n
        return list(range(self._next_token - n, self._next_token))


def split_of(kv_slabs: int, shape: Shape) -> Split:
    """All that KV does not have is for experts."""
    return Split(kv_slabs, 0, shape.slabs - kv_slabs)
