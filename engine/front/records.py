"""What happened: one record per request (schema ft.request/1) and the event bus behind /v1/engine/events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from engine.front.life import Life

SCHEMA = "ft.request/1"
RING = 4096
_EVENT_RING = 1024
_RECENT = 64
ANSWERED = ("stop", "length", "tool_use")


@dataclass(slots=True)
class RequestRecord:
    """One request as the agent felt it. Times in seconds, `started` since the epoch; None: not known or not filled."""

    id: str
    session: str | None
    api: str
    model: str
    stream: bool
    asked_model: str | None = None  # what the client called the served `model`
    started: float = field(default_factory=time.time)
    harness_id: str | None = None
    harness_parent: str | None = None
    line: str | None = None  # the conversation within the session that this request continues
    kind: str | None = None  # title, compaction … as declared or said on the wire; None: a turn of the agent
    epoch: str | None = None
    user_agent: str | None = None
    prompt_hash: str | None = None
    resent: bool | None = None  # the session sent the same prompt before
    retried: bool | None = None  # and it was not, or not yet, answered
    joined: str | None = None  # the request whose computation this one shares
    scripted: bool = False
    side: bool | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    replayed_tokens: int | None = None
    new_tokens: int | None = None
    anticipated_tokens: int | None = None  # of the cached ones, those that only anticipation had computed
    wasted_tokens: int | None = None  # anticipated for this line and of no use to this request
    broke_at: dict[str, Any] | None = None  # where the prompt left what its line had sent; None: it continued it
    cold: str | None = None  # why what this line had sent before is not there any more
    applied_edits: list[dict[str, Any]] | None = None
    resume_at: int | None = None
    output_tokens: int | None = None
    prefill_done: int | None = None
    checkpoint: str | None = None
    tier: str | None = None
    render_s: float | None = None
    queue_s: float | None = None
    restore_s: float | None = None
    prefill_s: float | None = None
    computed_s: float | None = None  # its own share of the steps until its first token
    first_token_s: float | None = None
    decode_s: float | None = None
    ttft_s: float | None = None
    predicted_ttft_s: float | None = (
        None  # forecast when it was admitted: what is cached is known then, the rest is not
    )
    total_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    expert_hits: int | None = None
    expert_misses: int | None = None
    pcie_bytes: int | None = None
    cpu_experts: int | None = None
    heartbeats: int = 0
    last_beat: float | None = None  # when the newest one went out, since the epoch
    end: str | None = None  # stop | length | tool_use | client_gone | cancelled | error; None while running
    error: str | None = None
    watchdog_s: float | None = None  # the client's limit on silence before the first byte
    texts: dict[str, str] | None = None  # around `broke_at`, the old and the new; shown only when asked for

    def json(self, texts: bool = False) -> dict[str, Any]:
        # without copies of what it holds: the whole ring is told at once
        record = {"schema": SCHEMA, **{name: getattr(self, name) for name in self.__slots__}}
        record["client_gone"] = self.end == "client_gone"
        if not texts:
            del record["texts"]
        return record


class Records:
    """A ring of the newest requests, running ones included."""

    def __init__(self, size: int = RING) -> None:
        self._ring: deque[RequestRecord] = deque(maxlen=size)

    def add(self, record: RequestRecord) -> None:
        self._ring.append(record)

    def same_prompt(self, session: str | None, prompt_hash: str) -> list[RequestRecord]:
        """The requests of this session, among the newest of all, that had the same prompt."""
        recent = list(self._ring)[-_RECENT:]
        return [r for r in recent if r.prompt_hash == prompt_hash and r.session == session]

    def place_in_s(self) -> int:
        """When one more request may find a place, in whole seconds: as soon as one takes, by those that ended lately."""
        recent = sorted(r.total_s for r in list(self._ring)[-_RECENT:] if r.total_s is not None and r.end in ANSWERED)
        return max(1, min(60, round(recent[len(recent) // 2]))) if recent else 5

    def newest(
        self, limit: int = RING, session: str | None = None, texts: bool = False, running: bool = False
    ) -> list[dict[str, Any]]:
        """Oldest first, at most `limit`, of one session when given, without those that ended when `running`."""
        chosen = [r for r in self._ring if session is None or r.session == session]
        if running:
            chosen = [r for r in chosen if r.end is None]
        return [r.json(texts) for r in chosen[-limit:]] if limit > 0 else []

    def state_of(self, session: str) -> str | None:
        """What the session's newest unfinished request is at: prefill or thinking. None: nothing runs."""
        for r in reversed(self._ring):
            if r.session == session and r.end is None:
                return "prefill" if r.ttft_s is None else "thinking"
        return None

    def prefilling(self, but: RequestRecord | None = None) -> list[tuple[int, int]]:
        """(tokens left, depth) of every other request that waits for its first token."""
        found = []
        for r in list(self._ring)[-_RECENT:]:
            if r is not but and r.end is None and r.ttft_s is None and r.prompt_tokens:
                done = max(r.prefill_done or 0, r.cached_tokens or 0)
                if done < r.prompt_tokens:
                    found.append((r.prompt_tokens - done, done))
        return found

    def running(self) -> int:
        return sum(1 for r in self._ring if r.end is None)


class EventBus:
    """Numbered events. A subscriber that names the last id it saw gets what it missed, as far as the ring reaches."""

    def __init__(self) -> None:
        self._ring: deque[tuple[int, str, dict[str, Any]]] = deque(maxlen=_EVENT_RING)
        self.life = Life()
        self._next = 1
        self._waiters: set[asyncio.Event] = set()
        self._closed = False

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Never blocks; slow subscribers lose events older than the ring, never their connection."""
        event = {"kind": kind, "time": time.time(), **data}
        self._ring.append((self._next, kind, event))
        self.life.note(kind, event)
        self._next += 1
        for waiter in self._waiters:
            waiter.set()

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for waiter in self._waiters:
            waiter.set()

    async def subscribe(
        self, after: int | None, beat_s: float
    ) -> AsyncIterator[tuple[int, str, dict[str, Any]] | None]:
        """Events with id > `after` (None: only new ones) until `close`; None after `beat_s` of silence."""
        last = self._next - 1 if after is None else after
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            while not self._closed:
                for event in [e for e in self._ring if e[0] > last]:
                    last = event[0]
                    yield event
                waiter.clear()
                if self._closed or self._next - 1 > last:
                    continue
                try:
                    async with asyncio.timeout(beat_s):
                        await waiter.wait()
                except TimeoutError:
                    yield None
        finally:
            self._waiters.discard(waiter)
