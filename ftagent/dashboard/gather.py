"""What is known of a running engine between two frames, within bounds however long it runs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ftagent.dashboard import people, views
from ftagent.dashboard.http import ServerEvent
from ftagent.dashboard.model import (
    Act,
    Alert,
    Check,
    Engine,
    Event,
    Experts,
    Flag,
    Frame,
    LogLine,
    Series,
    Session,
    Told,
    Totals,
    Turn,
    WhatIf,
)
from ftagent.dashboard.records import Pace, event_of, in_flight_of, turn_of
from ftagent.dashboard.watchdog import alerts
from ftagent.launch.receipt import Prices
from ftagent.paths import Paths
from ftagent.session import records
from ftagent.settings.config import Settings

Json = Mapping[str, Any]
TURNS, EVENTS, POINTS, LINES = 512, 200, 600, 512
AT_WORK = ("prefill", "thinking", "running")
NAMES = (("decode_tps", "tok/s"), ("prefill_tps", "tok/s"), ("hit_rate", "share"), ("fill_bytes_per_s", "B/s"))


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
    """`put`, `event` and the setters take in; `frame` is what they amount to. One thread."""

    def __init__(self, paths: Paths, here: Path, settings: Settings | None) -> None:
        self.answers = Answers()
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
        self.diffs: dict[str, str] = {}
        self.last_event = 0
        self.changed_sessions = self.changed_life = True
        self.readonly = False
        self._ready: dict[str, Any] = {}
        self._ready_at: float | None = None
        self._paths, self._here, self._settings = paths, here, settings
        self._prices = None if settings is None else Prices.of(settings)
        self._running: dict[str, Json] = {}
        self._paces: dict[str, Pace] = {}
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._newest: OrderedDict[str, Turn] = OrderedDict()  # finished turn of each session
        self._lines: OrderedDict[str, None] = OrderedDict()  # seen, newest last
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._series: dict[str, deque[tuple[float, float | None]]] = {n: deque(maxlen=POINTS) for n, _ in NAMES}
        self._counts: tuple[int, int, int] | None = None  # hits, misses, decoded tokens at the stats before
        self._per_token: float | None = None
        self._experts_made: tuple[Any, Experts] | None = None

    # In

    def new_engine(self, url: str, pid: int | None, model: str | None, arguments: Sequence[str] | None) -> None:
        """Another process answers: its events are numbered anew, and its requests are its own."""
        self.url, self.pid, self.model, self.arguments = url, pid, model, arguments
        self.answers = Answers()
        self._ready, self._counts, self.what_ifs = {}, None, ()
        self.forecasts, self.resumes = (), {}
        self.last_event = 0
        self._running.clear()
        self._paces.clear()

    def before(self, model: str | None, alive_at: float | None) -> None:
        """What is told of an engine that was gone before anybody looked."""
        if self.alive_at is None:
            self.model, self.alive_at = model, alive_at

    def lost(self) -> None:
        """Nobody answers any more."""
        self.reachable = False
        self._running.clear()
        self._paces.clear()

    def ready(self, state: Json, now: float) -> None:
        self._ready = {**self._ready, **{key: value for key, value in state.items() if key != "kind"}}
        self._ready_at = self.alive_at = now

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
            done, total = data.get("done") or 0, data.get("total") or 0
            told = {
                name: data.get(name) or None for name in ("code", "message", "hint", "warning", "phase", "kv_tokens")
            }
            progress = done / total if total else None
            self.ready(
                {**told, "state": data.get("state"), "progress": progress, "restarts": data.get("restarts")}, now
            )
            self.changed_life = True
        elif event.kind == "worker_gone":
            self.changed_life = True
        elif event.kind == "prefill":
            self._progress(str(data.get("request")), int(data.get("done") or 0), float(data.get("time") or now))
        elif event.kind == "request":
            self._record(data)
            self.changed_sessions = self.changed_life = True
        elif event.kind == "session":
            self.changed_sessions = True
        elif event.kind == "pause":
            self.changed_life = True
        listed = event_of(event, self._name(data.get("session")))
        if listed is not None and not (
            self._events and listed.kind == "state" and self._events[-1].text == listed.text
        ):
            self._events.append(listed)

    def running(self, told: Sequence[Json], now: float) -> None:
        """All records without an end."""
        self._running = {str(record["id"]): record for record in told}
        for gone in [id_ for id_ in self._paces if id_ not in self._running]:
            del self._paces[gone]
        for id_, record in self._running.items():
            if record.get("prefill_done"):
                self._progress(id_, int(record["prefill_done"]), now)
        self.alive_at = now

    def turns(self, told: Sequence[Json]) -> None:
        """Records, oldest first."""
        for record in told:
            self._record(record)

    def stats(self, answer: Json, now: float) -> None:
        """/v1/stats."""
        self.answers.put("/v1/stats", answer, now)
        self.alive_at = now
        worker = answer.get("engine") or {}
        for one in worker.get("requests") or ():
            record = self._running.get(str(one.get("rid")))
            if record is not None and one.get("decoding") and record.get("prompt_tokens"):
                self._pace(str(one["rid"])).wrote(now, int(one["tokens"]) - int(record["prompt_tokens"]))
        rates, experts = worker.get("tokens_per_s") or {}, worker.get("experts") or {}
        self._series["decode_tps"].append((now, _positive(rates.get("decode"))))
        self._series["prefill_tps"].append((now, _positive(rates.get("prefill"))))
        self._series["fill_bytes_per_s"].append((now, (experts.get("rates") or {}).get("fill_bytes_per_s")))
        self._series["hit_rate"].append((now, self._hit_rate(worker)))

    # Out

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def state(self) -> str:
        return str(self._ready.get("state") or "")

    @property
    def cannot(self) -> Json:
        """What this engine does not do, and why."""
        found: Json = self._ready.get("cannot") or {}
        return found

    def turn(self, request: str) -> Turn | None:
        return self._turns.get(request)

    def frame(self, now: float, offers: tuple[Act, ...] = ()) -> Frame:
        """Everything as it is known at `now`."""
        stats, memory = self.answers.get("/v1/stats"), self.answers.get("/v1/engine/memory")
        life, listed = self.answers.get("/v1/engine/life"), self.answers.get("/v1/sessions")
        facts = {str(one["id"]): one for one in listed.get("sessions") or ()}
        names = {id_: str(fact.get("name") or fact.get("harness") or "") for id_, fact in facts.items()}
        names |= {session.id: str(session.field("name") or "") for session in self.kept}
        agents = {id_: fact.get("harness") for id_, fact in facts.items()}
        agents |= {session.id: session.field("agent", "name") for session in self.kept}
        spread = _spread(self.forecasts)
        in_flight = tuple(
            in_flight_of(
                r, names.get(str(r.get("session")), ""), agents.get(str(r.get("session"))), self._pace(id_), now, spread
            )
            for id_, r in self._running.items()
        )
        sessions = people.sessions_of(
            self.kept, facts, in_flight, self._newest, self._paths, self._here, now,
            self.answers.told("/v1/sessions"), self._prices, self.diffs,
        )  # fmt: skip
        hit_rate = next((rate for _, rate in reversed(self._series["hit_rate"]) if rate is not None), None)
        cannot = self.cannot
        totals = life.get("totals") or {}
        told_stats = self.answers.told("/v1/stats")
        banners = [*alerts(in_flight), *self._alerts()]
        return Frame(
            now=now,
            project=self._here.name,
            readonly=self.readonly,
            engine=self._engine(stats, life, memory, now),
            sessions=tuple(self._named(s, names) for s in sessions),
            in_flight=in_flight,
            memory=views.memory_of(memory, stats, self.answers.told("/v1/engine/memory"), self.what_ifs),
            series=tuple(_series(name, unit, self._series[name]) for name, unit in NAMES if self._series[name]),
            forecast=views.forecast_of(self.forecasts, stats, Told("/v1/engine/forecast", self.forecasts_at)),
            anchors=views.anchors_of(stats, told_stats, names, cannot),
            events=tuple(self._events),
            turns=tuple(self._turns.values()),
            experts=self._experts(hit_rate),
            logs=self.logs,
            checks=self.checks,
            alerts=tuple(banners),
            totals=Totals(**totals, cost=people.cost_of(totals, self._prices)) if totals else Totals(),
            offers=offers if self.reachable and not self.readonly else (),
        )  # fmt: skip

    # Parts

    def _engine(self, stats: Json, life: Json, memory: Json, now: float) -> Engine:
        if not self._ready:
            state = "starting" if self.reachable else "stopped"
            return Engine(Told("last known", self.alive_at), state, self.alive_at, self.model)
        flags: tuple[Flag, ...] = views.flags_of(stats, self._settings, self.arguments, memory)
        told = Told("/v1/engine/events", self.alive_at)
        made = views.engine_of(self._ready, stats, life, memory, told, self.url, self.pid, flags)
        stats_at = self.answers.at.get("/v1/stats")
        if made.uptime_s is not None and stats_at is not None and self.reachable:
            made = replace(made, uptime_s=made.uptime_s + now - stats_at)
        if self.reachable:
            return made
        return replace(
            made, told=Told("last known", self.alive_at), state="stopped", stopped_at=self.alive_at, running=None,
            waiting=None, phase=None, progress=None, eta_s=None, stops_in_s=None,
        )  # fmt: skip

    def _experts(self, hit_rate: float | None) -> Experts:
        """Made once for each pair of answers: there are thousands."""
        route, stats = "/v1/engine/experts", "/v1/stats"
        picture = self.answers.get(route)
        key = (self.answers.at.get(route), self.answers.at.get(stats))
        if self._experts_made is None or self._experts_made[0] != key:
            told = self.answers.told(route if picture else stats)
            made = views.experts_of(self.answers.get(stats), picture, told, hit_rate, self._per_token)
            self._experts_made = (key, made)
        return self._experts_made[1]

    def _named(self, session: Session, names: Mapping[str, str]) -> Session:
        warm, cold = self.resumes.get(session.id, (None, None)) if session.status not in AT_WORK else (None, None)
        return replace(session, name=names.get(session.id) or session.name, resume_s=warm, cold_s=cold)

    def _alerts(self) -> list[Alert]:
        if not self.reachable:
            return []
        if self.state == "crashed":
            return [Alert("red", str(self._ready.get("message") or "The engine has crashed."))]
        return [Alert("amber", str(self._ready["warning"]))] if self._ready.get("warning") else []

    def _record(self, record: Json) -> None:
        id_, session = str(record["id"]), str(record.get("session") or "")
        if record.get("end") is None:
            self._running[id_] = record
        else:
            self._running.pop(id_, None)
            self._paces.pop(id_, None)
        line = str(record.get("line"))
        known = self._turns.get(id_)
        first = known.why.endswith("first of its line") if known is not None else line not in self._lines
        self._lines[line] = None
        turn = turn_of(record, self._name(session), first)
        self._turns[id_] = turn
        if turn.ended is not None and not turn.side and turn.kind is None:
            self._newest[session] = turn
            self._newest.move_to_end(session)
        for kept in (self._turns, self._newest, self._lines):
            while len(kept) > TURNS:
                kept.popitem(last=False)

    def _name(self, session: Any) -> str:
        for one in self.answers.get("/v1/sessions").get("sessions") or ():
            if one.get("id") == session:
                return str(one.get("name") or one.get("harness") or "")
        return ""

    def _pace(self, request: str) -> Pace:
        return self._paces.setdefault(request, Pace())

    def _progress(self, request: str, position: int, at: float) -> None:
        if request in self._running:
            self._running[request] = {**self._running[request], "prefill_done": position}
            self._pace(request).computed(at, position)

    def _hit_rate(self, worker: Json) -> float | None:
        """Of the experts asked for since the stats before; None when none were, or there is no second place to miss from."""
        experts, tokens = worker.get("experts") or {}, (worker.get("tokens") or {}).get("decode")
        if experts.get("hits") is None or experts.get("misses") is None or not isinstance(experts.get("slots"), int):
            return None
        before, self._counts = self._counts, (experts["hits"], experts["misses"], tokens or 0)
        if before is None or not experts["slots"]:
            return None
        hits, misses, decoded = (now - then for now, then in zip(self._counts, before, strict=True))
        if decoded > 0:
            self._per_token = misses / decoded
        return hits / (hits + misses) if hits + misses > 0 else None


def _spread(forecasts: Sequence[Json]) -> float | None:
    """How far the p95 of a forecast lies above its median, of the longest prompt that was asked for."""
    for answer in reversed(forecasts):
        if answer.get("ttft_p50_s") and answer.get("ttft_p95_s"):
            return float(answer["ttft_p95_s"] / answer["ttft_p50_s"])
    return None


def _positive(rate: Any) -> float | None:
    """Nothing was computed: no rate is known."""
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def _series(name: str, unit: str, points: deque[tuple[float, float | None]]) -> Series:
    values = sorted(value for _, value in points if value is not None)
    p95 = values[min(len(values) - 1, len(values) * 95 // 100)] if values else None
    return Series(name, unit, tuple(points), points[-1][1], p95)
