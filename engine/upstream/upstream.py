"""Several replicas as one backend of the front: choice, queueing, failures, and the worker's messages made from answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from array import array
from collections.abc import Sequence
from typing import Any

from engine.errors import FtError, Unsupported
from engine.front.metrics import Metrics
from engine.front.records import EventBus
from engine.front.supervision.pending import Pending
from engine.front.supervision.worker_state import WorkerState
from engine.prompt.language import Language
from engine.protocol import Submit
from engine.upstream.affinity import blocks
from engine.upstream.failures import UpstreamBusy, UpstreamGone, UpstreamRefused
from engine.upstream.limits import CANNOT, TEXT_ONLY, UNTOLD_CACHE
from engine.upstream.replica import Replica
from engine.upstream.wires import Piece

PROBE_EVERY_S = 2.0
STRIKES = 3  # ports that stay closed this often in a row take their answers with them
_LOG = logging.getLogger("engine.upstream")


class Upstream:
    """Fulfils `engine.front.seam.Backend`. A request that fails before its first token goes to another replica; one that
    fails later is an error in the client's dialect."""

    def __init__(
        self,
        urls: Sequence[str],
        tokens: Sequence[str],
        language: Language,
        bus: EventBus,
        metrics: Metrics,
        window: int | None = None,
        probe_every_s: float = PROBE_EVERY_S,
    ) -> None:
        self.worker = WorkerState(since=time.time())
        self.paused = False
        self.replicas = [Replica(url, token, language) for url, token in zip(urls, tokens, strict=True)]
        self._language = language
        self._bus = bus
        self._metrics = metrics
        self._window = window
        self._probe_every_s = probe_every_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._placed: dict[str, Replica] = {}
        self._strikes: dict[Replica, int] = {}
        self._stopping = asyncio.Event()
        self._draining = False

    # Requests

    def submit(self, submit: Submit) -> Pending:
        """Raises Unsupported for what no upstream does, UpstreamGone or UpstreamBusy when none would take it."""
        if submit.forced is not None:
            raise Unsupported(CANNOT["scripts"])
        if submit.grammar is not None and submit.priority != "side":
            raise Unsupported(CANNOT["grammar"], "Leave the choice of tools and the format to the model.")
        if submit.sampling.logprobs >= 0:
            raise Unsupported(CANNOT["logprobs"], "Leave logprobs out.")
        if self._draining:
            raise UpstreamGone("The engine is stopping.")
        self._choose(submit.tokens, [])
        pending = Pending(submit)
        pending.sent = True
        self._tasks[submit.rid] = asyncio.create_task(self._serve(pending))
        return pending

    def cancel(self, rid: str) -> None:
        """Close the connection that brings the answer."""
        task = self._tasks.get(rid)
        if task is not None:
            task.cancel()

    def pause(self, on: bool) -> None:
        raise Unsupported(CANNOT["pause"])

    def restarts_left(self) -> None:
        """Upstreams are started by others."""

    def forget(self, session: str) -> None:
        """An upstream keeps what it likes."""

    def running(self) -> int:
        return len(self._tasks)

    async def stats(self, timeout_s: float = 2.0) -> dict[str, Any] | None:
        return {
            "upstream": [replica.json() for replica in self.replicas],
            "running": sum(replica.running for replica in self.replicas),
            "waiting": len(self._tasks) - sum(replica.running for replica in self.replicas),
            "cannot": self.cannot(),
        }

    async def memory(self, timeout_s: float = 30.0, **asked: Any) -> dict[str, Any] | None:
        raise Unsupported(CANNOT["memory"], "Ask the upstream's own tools.")

    def cannot(self) -> dict[str, str]:
        found = dict(CANNOT)
        if any(r.live and r.served and r.cached_tokens is None for r in self.replicas):
            found["cached_tokens"] = UNTOLD_CACHE
        if any(r.live and r.wire and not r.wire.told_ids for r in self.replicas):
            found["exact_tokens"] = TEXT_ONLY
        return found

    # Life

    async def run(self) -> None:
        """Look at every replica, again and again. One that is down is taken back once it answers."""
        try:
            while not self._stopping.is_set():
                await asyncio.gather(*(self._look(replica) for replica in self.replicas))
                self._tell()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._probe_every_s)
        finally:
            for replica in self.replicas:
                await replica.close()

    def drain(self) -> None:
        self._draining = True

    async def stop(self, drain_s: float = 8.0) -> None:
        """Let running answers end within `drain_s`, then close their connections."""
        self.drain()
        self._stopping.set()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        self.kill()
        self.worker.state = "stopped"

    def kill(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()

    async def _look(self, replica: Replica) -> None:
        was = replica.live
        await replica.probe()
        if replica.live:
            self._strikes.pop(replica, None)
            if not self._width(replica):
                replica.lost("it does not tell its window: give it with --kv N")
        if was and not replica.live and replica.running:
            strikes = self._strikes[replica] = self._strikes.get(replica, 0) + 1
            if strikes < STRIKES:
                replica.live = True  # an overloaded server may miss a knock
            else:
                self._drop(replica)
        if was != replica.live:
            _LOG.info("upstream %s: %s", replica.url, "serves" if replica.live else replica.why)
            self._bus.publish("upstream", replica.json())

    def _drop(self, replica: Replica) -> None:
        for rid, placed in list(self._placed.items()):
            if placed is replica:
                self._tasks[rid].cancel(f"{replica.url} is gone: {replica.why}")

    def _tell(self) -> None:
        """What /ready says: ready while at least one replica is, with the window that all that live can serve."""
        live = [replica for replica in self.replicas if replica.live]
        state = "ready" if live else "starting"
        worker = self.worker
        if state != worker.state:
            worker.since = time.time()
            self._metrics.ready.set(1 if live else 0)
        worker.state = state
        worker.window = min((self._width(replica) for replica in live), default=worker.window)
        absent = [f"{replica.url}: {replica.why}" for replica in self.replicas if not replica.live]
        worker.phase = f"{len(live)} of {len(self.replicas)} upstreams serve" if live else "waiting for an upstream"
        worker.message = "; ".join(absent)

    def _width(self, replica: Replica) -> int:
        limits = [limit for limit in (replica.window, self._window) if limit]
        return min(limits, default=0)

    # One request

    def _choose(self, tokens: Sequence[int], tried: Sequence[Replica]) -> Replica:
        """Of the replicas that live and were not tried: the one that was sent most of this prompt, then the least loaded.

        Raises UpstreamGone or UpstreamBusy when there is none.
        """
        live = [replica for replica in self.replicas if replica.live and replica not in tried]
        if not live:
            why = "; ".join(f"{replica.url}: {replica.why or 'it failed on this request'}" for replica in self.replicas)
            raise UpstreamGone(f"No upstream can serve: {why}.", "They are asked again every few seconds.")
        willing = [replica for replica in live if not replica.busy_s()]
        if not willing:
            wait_s = math.ceil(min(replica.busy_s() for replica in live))
            raise UpstreamBusy(f"All upstreams are busy for about {wait_s} s.", wait_s)
        hashes = blocks(tokens)
        return min(willing, key=lambda r: (-r.seen.common(hashes), r.running, r.served))

    async def _serve(self, pending: Pending) -> None:
        submit, began, tried = pending.submit, time.monotonic(), list[Replica]()
        error: FtError | None = None
        try:
            while True:
                try:
                    replica = self._choose(submit.tokens, tried)
                except FtError as failure:
                    pending.put(error or failure)
                    return
                answer = Answering(pending, replica, self._language, began)
                self._placed[submit.rid] = replica
                try:
                    await answer.run()
                    return
                except FtError as failure:
                    error = failure
                    _LOG.info("request %s at %s: %s", submit.rid, replica.url, failure)
                    replica.failed += 1
                    elsewhere = isinstance(failure, (UpstreamGone, UpstreamBusy, UpstreamRefused))
                    if answer.ids or not elsewhere:
                        pending.put(failure)
                        return
                    tried.append(replica)
        except asyncio.CancelledError as cancelled:
            pending.put(UpstreamGone(str(cancelled) or "The request was cancelled.", "Send the request again."))
        except Exception as failure:
            _LOG.exception("request %s", submit.rid)
            pending.put(UpstreamRefused(f"The answer could not be read ({type(failure).__name__})."))
        finally:
            self._tasks.pop(submit.rid, None)
            self._placed.pop(submit.rid, None)


class Answering:
    """One attempt at one replica, as the messages of a worker."""

    def __init__(self, pending: Pending, replica: Replica, language: Language, began: float) -> None:
        self.ids: list[int] = []
        self._pending = pending
        self._replica = replica
        self._language = language
        self._began = began
        self._placed = self._first = 0.0
        self._end = Piece()

    async def run(self) -> None:
        """Raises FtError as `Replica.stream` does."""
        replica, submit = self._replica, self._pending.submit
        replica.seen.add(blocks(submit.tokens))
        async with replica.slots or contextlib.nullcontext():
            self._placed = time.monotonic()
            replica.running += 1
            try:
                async with contextlib.aclosing(replica.stream(submit)) as pieces:
                    async for piece in pieces:
                        self._take(piece)
            finally:
                replica.running -= 1
        self._finish()

    def _take(self, piece: Piece) -> None:
        rid, language, end = self._pending.submit.rid, self._language, self._end
        ids = piece.ids
        if piece.text is not None and language.decode(ids) != piece.text:
            ids = language.encode_controls(piece.text)  # no ids, or not those of the text
        if ids:
            self._first = self._first or time.monotonic()
            self.ids += ids
            self._pending.put({"t": "tokens", "rid": rid, "ids": ids, "logprobs": None})
        elif piece.prefill_done is not None:
            total = len(self._pending.submit.tokens)
            self._pending.put({"t": "progress", "rid": rid, "done": piece.prefill_done, "total": total})
        for name in ("reason", "stop_id", "prompt", "cached", "output"):
            if getattr(piece, name) is not None:
                setattr(end, name, getattr(piece, name))

    def _finish(self) -> None:
        submit, replica, end, now = self._pending.submit, self._replica, self._end, time.monotonic()
        prompt, output = len(submit.tokens), end.output or len(self.ids)
        if end.reason == "stop" and submit.stop_ids and (not self.ids or self.ids[-1] not in submit.stop_ids):
            # Servers swallow the token that ended the answer; without it the answer would count as cut off.
            last = end.stop_id if end.stop_id in submit.stop_ids else submit.stop_ids[0]
            self.ids.append(last)
            self._pending.put({"t": "tokens", "rid": submit.rid, "ids": [last], "logprobs": None})
        replica.seen.add(blocks(array("I", [*submit.tokens, *self.ids])))
        replica.served += 1
        replica.prompt_tokens += prompt
        replica.output_tokens += output
        if end.cached is not None:
            replica.cached_tokens = (replica.cached_tokens or 0) + end.cached
        first = self._first or now
        timings = {"queue_s": self._placed - self._began, "restore_s": None, "prefill_s": first - self._placed}
        timings |= {"first_token_s": first - self._began, "decode_s": now - first}
        new = None if end.cached is None else prompt - end.cached
        usage = {"prompt": prompt, "cached": end.cached, "replayed": None, "new": new, "output": output, "tier": None}
        done = {"t": "done", "rid": submit.rid, "reason": end.reason, "stop_id": end.stop_id}
        self._pending.put({**done, "timings": timings, "usage": usage, "experts": {}})
