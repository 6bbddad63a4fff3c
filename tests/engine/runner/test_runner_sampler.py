"""The sampler against plain definitions written independently here."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.protocol import Sampling
from engine.runner.sampler import Sampler, adjust, draw, logprobs, uniform
from engine.scheduler.step import SampleSpec

VOCAB = 300


def random_logits(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(VOCAB) * 3).astype(np.float32)


def spec(history: list[int] | None = None, mask: bytes | None = None, index: int = 0, **fields) -> SampleSpec:
    return SampleSpec(Sampling(**fields), history or [], mask=mask, index=index)


def choose(logits: np.ndarray, asked: SampleSpec, seq: int = 0, key: int = 1) -> int:
    return Sampler(key).choose(seq, logits, asked).token


def test_greedy_takes_the_lowest_id_among_equals():
    logits = np.zeros(VOCAB, dtype=np.float32)
    logits[[7, 3, 200]] = 5.0
    assert choose(logits, spec()) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.6},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.1},
        {"temperature": 1.7, "top_k": 40, "top_p": 0.8, "min_p": 0.02},
    ],
)
def test_the_distribution_is_that_of_transformers(fields):
    """Quantiles of a fine grid hit each token in proportion to its probability."""
    logits = random_logits(5)
    sampling = Sampling(**{"temperature": 1.0, **fields})
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    scores = warpers(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(logits)[None])
    expected = scores.softmax(-1)[0].numpy()
    steps = 4000
    hits = Counter(draw(logits, sampling, (i + 0.5) / steps) for i in range(steps))
    found = np.array([hits[i] for i in range(VOCAB)]) / steps
    np.testing.assert_allclose(found, expected, atol=1.5 / steps)
    assert not found[expected == 0].any()


def test_penalties_bias_and_mask_follow_their_definitions():
    logits = random_logits(6)
    history = [4, 4, 4, 9, 250]
    asked = spec(
        history,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias={9: 2.0, 17: -100.0, 5000: 1.0},
    )
    processor = RepetitionPenaltyLogitsProcessor(1.3)
    expected = processor(torch.tensor([history]), torch.from_numpy(logits.copy())[None])[0].numpy().copy()
    for token, count in Counter(history).items():
        expected[token] -= 0.5 + 0.25 * count
    expected[9] += 2.0
    expected[17] -= 100.0
    before = logits.copy()
    np.testing.assert_allclose(adjust(logits, asked), expected, rtol=1e-6)
    assert (logits == before).all()


def test_a_mask_leaves_only_allowed_tokens():
    logits = random_logits(7)
    allowed = [2, 8, 33, 64, 65]
    mask = bytearray(-(-VOCAB // 8))
    for token in allowed:
        mask[token // 8] |= 1 << (token % 8)
    best = max(allowed, key=lambda t: logits[t])
    assert choose(logits, spec(mask=bytes(mask))) == best
    drawn = {choose(logits, spec(mask=bytes(mask), temperature=5.0, seed=1, index=i)) for i in range(200)}
    assert drawn == set(allowed)
    assert choose(logits, spec(mask=bytes(mask[:2]))) in (2, 8), "tokens beyond a short mask are not allowed"
    with pytest.raises(ValueError, match="no token"):
        choose(logits, spec(mask=bytes(len(mask))))


def test_a_draw_is_a_pure_function_of_seed_and_index():
    logits = random_logits(8)
    wanted = [choose(logits, spec(temperature=1.0, seed=42, index=i), seq=3, key=10) for i in range(50)]
    again = [choose(logits, spec(temperature=1.0, seed=42, index=i), seq=8, key=11) for i in reversed(range(50))]
    assert wanted == again[::-1]
    assert wanted != [choose(logits, spec(temperature=1.0, seed=43, index=i)) for i in range(50)]
    assert len(set(wanted)) > 5


def test_without_a_seed_requests_and_processes_differ():
    logits = random_logits(9)

    def run(seq: int, key: int) -> list[int]:
        return [choose(logits, spec(temperature=1.5, index=i), seq, key) for i in range(40)]

    assert run(1, 1) == run(1, 1)
    assert run(1, 1) != run(2, 1)
    assert run(1, 1) != run(1, 2)


def test_uniform_numbers_are_uniform_and_independent_along_the_index():
    numbers = np.array([uniform((5, 6), i) for i in range(4000)])
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * math.sqrt(1 / 12 / 4000)
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((counts - 200) ** 2 / 200).sum() < 50  # chi-square, 19 degrees of freedom, p < 1e-4
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.07


def test_logprobs_are_those_of_the_unchanged_logits():
    logits = random_logits(10)
    expected = torch.from_numpy(logits).double().log_softmax(-1)
    sampled = Sampler(1).choose(0, logits, spec(temperature=0.7, seed=3, logprobs=4, logit_bias={5: 50.0}))
    assert sampled.token == 5
    assert sampled.logprob == pytest.approx(float(expected[5]), abs=1e-6)
    values, ids = expected.topk(4)
    assert [i for i, _ in sampled.top] == ids.tolist()
    assert [p for _, p in sampled.top] == pytest.approx(values.tolist(), abs=1e-6)
    assert logprobs(logits, 5, 0)[1] == []
    assert Sampler(1).choose(0, logits, spec()).logprob is None


def test_a_forced_token_is_taken_whatever_the_logits_say():
    asked = SampleSpec(Sampling(temperature=1.0, logprobs=1), [], forced=11, mask=bytes(40))
    sampled = Sampler(1).choose(0, random_logits(11), asked)
    assert sampled.token == 11
    assert sampled.logprob is not None


def test_infinite_and_equal_logits_keep_a_total_order():
    logits = np.full(VOCAB, -np.inf, dtype=np.float32)
    logits[[9, 4]] = 0.0
    logits[4] = -0.0
    order = [draw(logits, Sampling(temperature=1.0), u) for u in (0.0, 0.25, 0.49, 0.51, 0.999)]
    assert order == [4, 4, 4, 9, 9]


@pytest.mark.parametrize("spread", [0.5, 3.0, 12.0])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"top_k": 20},
        {"top_p": 0.9},
        {"min_p": 0.02},
        {"top_p": 0.95, "min_p": 1e-4, "top_k": 700},
        {"top_p": 0.999},
    ],
    ids=str,
)
def test_selecting_from_a_large_vocabulary_is_sorting_it(fields, spread):
    generator = np.random.default_rng(3)
    logits = np.round(generator.standard_normal(5000) * spread, 1).astype(np.float32)  # rounded: many are equal
    logits[generator.integers(0, 5000, 500)] = -np.inf
    sampling = Sampling(temperature=0.8, **fields)
    order = np.lexsort((np.arange(5000), -logits))[: int(np.isfinite(logits).sum())]
    order = order[: sampling.top_k or len(order)]
    weights = np.exp((logits[order].astype(np.float64) - logits.max()) / 0.8)
    cumulative = np.cumsum(weights)
    kept = int(np.searchsorted(cumulative, sampling.top_p * cumulative[-1])) + 1 if sampling.top_p < 1 else len(order)
    kept = min(kept, int((weights >= sampling.min_p).sum()))
    for u in [0.0, *generator.random(300), 1 - 1e-12]:
        near = np.abs(cumulative[:kept] / cumulative[kept - 1] - u).min()
        expected = order[min(int(np.searchsorted(cumulative[:kept], u * cumulative[kept - 1], side="right")), kept - 1)]
        assert draw(logits, sampling, float(u)) == expected or near < 1e-6
