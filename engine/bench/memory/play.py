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
from engine.memory.balancer import Balancer
from engine.memory.foreign import Spare
from engine.memory.pools import PagePool, Pools, SlotPool
from engine.protocol import Submit
from engine.scheduler.balancing import Balancing
from engine.scheduler.loop import Limits, Scheduler
from engine.scheduler.moves import Mover
from engine.scheduler.outlook import Curve, Outlook
from engine.scheduler.residency import Residency
from engine.scheduler.slots import ExpertSlots
from engine.scheduler.step import Sampled, Slice

VOCAB = 1 << 30
CHUNK_TOKENS = 2048
START_TOKENS = 4096
IDLE_LOOKS = 16  # at most, in one pause


class Experts(ExpertSlots, Protocol):
    """Slots under recorded routing. `missed` counts over all steps so far."""

    missed: int
    curve: Curve

    def step(self) -> int:
        """One decode step; returns its misses."""


MakeExperts = Callable[[Sequence[int]], Experts]  # from the slots that are leased at first


@dataclass(slots=True)
class Played:
    """`decoded` has (context, seconds) of every decode step; `shares` has (tokens, slabs of KV, slabs of experts) at the end of
    every turn; `replayed` prompt tokens were computed again; `moves` is what the engine told of each; `failed` are the errors that
    requests got; `log` is the balancer's."""

    decoded: list[tuple[int, float]] = field(default_factory=list)
    shares: list[tuple[int, int, int]] = field(default_factory=list)
    replayed: int = 0
    replay_s: float = 0.0
    move_s: float = 0.0
    moves: list[dict[str, object]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def decode_s(self) -> float:
        return sum(seconds for _, seconds in self.decoded)

    @property
    def seconds(self) -> float:
        """What turns cost beyond computing what nobody had seen."""
        return self.decode_s + self.replay_s + self.move_s


def play(turns: Sequence[Turn], shape: Shape, throttle: Throttle, make: MakeExperts) -> Played:
    """Every turn in order, one at a time."""
    engine = _Engine(shape, throttle, make)
    for turn in turns:
        engine.turn(turn)
    return engine.end()


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Runner:
    """Computes nothing. `computed` counts prompt tokens."""

    def __init__(self, shape: Shape, throttle: Throttle, clock: _Clock, experts: Experts, played: Played) -> None:
        self._throttle, self._clock, self._experts, self._played = throttle, clock, experts, played
        self._page_s = 2 * shape.page_bytes / throttle.copy_bytes_per_s  # read and written
        self._miss_s = shape.expert_bytes / throttle.fill_bytes_per_s
        self.computed = 0

    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        seconds = 0.0
        decodes = [s for s in slices if s.sample is not None and s.sample.index > 0]
        prompt = sum(len(s.tokens) for s in slices if s not in decodes)
        if decodes:
            seconds += self._throttle.step_s + self._experts.step() * self._miss_s
            self._played.decoded.append((decodes[0].start, seconds))
        self.computed += prompt
        self._clock.now += seconds + prompt / self._throttle.prefill_tokens_per_s
        return [Sampled(s.seq, s.sample.forced or 0) for s in slices if s.sample is not None]

    def copy_page(self, source: int, target: int, tokens: int) -> None:
        self._clock.now += self._page_s
        self._played.move_s += self._page_s

    def copy_state(self, source: int, target: int) -> None:
        raise AssertionError("a model without recurrent layers")

    def zero_state(self, target: int) -> None:
        raise AssertionError("a model without recurrent layers")

    def read_page(self, page: int, tokens: int) -> bytes:
        raise AssertionError("nothing goes to disk")

    def write_page(self, page: int, data: bytes, tokens: int) -> None:
        raise AssertionError("nothing goes to disk")

    def read_state(self, state: int) -> bytes:
        raise AssertionError("a model without recurrent layers")

    def write_state(self, state: int, data: bytes) -> None:
        raise AssertionError("a model without recurrent layers")


class _Programs:
    """Other programs, which want `wanted` slabs and have what `lent` says."""

    def __init__(self, slab_bytes: int) -> None:
        self.wanted, self._slab_bytes = 0, slab_bytes
        self.lent: Callable[[], int] = lambda: 0

    def look(self, promised_bytes: int = 0) -> Spare:
        more = (self.wanted - self.lent()) * self._slab_bytes
        return Spare(0, 0, 0, max(0, more), max(0, -more), "the trace")


class _Engine:
    def __init__(self, shape: Shape, throttle: Throttle, make: MakeExperts) -> None:
        self._played, self._clock = Played(), _Clock()
        self._shape, self._throttle = shape, throttle
        kv = -(-START_TOKENS // shape.tokens_per_slab) + 1
        arena = Arena(shape.slab_bytes, shape.slabs, {"kv": kv, "state": 0, "experts": shape.slabs - kv})
        pages, slots = PagePool(arena, shape.page_bytes), SlotPool(arena, shape.expert_bytes)
        self._pools = Pools(arena, pages, shape.page_tokens, None, slots)
        self._experts = make(slots.lease(shape.slabs - kv))
        self._runner = _Runner(shape, throttle, self._clock, self._experts, self._played)
        self._cache = RadixCache(pages, shape.page_tokens, clock=self._clock)
        self._programs, self._balancer = _Programs(shape.slab_bytes), Balancer()
        limits = Limits(VOCAB, VOCAB, max_running=4, chunk_tokens=CHUNK_TOKENS)
        self._scheduler = Scheduler(
            self._runner,
            self._pools,
            self._cache,
            None,
            limits,
            self._emit,
            clock=self._clock,
            balancing=self._balancing,
        )
        self._lines: dict[str, list[int]] = {}
        self._next_token, self._turns, self._busy = 1, 0, False

    def turn(self, turn: Turn) -> None:
        """A pause, then one request until its answer is complete."""
        played = self._played
        self._programs.wanted = int(turn.lent * self._shape.slabs)
        self._rest(turn.gap_s)
        tokens = self._lines.get(turn.line, [])[: turn.shared] + self._fresh(turn.prompt - turn.shared)
        output = self._fresh(turn.output)
        computed = self._runner.computed
        self._turns += 1
        session = (
            f"main/{turn.line}" if turn.line.startswith("sub") else turn.line
        )  # a subagent is a thread of its session
        self._scheduler.submit(Submit(f"r{self._turns}", tokens, turn.output, session, forced=output))
        self._busy = True
        while self._busy:
            self._scheduler.step()
        again = max(0, self._runner.computed - computed - (turn.prompt - turn.shared))
        played.replayed += again
        played.replay_s += again / self._throttle.prefill_tokens_per_s
        self._lines[turn.line] = tokens + output
        assert self._scheduler.memory is not None
        split = self._scheduler.memory.mover.split
        played.shares.append((len(tokens) + turn.output, split.kv_slabs, split.experts_slabs))

    def end(self) -> Played:
        self._pools.check()
        self._cache.check()
        self._experts.verify()
        self._played.log = list(self._balancer.log)
        return self._played

    def _rest(self, seconds: float) -> None:
        memory, until = self._scheduler.memory, self._clock.now + seconds
        assert memory is not None
        while self._clock.now < until:
            due = memory.idle()
            pause = seconds / IDLE_LOOKS if due is None else max(due, seconds / IDLE_LOOKS if due else 0.0)
            self._clock.now = min(until, self._clock.now + pause)

    def _balancing(self, residency: Residency) -> Balancing:
        mover = Mover(self._pools, self._cache, None, self._runner, self._experts, residency, self._clock)
        miss_s = self._shape.expert_bytes / self._throttle.fill_bytes_per_s
        outlook = Outlook(self._pools, VOCAB, self._experts.curve, miss_s, lambda: self._experts.missed)
        made = Balancing(mover, outlook, self._moved, self._balancer, self._programs, clock=self._clock)
        self._programs.lent = lambda: made.lent
        return made

    def _moved(self, kind: str, fields: dict[str, object]) -> None:
        self._played.moves.append(fields)

    def _emit(self, message: dict[str, Any]) -> None:
        if message["t"] in ("done", "error"):
            self._busy = False
            if message["t"] == "error":
                self._played.failed.append(message["message"])

    def _fresh(self, n: int) -> list[int]:
        self._next_token += n
        return list(range(self._next_token - n, self._next_token))
