"""The books of one request: its record, its usage, and what session and metrics take over from them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from engine.front.context import Front
from engine.front.items import Usage
from engine.front.preparing import Origin, Prepared, prompt_hash
from engine.front.records import ANSWERED, RequestRecord
from engine.front.sessions import Session

_COUNTS = ("cached", "replayed", "new", "anticipated", "wasted")


class Account:
    """Open while the request runs; `close` once. Mutates `record`, `usage` and the session's counters."""

    def __init__(self, front: Front, session: Session, record: RequestRecord) -> None:
        self.record = record
        self.usage = Usage()
        self._front = front
        self._session = session
        self._began = time.monotonic()
        self._gaps: list[float] = []
        self._lost_tokens = 0
        self._alone = True
        self._last_token = 0.0
        session.requests += 1
        session.running += 1
        session.last_request = time.time()
        front.metrics.running.inc()

    def prepared(self, origin: Origin, prepared: Prepared) -> None:
        """Take over what rendering found out."""
        record, tokens = self.record, prepared.prompt.tokens
        wire = origin.wire
        record.harness_id, record.harness_parent = wire.session or None, wire.parent or None
        record.line, record.epoch = origin.line.key, wire.epoch or None
        record.kind = origin.side or wire.kind or None
        record.render_s = round(time.monotonic() - self._began, 6)
        record.prompt_tokens = self.usage.prompt = len(tokens)
        digest = prompt_hash(tokens)
        before = self._front.records.same_prompt(record.session, digest)
        record.resent = bool(before)
        record.retried = any(r.end not in ANSWERED for r in before)
        record.prompt_hash = digest
        record.broke_at = prepared.broke.json() if prepared.broke else None
        record.texts = prepared.texts
        record.applied_edits = prepared.applied.json() if prepared.applied else None

    def joined(self, request: str | None) -> None:
        """What this request wants is computed for another one, which is charged with it."""
        self.record.joined = request

    def lost(self, tokens: int) -> None:
        """The line had sent the first `tokens` of this prompt to a worker that is no more."""
        self._lost_tokens = tokens

    def first_output(self) -> None:
        """Something of the answer is on its way to the client."""
        if self.record.ttft_s is None:
            self.record.ttft_s = round(time.monotonic() - self._began, 6)

    def tokens(self, ids: Sequence[int], first: bool) -> None:
        """Time between tokens; the first ones have none before them."""
        now = time.monotonic()
        if first:
            self._alone = self._alone and not self._front.records.prefilling(self.record)
        else:
            self._gaps.append((now - self._last_token) / max(1, len(ids)))
        self._last_token = now

    def note(self, message: Mapping[str, Any]) -> None:
        """Take over what `accepted` and `progress` tell."""
        record = self.record
        if message["t"] == "accepted":
            self._prefix(message)
            record.resume_at = message["resume_at"]
            self._predict()
            if message["cached"] < self._lost_tokens * 9 // 10:
                record.cold = "the worker was restarted"
        elif message["t"] == "progress":
            record.prefill_done = message["done"]
            self._alone = self._alone and not self._front.records.prefilling(record)
            data = {"request": record.id, "session": record.session, "done": message["done"], "total": message["total"]}
            self._front.bus.publish("prefill", data)

    def done(self, message: Mapping[str, Any]) -> str:
        """Take over the worker's final counts; the end reason."""
        usage, timings, experts = message["usage"], message["timings"], message.get("experts") or {}
        self.usage.prompt, self.usage.output = usage["prompt"], usage["output"]
        self._prefix(usage)
        record = self.record
        for name in ("queue_s", "restore_s", "prefill_s", "computed_s", "first_token_s", "decode_s"):
            setattr(record, name, timings.get(name))
        record.expert_hits, record.expert_misses = experts.get("hits"), experts.get("misses")
        return str(message["reason"])

    def close(self, end: str, output_tokens: int) -> None:
        """The request is over; `end` as in the record."""
        record, session, usage = self.record, self._session, self.usage
        record.end = "stop" if end == "stop_string" else end
        record.total_s = round(time.monotonic() - self._began, 6)
        record.output_tokens = usage.output = usage.output or output_tokens
        gaps = sorted(self._gaps)
        if gaps:
            record.tpot_p50_s = gaps[len(gaps) // 2]
            record.tpot_p95_s = gaps[min(len(gaps) - 1, len(gaps) * 95 // 100)]
        session.running -= 1
        session.prompt_tokens += usage.prompt
        session.cached_tokens += usage.cached
        session.output_tokens += usage.output
        session.anticipated_tokens += record.anticipated_tokens or 0
        session.wasted_tokens += record.wasted_tokens or 0
        counts = self._front.anticipation.counts
        counts.used += record.anticipated_tokens or 0
        counts.wasted += record.wasted_tokens or 0
        if record.joined is None:
            self._front.forecast.observe(record, self._alone)
        self._front.metrics.running.dec()
        self._front.metrics.finished(record)
        self._front.bus.publish("request", record.json())

    def _predict(self) -> None:
        """Its prefill starts: how long it was until then and what is cached are known, and so is what others have left, so that the rest
        can be forecast."""
        record = self.record
        new = (record.prompt_tokens or 0) - (record.cached_tokens or 0)
        beside = self._front.records.prefilling(record)
        self._alone = not beside
        waited_s = time.monotonic() - self._began
        made = self._front.forecast.predict(
            new, record.cached_tokens or 0, beside, render_s=waited_s, side=bool(record.side)
        )
        record.predicted_ttft_s = made.ttft_p50_s

    def _prefix(self, counts: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            joined = self.record.joined is not None and name != "cached"
            setattr(self.record, f"{name}_tokens", 0 if joined else counts.get(name))
        self.record.tier = counts.get("tier")
        self.usage.cached = counts["cached"] or 0  # null: an upstream that does not tell
