"""The worker process: owns weights, caches and the scheduling loop; one Unix socket to the front that started it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.cache.by_hand import AnchorsByHand
from engine.cache.checkpoints import CheckpointStore
from engine.cache.hibernate import Disk
from engine.cache.radix import RadixCache
from engine.device.foreign import watch
from engine.errors import DoesNotFit, FtError, WorkerGone
from engine.experts.audit import ExpertsDamaged
from engine.link import Link
from engine.memory.foreign import Beside
from engine.memory.plan import Plan
from engine.memory.planner import plan_model
from engine.memory.pools import Pools
from engine.protocol import VERSION
from engine.scheduler.arrival import ARRIVED, Arrival, Coming, NotLoaded
from engine.scheduler.balancing import Balancing
from engine.scheduler.loop import Limits, Scheduler
from engine.scheduler.orders import Orders
from engine.scheduler.report import snapshot
from engine.scheduler.request import MatcherFactory
from engine.scheduler.sharing import Experts, process_memory, serve_with, share_out
from engine.scheduler.step import Runner
from engine.scheduler.throttle import Throttled, chunk_of
from engine.worker_config import WorkerConfig, parse_config

log = logging.getLogger(__name__)

EXIT_NOT_READY = 5
GREETING_S = 5.0
OOM_SCORE_ADJ = "500"  # the kernel takes the worker before the front, which can then say what happened


Event = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model as the loop needs it. `expert_counts` returns (hits, misses) so far, `report` what else there is to
    say about how it runs; `listen` is given where to tell of things that happen (a kind, and its fields); `experts` are those
    with slots that may change hands, `give_back` gets slabs whose memory the system may have.

    Weights may still be `coming` while requests run: None when all have. Whoever has this starts them, calls `finish` when they
    have ended, with what frees so many pages (see runner.load.finish), and closes them. It returns experts that are served in
    another way from then on, or None."""

    pools: Pools
    runner: Runner
    vocab_size: int
    matcher: MatcherFactory
    expert_counts: Callable[[], tuple[int, int]]
    report: Callable[[], dict[str, Any]] = dict
    listen: Callable[[Event], None] = lambda event: None
    experts: Experts = field(default_factory=Experts)
    give_back: Callable[[Sequence[int]], None] = lambda slabs: None
    coming: Coming | None = None
    finish: Callable[[Callable[[int], object]], Experts | None] = lambda make_room: None


Progress = Callable[[str, int, int], None]
Load = Callable[[WorkerConfig, Plan, Progress], Engine]


