"""Choosing the expert backend by decoding for real with each that is possible."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.experts.executor import Executor
from engine.layers.decoder import Decoder
from engine.layers.moe import Moe

log = logging.getLogger(__name__)

WARM_STEPS, STEPS = 12, 12
LIMIT_S = 2.0  # for one candidate
CLEARLY = 1.02  # a later candidate must be this much faster, because the order is by what will be better with use


@dataclass(frozen=True, slots=True)
class Decision:
    """The backend and every candidate's tokens per second in a short decode."""

    backend: str
    rates: dict[str, float]

    @property
    def sentence(self) -> str:
        others = [f"{name} at {rate:.1f}" for name, rate in self.rates.items() if name != self.backend]
        return f"{self.backend} at {self.rates[self.backend]:.1f} tokens/s; rejected: {', '.join(others) or 'none'}"

    def report(self) -> dict[str, Any]:
        """Plain data for statistics."""
        rounded = {name: round(rate, 2) for name, rate in self.rates.items()}
        return {"backend": self.backend, "tokens_per_s": rounded, "words": self.sentence}


def install(model: Decoder, experts: Executor) -> None:
    """Have every MoE layer of the model use `experts`."""
    for block in model.blocks:
        if isinstance(block.ffn, Moe):
            block.ffn.experts = experts


def decide(
    model: Decoder, candidates: list[str], make: Callable[[str], Executor], decode: Callable[[int], None]
) -> tuple[Executor, Decision]:
    """Decode a little with each candidate, and leave the fastest installed. `decode(i)` computes the i-th next token."""
    rates: dict[str, float] = {}
    for name in candidates:
        experts = make(name)
        install(model, experts)
        try:
            rates[name] = _rate(decode)
        finally:
            experts.close()
    best = candidates[0]
    for name in candidates[1:]:
        if rates[name] > rates[best] * CLEARLY:
            best = name
    decision = Decision(best, rates)
    log.info("expert backend: %s", decision.sentence)
    chosen = make(best)
    install(model, chosen)
    return chosen, decision


def _rate(decode: Callable[[int], None]) -> float:
    start = time.perf_counter()
    done = 0
    for done in range(1, WARM_STEPS + 1):
        decode(done)
        if time.perf_counter() - start > LIMIT_S / 2:
            break
    start, first = time.perf_counter(), done
    while done < first + STEPS:
        done += 1
        decode(done)
        if time.perf_counter() - start > LIMIT_S / 2:
            break
    return (done - first) / (time.perf_counter() - start)
