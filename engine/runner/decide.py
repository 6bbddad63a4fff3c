"""Choosing the expert backend by decoding for real with each that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.device.clock import Clock
from engine.experts.executor import Executor
from engine.layers.decoder import Decoder
from engine.layers.moe import Moe

log = logging.getLogger(__name__)

WARM_STEPS, STEPS = 12, 12
LIMIT_S = 2.0  # for one candidate
CLEARLY = 1.02  # a later candidate must be this much faster, since earlier ones are simpler


@dataclass(frozen=True, slots=True)
class Decision:
    """The backend and every candidate's tokens per second in a short decode; none where an earlier start has found it."""

    backend: str
    rates: dict[str, float]

    @property
    def sentence(self) -> str:
        if not self.rates:
            return f"{self.backend}, as found when the engine was started"
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
    model: Decoder,
    candidates: list[str],
    make: Callable[[str], Executor],
    decode: Callable[[int], None],
    clock: Clock,
) -> tuple[Executor, Decision]:
    """Decode a little with each candidate, and leave the fastest installed. `decode(i)` computes the i-th next token;
    the 0th is a whole chunk, which warms slots."""
    rates: dict[str, float] = {}
    layer_s: dict[str, float] = {}
    for name in candidates:
        experts = make(name)
        install(model, experts)
        try:
            rates[name] = _rate(decode, clock)
            layer_s[name] = experts.watch.now_s
        finally:
            experts.close()
    best = candidates[0]
    for name in candidates[1:]:
        if rates[name] > rates[best] * CLEARLY:
            best = name
    decision = Decision(best, rates)
    log.info("expert backend: %s", decision.sentence)
    chosen = make(best)
    chosen.watch.expect(layer_s[best])
    install(model, chosen)
    return chosen, decision


def _rate(decode: Callable[[int], None], clock: Clock) -> float:
    decode(0)
    start, first = clock.now(), 1
    for done in range(1, WARM_STEPS + STEPS + 1):
        decode(done)
        spent = clock.now() - start
        if done == WARM_STEPS or (first == 1 and spent > LIMIT_S / 2):
            start, first = clock.now(), done + 1
        elif spent > LIMIT_S / 2:
            break
    return (done + 1 - first) / max(clock.now() - start, 1e-9)