class Worker:
    """Loads, then serves. `_received` runs in the reader thread, everything else in the main one."""

    def __init__(self, config: WorkerConfig, link: Link) -> None:
        self._config = config
        self._link = link
        self._scheduler: Scheduler | None = None
        self._greeted = threading.Event()
        self._stats_asked: deque[int] = deque()
        self._report: Callable[[], dict[str, Any]] = lambda: {}
        self._memory: Balancing | None = None
        self._backend, self._experts = "", Experts()
        self._orders: Orders | None = None
        self._arrival: Arrival | None = None
        self._read = {"done": 0, "total": 0}

    def run(self, load: Load) -> int:
        """Returns the exit code: 0 after a shutdown, 5 when the model could not be made ready."""
        self._link.send({"t": "hello", "version": VERSION, "pid": os.getpid(), "nonce": self._config.nonce})
        threading.Thread(target=self._link.receive, args=(self._received,), name="front", daemon=True).start()
        try:
            plan = plan_model(self._config.model_dir, self._config.settings).require()
            engine = load(self._config, plan, self._progress)
        except Exception as failure:  # every way loading can fail must reach the front as a cause and a fix
            error = as_error(failure)
            log.error("loading failed: %s", error, exc_info=not isinstance(failure, FtError))
            self._state("failed", code=error.code, message=error.message, hint=error.hint)
            self._greeted.wait(GREETING_S)  # closing a socket with unread bytes would discard the message just sent
            return EXIT_NOT_READY
        scheduler = self._assemble(plan, engine)
        arrival = Arrival(engine.coming, lambda: self._finish(engine, scheduler), scheduler.post, self._ready)
        self._arrival = arrival
        self._ready()
        try:
            with arrival.under_way():
                scheduler.run(self._other)
        except (ExpertsDamaged, NotLoaded) as failure:
            error = as_error(failure.failure) if isinstance(failure, NotLoaded) else failure
            log.error("serving stops: %s", error)
            scheduler.fail(error)
            self._state("failed", code=error.code, message=error.message, hint=error.hint)
            return EXIT_NOT_READY
        except Exception as failure:  # between two steps: who holds which memory is not known any more
            cause = f"The worker ends, because something failed between two steps: {_first_line(failure)}."
            scheduler.fail(WorkerGone(cause, "It is restarted; send the request again."))
            raise
        return 0

    def _finish(self, engine: Engine, scheduler: Scheduler) -> None:
        """All weights are there."""
        experts = engine.finish(scheduler.free_pages)
        if experts is not None and scheduler.memory is not None:
            serve_with(scheduler.memory, experts)
            self._experts = experts
        self._backend = backend_of(engine)

    def _assemble(self, plan: Plan, engine: Engine) -> Scheduler:
        pools, store = engine.pools, None
        if pools.states is not None:
            store = CheckpointStore(pools.states, plan.checkpoints * pools.states.state_bytes, event=self._event)
        cache = RadixCache(pools.pages, pools.page_tokens)
        if store is not None:
            cache = RadixCache(pools.pages, pools.page_tokens, True, store.drop, store.protected)
        throttle = self._config.throttle_tokens_per_s
        chunk_tokens = chunk_of(plan.chunk_tokens, throttle) if throttle else plan.chunk_tokens
        scheduler = Scheduler(
            Throttled(engine.runner, throttle) if throttle else engine.runner,
            pools,
            cache,
            store,
            Limits(plan.window_tokens, engine.vocab_size, plan.max_running, chunk_tokens),
            self._link.send,
            engine.matcher,
            engine.expert_counts,
            self._answer_stats,
            disk=open_disk(self._config, plan, engine.report().get("activations", "f32")),
            balancing=share_out(
                plan,
                self._config.settings,
                engine.experts,
                engine.runner,
                pools,
                cache,
                store,
                self._event,
                Beside(watch(plan.device), lambda: 0 if self._arrival is None else self._arrival.unread_bytes()),
                engine.give_back,
            ),
        )
        memory = scheduler.memory
        assert memory is not None
        self._memory = memory
        self._backend, self._experts = backend_of(engine), engine.experts
        memory.changed.append(self._ready)
        self._orders = Orders(
            plan,
            pools,
            memory,
            self._link.send,
            lambda: scheduler.running,
            lambda: process_memory(engine.report()),
            lambda: self._experts.resident(),
            lambda: self._experts.picture(),
            AnchorsByHand(store).act,
        )
        asked = {**asdict(self._config.options), "threads": self._config.threads}

        def report() -> dict[str, Any]:
            return snapshot(scheduler, plan, pools, cache, store, engine.expert_counts(), asked, engine.report())

        self._report = report
        engine.listen(self._event)
        self._scheduler = scheduler
        return scheduler

    def _received(self, message: dict[str, Any]) -> None:
        kind, scheduler = message["t"], self._scheduler
        if kind == "hello":
            if message["version"] != VERSION:
                raise ValueError(f"version {message['version']}, not {VERSION}")
            self._greeted.set()
        elif scheduler is None:
            if kind == "shutdown":
                os._exit(0)
        else:
            if kind == "stats":
                self._stats_asked.append(message["n"])
            scheduler.post(message)

    def _other(self, message: dict[str, Any]) -> None:
        if message["t"] == "shutdown" and self._scheduler is not None:
            self._scheduler.stop(float(message["drain_s"]))
        if message["t"] == "forget" and self._scheduler is not None and self._scheduler.hibernation is not None:
            self._scheduler.hibernation.forget(str(message["session"]))
        if message["t"] == "memory" and self._orders is not None:
            self._orders.handle(message)
        if message["t"] == ARRIVED and self._arrival is not None:
            self._arrival.arrived()
        self._answer_stats()

    def _answer_stats(self) -> None:
        while self._stats_asked:
            self._link.send({"t": "stats", "n": self._stats_asked.popleft(), "data": self._report()})

    def _event(self, kind: str, fields: dict[str, object]) -> None:
        self._link.send({**fields, "t": "event", "kind": kind})  # whatever fields there are, the kind stays

    def _progress(self, phase: str, done: int, total: int) -> None:
        self._read = {"done": done, "total": total}
        self._state("warming" if phase == "warm-up" else "loading", phase=phase, done=done, total=total)

    def _ready(self) -> None:
        """Requests are served, which they may be when not all weights are there. Also when memory was shared out anew: how
        long requests may be is another then."""
        assert self._memory is not None
        has = {"window": self._memory.window_tokens, "kv_tokens": self._memory.kv_tokens, "backend": self._backend}
        if self._arrival is None or self._arrival.coming is None:
            self._state("ready", **has)
        else:
            self._state("loading", **{"phase": "weights", **self._read, "serves": True, **has})

    def _state(self, state: str, **fields: Any) -> None:
        self._link.send({"t": "state", "state": state, "phase": "", "done": 0, "total": 0, **fields})


def backend_of(engine: Engine) -> str:
    """The one that serves experts; empty while it is still to be chosen."""
    return str(engine.report().get("backend", "")).replace("auto", "")


def open_disk(config: WorkerConfig, plan: Plan, activations: str) -> Disk | None:
    """The prefixes of this model on disk, as this plan lays them out and this precision computes them; None when there
    shall be none or the folder cannot be used."""
    if config.hibernate_dir is None or config.hibernate_bytes <= 0:
        return None
    manifest = hashlib.blake2b((config.model_dir / "ftw.json").read_bytes(), digest_size=16).hexdigest()
    layout = f"{plan.kv_dtype} in blocks {plan.page_tokens} {plan.page_bytes} {plan.state_layer_bytes} {activations}"
    try:
        return Disk(config.hibernate_dir, config.hibernate_bytes, f"{manifest} {layout}")
    except OSError as failure:
        log.warning("nothing is kept on disk: %s", failure)
        return None


def as_error(failure: Exception) -> FtError:
    """Any failure as one a person can act on."""
    if isinstance(failure, FtError):
        return failure
    text = _first_line(failure)
    if isinstance(failure, MemoryError) or "allocate memory" in text:
        return DoesNotFit(
            f"Memory ran out while loading: {text}.", "Serve with a smaller --kv, or close other programs."
        )
    return FtError(f"Loading failed: {text}.", "The engine's log has the details: ft engine logs")


def _first_line(failure: Exception) -> str:
    return str(failure).splitlines()[0] if str(failure) else type(failure).__name__


def begin_engine(config: WorkerConfig, plan: Plan, progress: Progress) -> Engine:
    """Load the real model as far as it must be for requests to run. Imports torch."""
    from engine.worker_engine import load_engine

    return load_engine(config, plan, progress, early=True)


def serve(config: WorkerConfig, load: Load = begin_engine) -> int:
    """Connect and run. Returns the exit code. Raises OSError when no front listens on the socket."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    return Worker(config, Link(config.socket)).run(load)


def main(argv: list[str]) -> int:
    """`engine worker`. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s worker %(levelname)s %(message)s")
    return serve(parse_config(argv))
