"""Finished requests, why a prefix broke, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
