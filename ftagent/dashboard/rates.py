"""How fast the engine is over the last minutes, from one look to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from ftagent.dashboard.model import Series

POINTS = 600
NAMES = (("decode_tps", "tok/s"), ("prefill_tps", "tok/s"), ("hit_rate", "share"), ("fill_bytes_per_s", "B/s"))


class Rates:
    """`add` takes the worker's part of /v1/stats."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, float | None]]] = {n: deque(maxlen=POINTS) for n, _ in NAMES}
        self._counts: tuple[int, int, int] | None = None  # hits, misses, decoded tokens at the look before
        self.misses_per_token: float | None = None

    def new_engine(self) -> None:
        """Its counts begin anew."""
        self._counts = None

    def add(self, worker: Mapping[str, Any], now: float) -> None:
        rates, experts = worker.get("tokens_per_s") or {}, worker.get("experts") or {}
        values = {
            "decode_tps": _positive(rates.get("decode")),
            "prefill_tps": _positive(rates.get("prefill")),
            "fill_bytes_per_s": (experts.get("rates") or {}).get("fill_bytes_per_s"),
            "hit_rate": self._hit_rate(experts, (worker.get("tokens") or {}).get("decode")),
        }
        for name, value in values.items():
            self._points[name].append((now, value))

    @property
    def hit_rate(self) -> float | None:
        """The last one that is known."""
        return next((rate for _, rate in reversed(self._points["hit_rate"]) if rate is not None), None)

    def series(self) -> tuple[Series, ...]:
        return tuple(_series(name, unit, self._points[name]) for name, unit in NAMES if self._points[name])

    def _hit_rate(self, experts: Mapping[str, Any], tokens: int | None) -> float | None:
        """Of the experts asked for since the look before; None when none were, or there is no second place to miss from."""
        if experts.get("hits") is None or experts.get("misses") is None or not isinstance(experts.get("slots"), int):
            return None
        before, self._counts = self._counts, (experts["hits"], experts["misses"], tokens or 0)
        if before is None or not experts["slots"]:
            return None
        hits, misses, decoded = (now - then for now, then in zip(self._counts, before, strict=True))
        if decoded > 0:
            self.misses_per_token = misses / decoded
        return hits / (hits + misses) if hits + misses > 0 else None


def _positive(rate: Any) -> float | None:
    """Nothing was computed: no rate is known."""
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def _series(name: str, unit: str, points: deque[tuple[float, float | None]]) -> Series:
    values = sorted(value for _, value in points if value is not None)
    p95 = values[min(len(values) - 1, len(values) * 95 // 100)] if values else None
    return Series(name, unit, tuple(points), points[-1][1], p95)
