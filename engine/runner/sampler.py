"""Choosing tokens from logits. One row at a time: a row's token never depends on which rows share the step."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.protocol import Sampling
from engine.scheduler.step import Sampled, SampleSpec

Floats = npt.NDArray[np.float32]
_FIRST = 256  # tokens that are ordered at first; they nearly always hold the answer


class Sampler:
    """Deterministic given (seed, index): a request without a seed gets one that is fixed for its life.

    `key` separates processes, so that unseeded requests differ from run to run.
    """

    def __init__(self, key: int | None = None) -> None:
        self._key = secrets.randbits(63) if key is None else key

    def choose(self, seq: int, logits: Floats, spec: SampleSpec) -> Sampled:
        """The next token of sequence `seq` (its id is its request's) from logits [vocab]; leaves `logits` as they are.

        A forced token is taken whatever the logits say. Log-probabilities are the model's own, before any change made
        here. Raises ValueError when the grammar allows no token at all.
        """
        sampling = spec.sampling
        if spec.forced is not None:
            token = spec.forced
        else:
            adjusted = adjust(logits, spec)
            if sampling.temperature <= 0:
                token = int(adjusted.argmax())  # the lowest id among equals
            else:
                key = (self._key, seq) if sampling.seed is None else (0, sampling.seed)
                token = draw(adjusted, sampling, uniform(key, spec.index))
        if sampling.logprobs < 0:
            return Sampled(seq, token)
        logprob, top = logprobs(logits, token, sampling.logprobs)
        return Sampled(seq, token, logprob, top)


def adjust(logits: Floats, spec: SampleSpec) -> Floats:
    """Logits after penalties (over `spec.history`), bias and grammar mask; `logits` itself when there is none of these."""
    sampling = spec.sampling
    penalised = sampling.repetition_penalty != 1.0 or sampling.presence_penalty or sampling.frequency_penalty
    if not (penalised or sampling.logit_bias or spec.mask is not None):
        return logits
    adjusted = logits.copy()
    if penalised and spec.history:
        _penalise(adjusted, np.asarray(spec.history), sampling)
    for token, bias in sampling.logit_bias.items():
        if 0 <= token < len(adjusted):
            adjusted[token] += np.float32(bias)
    if spec.mask is not None:
        allowed = np.unpackbits(np.frombuffer(spec.mask, dtype=np.uint8), bitorder="little")[: len(adjusted)]
        adjusted[: len(allowed)][allowed == 0] = -np.inf
        adjusted[len(allowed) :] = -np.inf
        if not allowed.any():
            raise ValueError("the grammar allows no token")
    return adjusted


def _penalise(adjusted: Floats, history: npt.NDArray[Any], sampling: Sampling) -> None:
    """In place: repetition divides positive and multiplies negative logits; presence and frequency subtract."""
    seen, counts = np.unique(history, return_counts=True)
    values = adjusted[seen]
    factor = np.float32(sampling.repetition_penalty)
    values = np.where(values > 0, values / factor, values * factor)
    values -= np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * counts
    adjusted[seen] = values


def uniform(key: tuple[int, int], index: int) -> float:
    """A number in [0, 1) that is a pure function of its arguments (Philox, a counter-based generator)."""
    words = np.array([word & (2**64 - 1) for word in key], dtype=np.uint64)
    generator = np.random.Philox(key=words, counter=[index, 0, 0, 0])
    return float(np.random.Generator(generator).random())


def draw(logits: Floats, sampling: Sampling, u: float) -> int:
    """The token at quantile `u` of the distribution left by temperature, top-k, top-p and min-p, in this order.

    Tokens stand in order of falling probability, lower ids first among equals. Only as many are ordered as the answer needs:
    sorting a whole vocabulary would take longer than a step of the model.
    """
    possible = int(np.count_nonzero(logits > -np.inf))
    count = min(sampling.top_k, possible) if sampling.top_k > 0 else possible
    ordered = count if sampling.top_k > 0 else min(count, _FIRST)
    mass = 0.0 if ordered == count else _mass(logits, sampling.temperature)
    while True:
        order = best(logits, ordered)
        found = _place(_weights(logits[order], logits[order[0]], sampling), count, mass, sampling, u)
        if found is not None:
            return int(order[found])
        ordered = min(count, 16 * ordered)


def _weights(logits: Floats, largest: np.float32, sampling: Sampling) -> npt.NDArray[np.float64]:
    """Probabilities relative to that of the most likely token."""
    scaled: npt.NDArray[np.float64] = (logits.astype(np.float64) - np.float64(largest)) / sampling.temperature
    return np.exp(scaled)


def _mass(logits: Floats, temperature: float) -> float:
    """The sum of `_weights` over all tokens; exponentials in fp32 take a tenth of the time."""
    return float(np.exp((logits - logits.max()) * np.float32(1 / temperature)).sum(dtype=np.float64))


def _place(weights: npt.NDArray[np.float64], count: int, mass: float, sampling: Sampling, u: float) -> int | None:
    """Which of the most likely tokens quantile `u` falls on; None when that takes more of them.

    `weights` are the largest of `count` in falling order, `mass` the sum of all of them, needed while some are missing.
    """
    cumulative, known = np.cumsum(weights), len(weights)
    if known == count:
        mass = float(cumulative[-1])
    kept = count
    if sampling.top_p < 1.0:
        kept = min(kept, int(np.searchsorted(cumulative, sampling.top_p * mass)) + 1)
    if sampling.min_p > 0.0:
        likely = int(np.count_nonzero(weights >= sampling.min_p))
        kept = min(kept, likely if likely < known else count)
    kept = max(1, kept)
    if kept <= known:
        return min(int(np.searchsorted(cumulative, u * cumulative[kept - 1], side="right")), kept - 1)
    place = int(np.searchsorted(cumulative, u * mass, side="right"))
    everything = sampling.top_p >= 1.0 and sampling.min_p <= 0.0
    return place if everything and place < known else None


def best(logits: Floats, n: int) -> npt.NDArray[np.int64]:
    """Ids of the `n` most likely tokens by falling logit, then rising id; fewer when fewer are possible at all."""
    if n <= 0:
        return np.empty(0, dtype=np.int64)
    least = -np.inf if n >= len(logits) else np.partition(logits, len(logits) - n)[len(logits) - n]
    ids = np.flatnonzero(logits >= least if least > -np.inf else logits > -np.inf)
    return ids[np.argsort(-logits[ids], kind="stable")[:n]]


def logprobs(logits: Floats, token: int, n: int) -> tuple[float, list[tuple[int, float]]]:
    """(log-probability of `token`, the n most likely tokens with theirs, most likely first)."""
    norm = float(logits.max()) + math.log(_mass(logits, 1.0))
    top = [(int(i), float(logits[i]) - norm) for i in best(logits, n)]
    return float(logits[token]) - norm, top
