"""What one frame of the dashboard shows. Plain data: no source, no screen.

None is unknown everywhere and is shown as `-`, never as 0. Times `at` are seconds since the epoch, other `_s` are durations.
A part that can be out of date carries `told`: where it comes from and when it was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

SCHEMA = "ft.dashboard/1"

Level = Literal["ok", "amber", "red"]  # of a limit: amber from 50 %, red from 80 %
Part = Literal["overview", "turns", "memory", "experts", "anchors", "engine", "logs", "doctor"]
PARTS: tuple[Part, ...] = ("overview", "turns", "memory", "experts", "anchors", "engine", "logs", "doctor")
Act = Literal["cancel", "apply", "pin", "stop", "beat", "pause", "go_on", "keep"]


@dataclass(frozen=True, slots=True)
class Told:
    """Where the values beside it come from, such as `/v1/stats` or `session record`. `at` None: never read."""

    source: str = ""
    at: float | None = None

    def age_s(self, now: float) -> float | None:
        return None if self.at is None else max(0.0, now - self.at)


# The engine


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

    told: Told = Told()
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
    memory: tuple[Fill, ...] = ()  # host first, then devices
    versions: tuple[Version, ...] = ()
    flags: tuple[Flag, ...] = ()
    crashes: tuple[Crash, ...] = ()  # newest last
    phases: tuple[Phase, ...] = ()  # newest last
    cannot: tuple[tuple[str, str], ...] = ()  # of an upstream: what it does not do, and why


# Sessions and what they wait for


@dataclass(frozen=True, slots=True)
class Watchdog:
    """An agent's patience with silence before the first byte. `silence_s` since the last byte that this agent counts; None:
    nothing is waited for. `level` red is the time for a rescue: less than 20 % of the limit are left."""

    limit_s: float | None = None
    source: str | None = None  # of the limit: "session", "request"
    silence_s: float | None = None
    margin_s: float | None = None
    forecast_p50_s: float | None = None  # until the first byte, from now
    forecast_p95_s: float | None = None
    level: Level | None = None
    will_miss: bool | None = None  # by the middle forecast, were no more heartbeats sent


@dataclass(frozen=True, slots=True)
class Cost:
    """What the same tokens would have cost elsewhere, at `price`."""

    amount: float
    currency: str = "$"
    price: str = ""  # in words, per million: prompt, cached, output


@dataclass(frozen=True, slots=True)
class Session:
    """`status`: as `ft ls`. `told` is of the engine's facts; what only the record knows has no age."""

    id: str
    told: Told = Told()
    name: str = ""
    agent: str | None = None
    agent_version: str | None = None
    status: str = "ended"
    since_s: float | None = None  # in this status, or since its last request
    project: str | None = None  # its name, never its path
    here: bool = False  # of the project that the dashboard was opened in
    branch: str | None = None
    model: str | None = None
    context_tokens: int | None = None
    window_tokens: int | None = None
    ttft_last_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_max_s: float | None = None
    watchdog: Watchdog = Watchdog()
    warm_tier: str | None = None  # gpu, ram (memory), disk, gone
    warm_tokens: int | None = None
    resume_s: float | None = None  # predicted until the first token, for one that is not running
    cold_s: float | None = None
    requests: int | None = None
    turns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    retries: int | None = None
    errors: int | None = None
    cost: Cost | None = None
    waits_for_person: bool | None = None
    diff_stat: str | None = None  # `git diff --stat`, last line
    harness_ids: tuple[tuple[str, str], ...] = ()  # (id, source)
    parent: str | None = None
    observed: bool | None = None  # nothing of it is declared: it is watched


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that runs. `stage`: queue, restore, prefill, decode."""

    request: str
    session: str | None = None
    name: str = ""  # of the session
    agent: str | None = None
    kind: str | None = None  # title, compaction …; None: a turn
    stage: str = "queue"
    started_at: float | None = None
    elapsed_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    replayed_tokens: int | None = None
    new_tokens: int | None = None
    anticipated_tokens: int | None = None
    done_tokens: int | None = None  # of those to compute: the replayed and the new ones
    todo_tokens: int | None = None  # in all
    progress: float | None = None
    eta_s: float | None = None  # until the first token, from the scheduler's progress
    prefill_tps: float | None = None
    decode_tps: float | None = None
    output_tokens: int | None = None
    queue_s: float | None = None
    restore_s: float | None = None
    tier: str | None = None
    ttft_s: float | None = None
    predicted_ttft_s: float | None = None  # as it was forecast at admission
    heartbeats: int | None = None
    beat_age_s: float | None = None  # since the last one
    retried: bool | None = None
    watchdog: Watchdog = Watchdog()


# Memory


@dataclass(frozen=True, slots=True)
class Tenant:
    """`key`: dense, kv, kv_free, state, experts, work, free, lent. `unit`: tokens, slots, states, bytes."""

    key: str
    name: str
    bytes: int | None = None
    used: int | None = None
    total: int | None = None
    most: int | None = None  # what it could grow to
    unit: str = "bytes"
    pinned: bool = False  # set by hand, it stays
    miss_rate: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change of memory and what it would give; nothing was changed. `label`: as shown, such as `KV +32k`."""

    label: str
    asked: Mapping[str, Any] = field(default_factory=dict)  # as act("apply") takes it
    possible: bool | None = None
    why: str | None = None
    kv_tokens: int | None = None
    moe_slots: int | None = None
    window_tokens: int | None = None
    decode_tps: float | None = None
    miss_rate: float | None = None
    seconds_to_apply: float | None = None
    now_decode_tps: float | None = None
    now_miss_rate: float | None = None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Memory that changed hands. `text`: who has how many slabs since."""

    at: float
    reason: str
    text: str
    before_tps: float | None = None
    after_tps: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    told: Told = Told()
    state: str | None = None  # before `ready` the sizes are the plan's
    auto: bool | None = None  # the engine decides
    preset: str | None = None
    bank: str | None = None  # where all experts lie: ram, disk, none
    arena_bytes: int | None = None
    slab_bytes: int | None = None
    tenants: tuple[Tenant, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    moves: tuple[Move, ...] = ()  # newest last
    least_kv_tokens: int | None = None  # ends of the slider
    most_kv_tokens: int | None = None
    foreign_bytes: int | None = None  # used by other programs
    available_bytes: int | None = None
    process_bytes: int | None = None
    peak_bytes: int | None = None
    planned_bytes: int | None = None


# History, forecast


@dataclass(frozen=True, slots=True)
class Series:
    """Newest last; a None value is a time that nothing is known of."""

    name: str  # decode_tps, prefill_tps, hit_rate, fill_bytes_per_s
    unit: str
    points: tuple[tuple[float, float | None], ...] = ()
    last: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class ForecastPoint:
    """Time to the first token of a prompt with `new` tokens behind what is cached."""

    new: int
    p50_s: float
    p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """`source`: measured, bench (numbers are marked `~`), none."""

    told: Told = Told()
    source: str = "none"
    samples: int | None = None
    p90_error: float | None = None  # of earlier forecasts
    checked: int | None = None
    curve: tuple[ForecastPoint, ...] = ()


# Anchors


@dataclass(frozen=True, slots=True)
class Anchor:
    """A saved state. `children` continue its prefix; `sessions` would resume from it, by name."""

    id: str
    position: int
    line: str = ""
    kind: str | None = None
    edge: str | None = None
    tier: str | None = None
    bytes: int | None = None
    wanted: bool | None = None  # an edit is expected there
    pinned: bool | None = None
    used_age_s: float | None = None
    sessions: tuple[str, ...] = ()
    children: tuple[Anchor, ...] = ()


@dataclass(frozen=True, slots=True)
class Anchors:
    """`roots` None: nothing of the kind here (an upstream, a model without states)."""

    told: Told = Told()
    roots: tuple[Anchor, ...] | None = None
    why_none: str | None = None
    count: int | None = None
    bytes: int | None = None
    cap_bytes: int | None = None
    evicted: int | None = None
    disk_bytes: int | None = None
    disk_cap_bytes: int | None = None


# Turns, events, experts, logs, doctor


@dataclass(frozen=True, slots=True)
class Turn:
    """A request record (ft.request/1) with the sentence that explains it. `ended` None: it runs."""

    request: str
    session: str | None = None
    name: str = ""
    api: str = ""
    kind: str | None = None
    started_at: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    replayed_tokens: int | None = None
    new_tokens: int | None = None
    anticipated_tokens: int | None = None
    wasted_tokens: int | None = None
    output_tokens: int | None = None
    render_s: float | None = None
    queue_s: float | None = None
    restore_s: float | None = None
    prefill_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    ttft_s: float | None = None
    predicted_ttft_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    total_s: float | None = None
    expert_hits: int | None = None
    expert_misses: int | None = None
    tier: str | None = None
    ended: str | None = None
    error: str | None = None
    retried: bool | None = None
    resent: bool | None = None
    scripted: bool = False
    side: bool | None = None
    heartbeats: int | None = None
    watchdog_s: float | None = None
    why: str = ""
    broke_at: int | None = None  # token at which the prefix broke
    edge: str | None = None
    rule: str | None = None
    predicted: bool | None = None  # the break was foreseen


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one broken prefix; the texts only when asked for, never kept."""

    request: str
    why: str
    token: int | None = None
    old: str | None = None
    new: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` as the engine names it. `text` holds no prompt."""

    id: int
    at: float
    kind: str
    text: str
    level: Literal["info", "warn", "error"] = "info"
    session: str | None = None
    name: str = ""
    request: str | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Share of the experts asked for that would miss with so many slots."""

    slots: int
    miss_rate: float


@dataclass(frozen=True, slots=True)
class Layer:
    """`heat`: per expert, 0..1 of the most used one of the model, lately; `resident`: per expert, whether it is in a slot."""

    layer: int
    hits: int | None = None
    misses: int | None = None
    heat: tuple[float, ...] = ()
    resident: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Experts:
    """Rates in bytes per second; the profile's were measured before the start, the others while it runs."""

    told: Told = Told()
    layers: tuple[Layer, ...] = ()
    why_none: str | None = None  # no heat map or curve, and why
    slots: int | None = None
    total: int | None = None
    hits: int | None = None
    misses: int | None = None
    hit_rate: float | None = None  # of late
    misses_per_token: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    curve_steps: int | None = None
    optimum_slots: int | None = None  # what the balancer would choose now
    fill_share: float | None = None  # of the misses, filled: q*
    filled: int | None = None
    in_place: int | None = None
    fill_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    profile_fill_bytes_per_s: float | None = None
    profile_host_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    text: str
    level: str | None = None  # info, warning, error
    at: str | None = None  # as written there


@dataclass(frozen=True, slots=True)
class Check:
    """`status`: OK, WARN, FAIL, SKIP; `fix`: one command."""

    id: str
    status: str
    text: str
    fix: str = ""


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
    engine: Engine = Engine()
    sessions: tuple[Session, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    memory: Memory = Memory()
    series: tuple[Series, ...] = ()
    forecast: Forecast = Forecast()
    anchors: Anchors = Anchors()
    events: tuple[Event, ...] = ()  # newest last
    turns: tuple[Turn, ...] = ()  # newest last
    experts: Experts = Experts()
    logs: tuple[LogLine, ...] = ()
    checks: tuple[Check, ...] | None = None  # None: not looked at yet
    alerts: tuple[Alert, ...] = ()
    totals: Totals = Totals()
    offers: tuple[Act, ...] = ()  # what `act` can do now


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action: one sentence for a person."""

    done: bool
    text: str


class Source(Protocol):
    """Where frames come from. One reader at a time."""

    def frames(self) -> AsyncIterator[Frame]:
        """A frame now and then one each 1/fps s, or as soon as something that is shown changes, until `close`."""

    def show(self, *parts: Part) -> None:
        """What is on the screen; only that is asked for at the frame rate. All sources begin with the overview."""

    def pace(self, fps: float) -> None:
        """At most so many frames a second from now on."""

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """cancel(request) · apply(moe_slots|kv_tokens|preset|auto) · pin(anchor, on) · stop(session) · beat(request) ·
        pause() · go_on() · keep(). Never raises: what failed is said."""

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """What `apply` with the same arguments would give."""

    async def explain(self, request: str) -> Explanation:
        """Why this request's prefix broke, with the texts around the break where they are known."""

    async def close(self) -> None:
        """End `frames` and let go of everything."""
