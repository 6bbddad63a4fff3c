"""What is known of a running engine between two frames, within bounds however long it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftagent.dashboard.diffs import Diff
from ftagent.dashboard.http import ServerEvent
from ftagent.dashboard.model import Check, Event, Experts, LogLine, Told, WhatIf
from ftagent.dashboard.rates import Rates
from ftagent.dashboard.records import event_of
from ftagent.dashboard.requests import Requests
from ftagent.launch.receipt import Prices
from ftagent.paths import Paths
from ftagent.session import records
from ftagent.settings.config import Settings

Json = Mapping[str, Any]
EVENTS = 200


@dataclass(slots=True)
class Answers:
    """The newest answer of each route, and when it came. Never cleared: the last known stays known."""

    kept: dict[str, Json] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)

    def put(self, route: str, answer: Json, now: float) -> None:
        self.kept[route] = answer
        self.at[route] = now

    def get(self, route: str) -> Json:
        return self.kept.get(route, {})

    def told(self, route: str) -> Told:
        return Told(route, self.at.get(route))


class Gathered:
    """The methods and attributes take in; `framing.frame_of` says what they amount to. One thread."""

    def __init__(self, paths: Paths, here: Path, settings: Settings | None) -> None:
        self.paths, self.here, self.settings = paths, here, settings
        self.prices = None if settings is None else Prices.of(settings)
        self.answers = Answers()
        self.requests, self.rates = Requests(self._name), Rates()
        self.alive_at: float | None = None  # when the engine was last heard of
        self.reachable = False
        self.url, self.pid, self.model = "", None, None  # type: str, int | None, str | None
        self.arguments: Sequence[str] | None = None
        self.kept: list[records.Session] = []
        self.what_ifs: tuple[WhatIf, ...] = ()
        self.forecasts: tuple[Json, ...] = ()
        self.resumes: dict[str, tuple[float | None, float | None]] = {}  # by session: warm and cold seconds
        self.forecasts_at: float | None = None
        self.logs: tuple[LogLine, ...] = ()
        self.checks: tuple[Check, ...] | None = None
        self.diffs: dict[str, Diff] = {}
        self.others: dict[str, list[str]] = {}  # by session: files of its launch that are others now
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.last_event = 0
        self.changed_sessions = self.changed_life = True
        self.ended = False  # a request or a session, since sessions were asked for
        self.readonly = False
        self.readiness: dict[str, Any] = {}  # the newest state, whatever brought it
        self.experts_made: tuple[Any, Experts] | None = None  # of which answers

    def new_engine(self, url: str, pid: int | None, model: str | None, arguments: Sequence[str] | None) -> None:
        """Another process answers: its events are numbered anew, and its requests are its own."""
        self.url, self.pid, self.model, self.arguments = url, pid, model, arguments
        self.answers = Answers()
        self.readiness, self.what_ifs = {}, ()
        self.forecasts, self.resumes = (), {}
        self.last_event = 0
        self.rates.new_engine()
        self.requests.lost()

    def before(self, model: str | None, alive_at: float | None) -> None:
        """What is told of an engine that was gone before anybody looked."""
        if self.alive_at is None:
            self.model, self.alive_at = model, alive_at

    def lost(self) -> None:
        """Nobody answers any more."""
        self.reachable = False
        self.requests.lost()

    def ready(self, state: Json, now: float) -> None:
        """What /ready says, or a part of it."""
        self.readiness |= {key: value for key, value in state.items() if key != "kind"}
        self.alive_at = now

    def event(self, event: ServerEvent, now: float) -> None:
        """One of the stream."""
        self.reachable, self.alive_at = True, now
        data = event.data
        if event.id is not None:
            if event.id <= self.last_event:
                return
            self.last_event = event.id
        if event.kind == "hello":
            self.ready(data, now)
        elif event.kind == "state":
            self._state(data, now)
        elif event.kind in ("worker_gone", "pause"):
            self.changed_life = True
        elif event.kind == "prefill":
            at = float(data.get("time") or now)
            self.requests.progress(str(data.get("request")), int(data.get("done") or 0), at)
        elif event.kind == "request":
            self.requests.record(data)
            self.changed_sessions = self.changed_life = True
            self.ended |= data.get("end") is not None
        elif event.kind == "session":
            self.changed_sessions = self.ended = True
        listed = event_of(event, self._name(data.get("session")))
        again = self.events and listed is not None and listed.kind == "state" and self.events[-1].text == listed.text
        if listed is not None and not again:
            self.events.append(listed)

    def running(self, told: Sequence[Json], now: float) -> None:
        """All records without an end."""
        self.requests.running(told, now)
        self.alive_at = now

    def turns(self, told: Sequence[Json]) -> None:
        """Records, oldest first."""
        for record in told:
            self.requests.record(record)

    def stats(self, answer: Json, now: float) -> None:
        """/v1/stats."""
        self.answers.put("/v1/stats", answer, now)
        self.alive_at = now
        worker = answer.get("engine") or {}
        self.requests.wrote(worker.get("requests") or (), now)
        self.rates.add(worker, now)

    @property
    def busy(self) -> bool:
        return self.requests.busy

    @property
    def cannot(self) -> Json:
        """What this engine does not do, and why."""
        found: Json = self.readiness.get("cannot") or {}
        return found

    def _state(self, data: Json, now: float) -> None:
        done, total = data.get("done") or 0, data.get("total") or 0
        told = {name: data.get(name) or None for name in ("code", "message", "hint", "warning", "phase", "kv_tokens")}
        progress = done / total if total else None
        self.ready({**told, "state": data.get("state"), "progress": progress, "restarts": data.get("restarts")}, now)
        self.changed_life = True

    def _name(self, session: Any) -> str:
        for one in self.answers.get("/v1/sessions").get("sessions") or ():
            if one.get("id") == session:
                return str(one.get("name") or one.get("harness") or "")
        return ""
