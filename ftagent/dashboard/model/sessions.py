"""Sessions, the requests they wait for, and the patience of their agents."""

from __future__ import annotations

from dataclasses import dataclass

from ftagent.dashboard.model.told import UNTOLD, Level, Told


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
class Receipt:
    """One launch of a session, as its receipt says. `exit` None: it runs, or nobody saw its end."""

    started_at: float | None = None
    seconds: float | None = None
    exit: int | None = None
    requests: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    ttft_p50_s: float | None = None
    ttft_max_s: float | None = None
    energy_j: float | None = None  # of the machine, meanwhile
    price: float | None = None  # of the same tokens at the reference price
    scripted: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """`status`: as `ft ls`. `told` is of the engine's facts; what only the record knows has no age."""

    id: str
    told: Told = UNTOLD
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
    diff_stat: str | None = None  # `git diff --stat`, last line, and how many files are new
    diff_files: tuple[str, ...] = ()  # its other lines
    changes: tuple[str, ...] | None = None  # what is another now than at its launch, in words
    receipts: tuple[Receipt, ...] = ()  # newest first
    detached: bool | None = None  # it runs in a tmux of its own, and can be attached to
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
