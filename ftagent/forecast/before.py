"""The forecast of a plan: the agent's first prompt, cold and with what sessions share, against the agent's patience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ftagent.errors import FtError
from ftagent.forecast.rates import BENCH, NONE, Rates, find
from ftagent.local_engine.client import EngineClient
from ftagent.paths import Paths

WARM_NEW_TOKENS = 512  # of a first prompt, what no other session in the project had: the question and the date
CLOSE = 0.8  # of the limit; above it a slow moment is enough to lose the request
NO_DATA, OK, TIGHT, TOO_SLOW = "no data", "OK", "close to the limit", "too slow"


@dataclass(frozen=True, slots=True)
class LaunchForecast:
    """Seconds; None: not known. `ttft_warm_s` counts with the shared beginning of the prompt at hand, `ttft_cold_p95_s` is what one of
    twenty takes without it, `samples` says how many prefills that rests on."""

    prompt_tokens: int | None
    ttft_cold_s: float | None
    ttft_warm_s: float | None
    watchdog_s: float | None
    verdict: str
    source: str = NONE  # measured | bench | none
    samples: int = 0
    ttft_cold_p95_s: float | None = None

    def json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def text(self) -> str:
        """For people, one line. Numbers of a benchmark are marked `~`: another load, another day."""
        mark = "~" if self.source == BENCH else ""
        parts = [] if self.prompt_tokens is None else [f"first prompt about {self.prompt_tokens:,} tokens"]
        if self.ttft_cold_s is None or self.ttft_warm_s is None:
            parts.append("no rates are measured yet for this model here")
        else:
            high = "" if self.ttft_cold_p95_s is None else f"p95 {mark}{_s(self.ttft_cold_p95_s)}, "
            rests = "of a benchmark" if self.source == BENCH else f"{high}{self.samples} samples"
            warm = f"with its shared beginning at hand {mark}{_s(self.ttft_warm_s)}"
            parts.append(f"cold {mark}{_s(self.ttft_cold_s)} ({rests}), {warm}")
        if self.watchdog_s is not None:
            parts.append(f"the agent waits {self.watchdog_s:.0f} s")
        return "; ".join(parts) + (f": {self.verdict}" if self.verdict != NO_DATA else "")


def before_launch(
    paths: Paths,
    model: str,
    prompt_tokens: int | None,
    watchdog_s: float | None,
    engine: EngineClient | None = None,
) -> LaunchForecast:
    """Reads only. `prompt_tokens`: what the agent sends first; `engine`: the running one, which knows best."""
    if not prompt_tokens:
        return LaunchForecast(prompt_tokens, None, None, watchdog_s, NO_DATA)
    warm_new = min(prompt_tokens, WARM_NEW_TOKENS)
    asked = None
    if engine is not None:
        asked = _ask(engine, prompt_tokens, 0), _ask(engine, warm_new, prompt_tokens - warm_new)
    if asked is not None and asked[0] is not None and asked[1] is not None:
        (cold, source, samples, high), (warm, _, _, _) = asked[0], asked[1]
    else:
        rates: Rates | None = find(model, paths.profiles, paths.state / "bench")
        if rates is None:
            return LaunchForecast(prompt_tokens, None, None, watchdog_s, NO_DATA)
        cold, warm = rates.seconds(prompt_tokens, 0), rates.seconds(warm_new, prompt_tokens - warm_new)
        source, samples = rates.source, rates.samples
        high = None if rates.p95 is None else cold * rates.p95
    return LaunchForecast(
        prompt_tokens,
        round(cold, 3),
        round(warm, 3),
        watchdog_s,
        verdict(cold, watchdog_s),
        source,
        samples,
        None if high is None else round(high, 3),
    )


def verdict(ttft_s: float, watchdog_s: float | None) -> str:
    """Whether the agent will wait that long."""
    if watchdog_s is None or ttft_s <= CLOSE * watchdog_s:
        return OK
    return TIGHT if ttft_s <= watchdog_s else TOO_SLOW


def _ask(engine: EngineClient, new: int, cached: int) -> tuple[float, str, int, float | None] | None:
    """(seconds, source, samples, p95) as the running engine sees it; None where it has no data."""
    try:
        answer = engine.get(f"/v1/engine/forecast?new={new}&cached={cached}", timeout_s=2.0)
    except FtError:
        return None
    seconds = answer.get("ttft_p50_s") if isinstance(answer, dict) else None
    if not isinstance(seconds, int | float):
        return None
    high = answer.get("ttft_p95_s")
    p95 = float(high) if isinstance(high, int | float) else None
    return float(seconds), str(answer.get("source")), int(answer.get("samples") or 0), p95


def _s(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
