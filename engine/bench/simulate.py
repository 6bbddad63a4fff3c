"""A session through the real scheduler, prefix cache, checkpoint store, placement and edit policy, on a runner made of
hashes and a clock that we turn: exact token counts, and seconds at a stated rate."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.bench.fake_runner import FakeRunner, state_after
from engine.bench.scenarios import Ask
from engine.cache.checkpoints import CheckpointStore
from engine.cache.radix import RadixCache
from engine.front.lines import Answered, common_prefix
from engine.front.plans import Plan, Reply, plans_after_compaction, plans_of
from engine.memory.arena import Arena
from engine.memory.pools import PagePool, Pools, StatePool
from engine.prompt.conversation import Prompt
from engine.prompt.edits.policy import EditPolicy, Turn
from engine.prompt.language import Language
from engine.protocol import Submit
from engine.scheduler.loop import Limits, Scheduler

CHECKPOINTS = 19
CHUNK_TOKENS = 8192
WINDOW = 131_072
PREFILL_PER_S = 1000.0
PAGE_TOKENS = 64
PAGES = 16_384
CELL_BYTES = 64
SLAB_CELLS = 64
LAYERS = 40  # how often a step asks whom to drop
MAX_OUTPUT = 8192


@dataclass(frozen=True, slots=True)
class Machine:
    """`grid` 1: a state at any position, as on the CPU. `prefill_per_s` and `decode_per_s` in tokens."""

    grid: int = 1
    prefill_per_s: float = PREFILL_PER_S
    decode_per_s: float = 50.0
    checkpoints: int = CHECKPOINTS
    chunk_tokens: int = CHUNK_TOKENS


@dataclass(slots=True)
class Served:
    """One request. `critical`: tokens computed between its arrival and its first token; `wait_s` that time."""

    line: str
    prompt: list[int]
    reply: list[int]
    new: int
    arrived_s: float = 0.0
    cached: int = 0
    critical: int = 0
    wait_s: float = 0.0
    anticipated: int = 0
    in_flight: int = 0  # tokens that the step running at its arrival had done by then


@dataclass(slots=True)
class Result:
    """`background`: tokens computed ahead; `live`: the most checkpoints ever kept; `predicted` and `hits`: replies after
    which an edit was predicted and the next prompt did not just go on, and those whose next prompt began with a prediction."""

    served: list[Served] = field(default_factory=list)
    background: int = 0
    live: int = 0
    predicted: int = 0
    hits: int = 0

    def of(self, line: str = "") -> list[Served]:
        """The requests of one line, "" for all."""
        return [s for s in self.served if not line or s.line == line]

    def prefilled(self, line: str = "") -> int:
        """Tokens that were not cached when their request was admitted."""
        return sum(len(s.prompt) - s.cached for s in self.of(line))

    def critical(self, line: str = "") -> int:
        """Tokens computed while somebody waited."""
        return sum(s.critical for s in self.of(line))

    def wait_s(self, line: str = "") -> float:
        """Seconds from arrivals to first tokens."""
        return sum(s.wait_s for s in self.of(line))

    @property
    def wasted(self) -> float:
        """Share of what was computed ahead that no request used."""
        used = sum(s.anticipated for s in self.served)
        return max(0, self.background - used) / self.background if self.background else 0.0


def simulate(
    asks: Iterable[Ask],
    language: Language,
    policy: EditPolicy,
    machine: Machine,
    anticipate: bool = False,
    tool_s: float | None = None,
    window: int = WINDOW,
) -> Result:
    """Serve `asks` in order; nothing is computed ahead behind the last. `tool_s` passes between a reply and the next
    request; None: as long as there is something to compute ahead. `window` is what the client was told."""
    return _Simulation(asks, language, policy, machine, anticipate, tool_s, window).run()


class _Simulation:
    def __init__(
        self,
        asks: Iterable[Ask],
        language: Language,
        policy: EditPolicy,
        machine: Machine,
        anticipate: bool,
        tool_s: float | None,
        window: int,
    ) -> None:
        self._asks: Iterator[Ask] = iter(asks)
        self._following: Ask | None = next(self._asks, None)
        self._language, self._policy, self._machine = language, policy, machine
        self._anticipate, self._tool_s, self._window = anticipate, tool_s, window
        self._now = 0.0
        self._result = Result()
        self._turns: dict[str, tuple[Ask, Turn, Served]] = {}
        self._running: set[str] = set()
        self._ahead: dict[str, tuple[str, array[int]]] = {}  # line and tokens of what is computed ahead
        self._expected: dict[str, list[Plan]] = {}  # by line
        self._answered: dict[str, Answered] = {}  # by line
        self._next: Submit | None = None
        self._next_at = 0.0
        self._step = self._layers_done = 0
        self._runner = FakeRunner(PAGE_TOKENS, WINDOW, True, 1 if tool_s is None else LAYERS, self._layer)
        self._store, self._scheduler = self._engine()

    def run(self) -> Result:
        self._prepare()
        self._arrive()
        self._scheduler.run(self._other)
        decoded = sum(len(s.reply) - 1 for s in self._result.served)
        critical = sum(len(s.prompt) - s.cached for s in self._result.served)
        self._result.background = self._runner.computed_tokens - decoded - critical
        return self._result

    def _engine(self) -> tuple[CheckpointStore, Scheduler]:
        machine = self._machine
        slabs = -(-(PAGES + 1) // SLAB_CELLS)
        arena = Arena(CELL_BYTES * SLAB_CELLS, slabs + 1, {"kv": slabs, "state": 1})
        pages, states = PagePool(arena, CELL_BYTES), StatePool(arena, [CELL_BYTES])
        store = CheckpointStore(states, machine.checkpoints * states.state_bytes, machine.grid, clock=self._clock)
        cache = RadixCache(pages, PAGE_TOKENS, True, store.drop, store.protected)
        pools = Pools(arena, pages, PAGE_TOKENS, states)
        limits = Limits(max(WINDOW, self._window), WINDOW, max_running=8, chunk_tokens=machine.chunk_tokens)
        return store, Scheduler(self._runner, pools, cache, store, limits, self._emit, clock=self._clock)

    def _clock(self) -> float:
        return self._now

    def _layer(self) -> None:
        """Time passes in a step; whoever arrives meanwhile is heard before the next layer."""
        rows = self._runner.batch_sizes[-1]
        prefill = sum(n for n in rows if n > 1)
        step_s = prefill / self._machine.prefill_per_s + (1 in rows) / self._machine.decode_per_s
        self._now += step_s / self._runner.layers
        if self._runner.steps != self._step:
            self._step, self._layers_done = self._runner.steps, 0
        self._layers_done += 1
        if self._next is not None and self._tool_s is not None and self._now >= self._next_at:
            served = self._turns[self._next.rid][2]
            served.in_flight = prefill * self._layers_done // self._runner.layers
            self._arrive()

    def _prepare(self) -> bool:
        """Render the next request, if there is one, as it will be sent."""
        ask, self._following = self._following, next(self._asks, None)
        if ask is None:
            return False
        language = self._language
        conversation = self._policy.canonical(ask.conversation, ask.body)
        prompt = language.render(conversation)
        reply = language.script_tokens(ask.reply, conversation)
        wire = ask.wire
        turn = Turn(conversation, prompt, self._window, MAX_OUTPUT, ask.body, hints=wire.hints, marks=wire.marks)
        new = _fresh_tokens(prompt, ask.fresh) if ask.new is None else ask.new
        served = Served(ask.line, prompt.tokens, reply, new)
        rid = f"r{len(self._turns)}"
        self._turns[rid] = (ask, turn, served)
        self._next = Submit(
            rid,
            prompt.tokens,
            len(reply),
            session=ask.line,
            edit_points=self._policy.anchors(turn),
            stop_ids=language.stop_ids,
            forced=reply,
            priority="side" if ask.side else "main",
        )
        return True

    def _arrive(self) -> None:
        """The prepared request reaches the engine, and with it those that do not wait for its reply."""
        submit, self._next = self._next, None
        assert submit is not None
        served = self._turns[submit.rid][2]
        served.arrived_s, served.critical = self._now, -self._computed()
        self._result.served.append(served)
        self._running.add(submit.rid)
        tokens = array("I", submit.tokens)
        met = [(plan, _begins(tokens, plan.expected.tokens)) for plan in self._expected.pop(served.line, ())]
        if any(plan.expected.rule for plan, _ in met) and not any(came and not p.expected.rule for p, came in met):
            self._result.predicted += 1
            self._result.hits += any(came for _, came in met)
        for rid, (line, ahead) in self._ahead.items():
            if line == served.line and not _begins(tokens, ahead):
                self._scheduler.post({"t": "cancel", "rid": rid})
        self._scheduler.post(submit.message())
        if self._following is not None and not self._following.waits:
            self._prepare()
            self._arrive()

    def _computed(self) -> int:
        return self._runner.computed_tokens

    def _emit(self, message: dict[str, Any]) -> None:
        self._result.live = max(self._result.live, len(self._store))
        if message["t"] == "error":
            raise AssertionError(message)
        rid = message.get("rid")
        if rid in self._ahead:
            if message["t"] == "done":
                del self._ahead[rid]
                self._idle()
        elif message["t"] == "accepted":
            served = self._turns[message["rid"]][2]
            served.cached, served.anticipated = message["cached"], message["anticipated"]
        elif message["t"] == "tokens" and self._turns[message["rid"]][2].critical <= 0:
            self._first_token(message["rid"])
        elif message["t"] == "done":
            self._done(message["rid"])

    def _first_token(self, rid: str) -> None:
        served = self._turns[rid][2]
        served.critical += self._computed()
        if served.critical > len(served.prompt) - served.cached:  # the step it met was of use, and partly done by then
            served.critical -= served.in_flight
        if len(self._running) > 1:  # siblings share steps
            served.critical = len(served.prompt) - served.cached
        served.wait_s = self._now - served.arrived_s
        self._runner.layers = 1  # nobody arrives while a reply is decoded
        (request,) = (r for r in self._scheduler.running if r.rid == rid)
        assert self._runner.states[request.state] == state_after(served.prompt), "a wrong state"

    def _done(self, rid: str) -> None:
        ask, turn, served = self._turns[rid]
        self._running.discard(rid)
        self._runner.layers = 1 if self._tool_s is None else LAYERS
        self._language.remember(ask.reply, served.reply, served.prompt)
        line = ask.about or ask.line
        for stale, (ahead, _) in self._ahead.items():
            if ahead == line:
                self._scheduler.post({"t": "cancel", "rid": stale})
        if not ask.side and not ask.about:
            self._answered[line] = Answered(turn, ask.reply)
        if self._anticipate and not ask.side and line in self._answered and self._following is not None:
            self._compute_ahead(rid, line, self._plans(ask, turn, served))
        if self._running:
            return
        if not self._prepare():
            self._scheduler.post({"t": "end"})
            return
        self._next_at = self._now + (self._tool_s or 0.0)
        self._idle()

    def _plans(self, ask: Ask, turn: Turn, served: Served) -> list[Plan]:
        """What follows an answer, or the summary of a line."""
        if not ask.about:
            return plans_of(self._language, self._policy, turn, Reply(ask.reply, len(served.reply)))
        last = self._answered[ask.about]
        return plans_after_compaction(self._language, self._policy, last, ask.conversation, ask.reply)

    def _compute_ahead(self, rid: str, line: str, plans: Iterable[Plan]) -> None:
        computed = array("I", self._answered[line].turn.prompt.tokens)
        fresh = [plan for plan in plans if not _begins(computed, plan.expected.tokens)]
        self._expected[line] = fresh
        for number, plan in enumerate(fresh):
            self._ahead[f"{rid}-{number}"] = line, plan.expected.tokens
            submit = Submit(
                f"{rid}-{number}",
                list(plan.expected.tokens),
                0,
                session=line,
                edit_points=plan.edit_points,
                priority="background",
                supersedes=number == 0,
            )
            self._scheduler.post(submit.message())

    def _idle(self) -> None:
        """Nothing is left to compute ahead: time goes on to the next request."""
        if not self._ahead and self._next is not None:
            self._now = max(self._now, self._next_at)
            self._arrive()

    def _other(self, message: dict[str, Any]) -> None:
        self._scheduler.stop(0.0)


def _fresh_tokens(prompt: Prompt, fresh: frozenset[tuple[int, int]]) -> int:
    """Tokens of these blocks and of their messages' frames, the tools when they come for the first time, and the
    generation prefix."""
    messages = {message for message, _ in fresh}
    blocks = sum(s.end - s.start for s in prompt.spans if (s.message, s.block) in fresh)
    if 0 in messages:
        messages.add(-1)
    frames = sum(s.end - s.start for s in prompt.spans if s.block < 0 and s.message in messages)
    return blocks + frames + len(prompt.tokens) - prompt.end


def _begins(tokens: array[int], beginning: array[int]) -> bool:
    return common_prefix(tokens, beginning) == len(beginning)
