"""Request records of the engine as turns, as requests in flight, and as events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from ftagent.dashboard.http import ServerEvent
from ftagent.dashboard.model import Event, InFlight, Turn, Watchdog
from ftagent.dashboard.watchdog import judge, least
from ftagent.explain import why

Record = Mapping[str, Any]
_SAME = frozenset(f.name for f in fields(Turn)) - {
    "request", "name", "started_at", "ended", "why", "broke_at", "edge", "rule", "predicted",
}  # fmt: skip
_PACE_S = 20.0  # of progress that an ETA is made from
_CHANGES = {"created": "began", "deleted": "ended"}
_WARNED = ("warning", "experts-slow", "cores-shared", "fork")
_TOLD = frozenset(
    (*_WARNED, "request", "worker_gone", "state", "session", "moved", "pause", "experts-recovered", "upstream")
)


def turn_of(record: Record, name: str, first: bool) -> Turn:
    """`first` of its line, as far as that is known."""
    broke = record.get("broke_at") or {}
    return Turn(
        request=str(record["id"]),
        name=name,
        started_at=record.get("started"),
        ended=record.get("end"),
        why=why(record, first),
        broke_at=broke.get("token"),
        edge=broke.get("edge"),
        rule=broke.get("rule"),
        predicted=broke.get("predicted"),
        **{key: record[key] for key in _SAME if key in record},
    )


class Pace:
    """How fast one request gets on."""

    def __init__(self) -> None:
        self._prefill: deque[tuple[float, int]] = deque(maxlen=64)
        self._output: deque[tuple[float, int]] = deque(maxlen=64)

    def computed(self, at: float, position: int) -> None:
        """Of the prompt, `position` tokens were there at `at`."""
        _add(self._prefill, at, position)

    def wrote(self, at: float, tokens: int) -> None:
        _add(self._output, at, tokens)

    @property
    def prefill_tps(self) -> float | None:
        return _rate(self._prefill)

    @property
    def decode_tps(self) -> float | None:
        return _rate(self._output)

    @property
    def output_tokens(self) -> int | None:
        return self._output[-1][1] if self._output else None


def _add(samples: deque[tuple[float, int]], at: float, count: int) -> None:
    if samples and count <= samples[-1][1]:
        return  # only what was new says how fast it goes
    samples.append((at, count))
    while samples[0][0] < at - _PACE_S:
        samples.popleft()


def _rate(samples: deque[tuple[float, int]]) -> float | None:
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return None
    return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


def in_flight_of(
    record: Record, name: str, agent: str | None, pace: Pace, now: float, spread: float | None = None
) -> InFlight:
    """A record without an end. `spread`: the p95 of forecasts over their median, None: not known."""
    prompt, cached, ttft = record.get("prompt_tokens"), record.get("cached_tokens"), record.get("ttft_s")
    position, started = record.get("prefill_done"), float(record.get("started") or now)
    elapsed = max(0.0, now - started)
    todo = None if prompt is None or cached is None else prompt - cached
    done = None
    if todo is not None:
        done = todo if ttft is not None else min(todo, max(0, (position or 0) - (cached or 0)))
    eta = _eta(todo, done, pace.prefill_tps, record.get("predicted_ttft_s"), elapsed) if ttft is None else None
    beat = record.get("last_beat")
    return InFlight(
        request=str(record["id"]),
        session=record.get("session"),
        name=name,
        agent=agent,
        kind=record.get("kind"),
        stage=_stage(record),
        started_at=started,
        elapsed_s=elapsed,
        prompt_tokens=prompt,
        cached_tokens=cached,
        replayed_tokens=record.get("replayed_tokens"),
        new_tokens=record.get("new_tokens"),
        anticipated_tokens=record.get("anticipated_tokens"),
        done_tokens=done,
        todo_tokens=todo,
        progress=None if todo is None or done is None else done / todo if todo else 1.0,
        eta_s=eta,
        prefill_tps=pace.prefill_tps,
        decode_tps=pace.decode_tps,
        output_tokens=pace.output_tokens,
        queue_s=record.get("queue_s") if cached is not None else elapsed,
        restore_s=record.get("restore_s"),
        tier=record.get("tier"),
        ttft_s=ttft,
        predicted_ttft_s=record.get("predicted_ttft_s"),
        heartbeats=record.get("heartbeats"),
        beat_age_s=None if beat is None else max(0.0, now - beat),
        retried=record.get("retried"),
        watchdog=watchdog_of(record, now, eta, spread),
    )


def watchdog_of(record: Record, now: float, eta_s: float | None, spread: float | None = None) -> Watchdog:
    """Silence counts from the start, or from the newest heartbeat on a stream; after the first token nothing is waited for."""
    limit, source = least([(record.get("watchdog_s"), "session")])
    if record.get("ttft_s") is not None or record.get("end") is not None:
        return judge(limit, source)
    heard = max(float(record.get("started") or now), (record.get("last_beat") or 0.0) if record.get("stream") else 0.0)
    p95_s = None if eta_s is None or spread is None else eta_s * spread
    return judge(limit, source, max(0.0, now - heard), eta_s, p95_s)


def _stage(record: Record) -> str:
    if record.get("ttft_s") is not None:
        return "decode"
    if record.get("cached_tokens") is None and record.get("prefill_done") is None:
        return "queue"
    return "restore" if record.get("tier") == "disk" and record.get("prefill_done") is None else "prefill"


def _eta(
    todo: int | None, done: int | None, rate: float | None, predicted: float | None, elapsed: float
) -> float | None:
    """From the scheduler's progress; before there is any, from the forecast."""
    if todo is not None and done is not None and done and rate:
        return (todo - done) / rate
    return None if predicted is None or predicted < elapsed else predicted - elapsed


