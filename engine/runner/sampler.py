"""Choosing tokens from logits. One row at a time: a row's token never depends on which rows share the step."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.protocol import Sampling
from engine.scheduler.step import Sampled, SampleSpec

Floats = npt.NDArray[np.float32]


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

    Tokens stand in order of falling probability, lower ids first among equals.
    """
    order = _descending(logits)
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    scaled = logits[order].astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled[0])
    kept = len(weights)
    cumulative = np.cumsum(weights)
    if sampling.top_p < 1.0:
        kept = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1])) + 1
    if sampling.min_p > 0.0:
        kept = min(kept, int(np.count_nonzero(weights >= sampling.min_p)))
    cumulative = cumulative[: max(1, min(kept, len(weights)))]
    place = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    return int(order[min(place, len(cumulative) - 1)])


def _descending(logits: Floats) -> npt.NDArray[np.int64]:
    """Ids of all tokens that are possible at all, by falling logit, then rising id.

    Sorting one integer key per token is several times faster than a stable argsort of floats.
    """
    bits = (logits + np.float32(0.0)).view(np.uint32)  # adding zero turns -0.0 into 0.0
    rising = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    keys = ((np.uint64(0xFFFFFFFF) - rising) << np.uint64(32)) | np.arange(len(logits), dtype=np.uint64)
    order = (np.sort(keys) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return order[: len(order) - int(np.isneginf(logits).sum())]


def logprobs(logits: Floats, token: int, n: int) -> tuple[float, list[tuple[int, float]]]:
    """(log-probability of `token`, the n most likely tokens with theirs, most likely first)."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max()
    normalised = shifted - np.log(np.exp(shifted).sum())
    best = _descending(logits)[:n]
    return float(normalised[token]), [(int(i), float(normalised[i])) for i in best]
