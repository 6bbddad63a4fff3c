"""One frame in all its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ftagent.dashboard.model.anchors import Anchors
from ftagent.dashboard.model.engine import Engine
from ftagent.dashboard.model.experts import Experts
from ftagent.dashboard.model.history import Forecast, Series
from ftagent.dashboard.model.memory import Memory
from ftagent.dashboard.model.sessions import Cost, InFlight, Session
from ftagent.dashboard.model.told import Level
from ftagent.dashboard.model.turns import Event, Turn

SCHEMA = "ft.dashboard/1"
Part = Literal["overview", "turns", "memory", "experts", "anchors", "engine", "logs", "doctor"]
PARTS: tuple[Part, ...] = ("overview", "turns", "memory", "experts", "anchors", "engine", "logs", "doctor")
Act = Literal["cancel", "apply", "pin", "unpin", "drop", "gc", "stop", "beat", "pause", "go_on", "keep"]


@dataclass(frozen=True, slots=True)
class LogLine:
    text: str
    level: str | None = None  # info, warning, error
    at: str | None = None  # as written there


@dataclass(frozen=True, slots=True)
class Check:
    """`status`: OK, WARN, FAIL, SKIP; `cause`: what follows from `text`; `fix`: one command, `by_hand` where only the person can
    give it."""

    id: str
    status: str
    text: str
    fix: str = ""
    cause: str = ""
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Alert:
    """A banner. `request` is what its keys act on."""

    level: Level
    text: str
    request: str | None = None
    session: str | None = None
    keys: tuple[tuple[str, str], ...] = ()  # (key, what it does): k, X, b


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all requests the engine remembers."""

    requests: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    anticipated_tokens: int | None = None
    wasted_tokens: int | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that is shown at `now`. Parts that no screen shows may be older: see their `told`."""

    now: float
    source: str = "live"  # live, mock NAME, replay FILE
    project: str | None = None  # its name
    readonly: bool = False
    engine: Engine = field(default_factory=Engine)
    sessions: tuple[Session, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    memory: Memory = field(default_factory=Memory)
    series: tuple[Series, ...] = ()
    forecast: Forecast = field(default_factory=Forecast)
    anchors: Anchors = field(default_factory=Anchors)
    events: tuple[Event, ...] = ()  # newest last
    turns: tuple[Turn, ...] = ()  # newest last
    experts: Experts = field(default_factory=Experts)
    logs: tuple[LogLine, ...] = ()
    checks: tuple[Check, ...] | None = None  # None: not looked at yet
    alerts: tuple[Alert, ...] = ()
    totals: Totals = field(default_factory=Totals)
    offers: tuple[Act, ...] = ()  # what `act` can do now
