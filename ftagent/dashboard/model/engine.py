"""The engine's state, settings, phases and crashes, and the machine it runs on."""

from __future__ import annotations

from dataclasses import dataclass

from ftagent.dashboard.model.told import UNTOLD, Told


@dataclass(frozen=True, slots=True)
class Fill:
    """Bytes used of a memory."""

    name: str  # "RAM", "RTX 5090"
    used_bytes: int | None = None
    total_bytes: int | None = None

    @property
    def share(self) -> float | None:
        return None if self.used_bytes is None or not self.total_bytes else self.used_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class Flag:
    """An effective setting; `origin`: flag, environment, project, user, default, chosen, set by hand."""

    name: str
    value: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker that ended by itself. `restart_in_s` None: it was not started again."""

    at: float
    code: str
    message: str
    restart_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A state the engine was in, and for how long; `seconds` None: it still is."""

    state: str
    phase: str
    at: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """`state`: unreachable, stopped, starting, loading, warming, ready, stopping, crashed. After a stop the rest is the last known."""

    told: Told = UNTOLD
    state: str = "stopped"
    stopped_at: float | None = None  # when it was last seen alive, where it is not
    model: str | None = None
    port: int | None = None
    pid: int | None = None
    worker_pid: int | None = None
    version: str | None = None
    uptime_s: float | None = None
    phase: str | None = None
    progress: float | None = None
    eta_s: float | None = None
    stops_in_s: float | None = None  # without use
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    warning: str | None = None
    restarts: int | None = None
    restarts_left: int | None = None  # before it stays crashed
    scripted: bool | None = None  # replies come from a script
    paused: bool | None = None  # admission, by `act("pause")`
    window_tokens: int | None = None
    kv_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    device: str | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None  # since it was started
    memory: tuple[Fill, ...] = ()  # host first, then devices
    versions: tuple[Version, ...] = ()
    flags: tuple[Flag, ...] = ()
    crashes: tuple[Crash, ...] = ()  # newest last
    phases: tuple[Phase, ...] = ()  # newest last
    cannot: tuple[tuple[str, str], ...] = ()  # of an upstream: what it does not do, and why