def event_of(event: ServerEvent, name: str) -> Event | None:
    """For the list of events; None for what is not told there. No text of a prompt."""
    data, kind = event.data, event.kind
    if event.id is None or kind not in _TOLD or (kind == "request" and data.get("end") is None):
        return None
    level: Literal["info", "warn", "error"] = "warn" if kind in _WARNED else "info"
    if kind == "request":
        level, text = _ended(data)
    elif kind == "worker_gone":
        level, text = "error", f"{data.get('message')} Started again in {data.get('restart_in_s')} s."
    elif kind == "state":
        level = "error" if data.get("state") == "crashed" else "info"
        more = data.get("message") or data.get("phase") or ""
        text = str(data.get("state")) + (f": {more}" if more and more != data.get("state") else "")
    elif kind == "session":
        change = str(data.get("change"))
        text = f"session {_CHANGES.get(change, change)}"
    elif kind == "moved":
        text = f"memory: {data.get('reason')}"
    elif kind == "pause":
        text = "admission is paused" if data.get("on") else "admission goes on"
    elif kind == "fork":
        text = f"prefix broke at token {(data.get('broke_at') or {}).get('token')} as no rule explains"
    else:
        text = str(data.get("message") or kind)
    session = data.get("session")
    request = data.get("id") if kind == "request" else data.get("request")
    return Event(event.id, float(data.get("time") or 0.0), kind, text, level, session, name, request)


def _ended(data: Record) -> tuple[Literal["info", "warn", "error"], str]:
    prompt, cached, ttft = data.get("prompt_tokens"), data.get("cached_tokens"), data.get("ttft_s")
    took = "" if ttft is None else f", first token after {ttft:.1f} s"
    if data.get("end") == "error":
        return "error", str(data.get("error") or "failed")
    if data.get("end") in ("cancelled", "client_gone"):
        return "warn", f"{str(data['end']).replace('_', ' ')} after {data.get('total_s') or 0:.1f} s"
    broke = data.get("broke_at")
    again = data.get("replayed_tokens")
    if broke and not broke.get("predicted") and again != 0:
        lost = "" if again is None else f": {again:,} tokens computed again"
        return "warn", f"prefix broke at token {broke.get('token'):,}{lost}{took}"
    share = "" if not prompt or cached is None else f", {cached / prompt:.1%} cached"
    return "info", ("" if prompt is None else f"{prompt:,} tokens{share}{took}")
