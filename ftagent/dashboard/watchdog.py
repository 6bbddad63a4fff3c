"""How long an agent still waits, and what that calls for. The one place where silence is held against a limit."""

from __future__ import annotations

from collections.abc import Iterable

from ftagent.dashboard.model import Alert, InFlight, Level, Watchdog

AMBER, RED = 0.5, 0.8  # shares of a limit
RESCUE = (("k", "send a keepalive now"), ("X", "cancel it"), ("b", "pause what comes behind it"))


def level_of(used: float, limit: float) -> Level:
    """Of any limit: amber from half of it, red from 80 %."""
    share = used / limit if limit > 0 else 1.0
    return "red" if share > RED else "amber" if share >= AMBER else "ok"


def least(limits: Iterable[tuple[float | None, str]]) -> tuple[float | None, str | None]:
    """The limit that is reached first, of (seconds or None, where it comes from)."""
    known = [(seconds, source) for seconds, source in limits if seconds is not None and seconds > 0]
    return min(known) if known else (None, None)


def judge(
    limit_s: float | None,
    source: str | None,
    silence_s: float | None = None,
    p50_s: float | None = None,
    p95_s: float | None = None,
) -> Watchdog:
    """`silence_s` since the last byte of a kind that the agent counts, None when it waits for nothing; the forecasts are from now
    until the first token. A limit that is not known leaves everything about it unknown."""
    if limit_s is None:
        return Watchdog(silence_s=silence_s, forecast_p50_s=p50_s, forecast_p95_s=p95_s)
    if silence_s is None:
        return Watchdog(limit_s, source)
    return Watchdog(
        limit_s=limit_s,
        source=source,
        silence_s=silence_s,
        margin_s=limit_s - silence_s,
        forecast_p50_s=p50_s,
        forecast_p95_s=p95_s,
        level=level_of(silence_s, limit_s),
        will_miss=None if p50_s is None else silence_s + p50_s > limit_s,
    )


def alerts(in_flight: Iterable[InFlight]) -> list[Alert]:
    """A banner for each request whose agent has less than a fifth of its patience left, the most urgent one first."""
    urgent = [one for one in in_flight if one.watchdog.level == "red" and one.watchdog.margin_s is not None]
    urgent.sort(key=lambda one: one.watchdog.margin_s or 0.0)
    return [Alert("red", _words(one), one.request, one.session, RESCUE) for one in urgent]


def _words(one: InFlight) -> str:
    dog, who = one.watchdog, one.name or one.agent or one.request
    assert dog.limit_s is not None
    assert dog.margin_s is not None
    if dog.margin_s <= 0:
        return f"{who}: silent for {dog.silence_s:.0f} s, its limit of {dog.limit_s:.0f} s is over"
    first = "" if one.eta_s is None else f", first token in about {one.eta_s:.0f} s"
    return f"{who} gives up in {dog.margin_s:.0f} s (limit {dog.limit_s:.0f} s){first}"
