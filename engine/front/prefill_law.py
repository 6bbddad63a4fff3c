"""What a prefill costs, fitted to the newest ones: fixed + spread + new * token + new * (depth + new / 2) * pair + depth * read seconds.

That is what every forward costs, what it costs besides as soon as its tokens go to all experts, each token's own work, its attention to
all before it, and reading that once. Decode steps are in the fit as prefills of one token: they tell the parts apart where all prompts are equally long.
Few prompts say how much of theirs is the work of their own tokens and how much is attention to those before: what the model multiplies for
either does (`pair_share`), as far as nothing that was measured says otherwise.
Prefills of a like size and depth count most, so that it is piecewise without pieces, and outliers count less the farther they are
off. The pace, how far off the newest ones were, follows a machine that others use too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AGE = 0.98  # weight of a sample beside the next newer one, in the fit
PACE_AGE = 0.8  # and in the pace
FAR = 0.02  # weight that a sample of quite another size keeps, so that there is always something to go by
OCTAVES = 1.0, 2.0  # how fast likeness falls with new tokens and with depth, in factors of two
STEPS = 0.3  # weight of decode steps, of which there are more than one knows what to do with
GUESS = 16  # tokens, of which one knows about how many decode steps they take, until one has seen few tokens
GUESSES = 0.1
FEW = 8.0  # tokens that begin to go to all experts
FEATURES = 5
TOKEN, PAIR = 2, 3  # their places among the features
COUNTED = 0.05  # weight of what the model multiplies beside what was measured
ROUNDS = 4
TYPICAL = 0.1  # relative errors beyond this are outliers


@dataclass(frozen=True, slots=True)
class Sample:
    """One prefill: `seconds` from its admission, disk aside, to its first token. `alone`: no other prefill ran beside it."""

    new: int
    depth: int
    seconds: float
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds of the parts, and the factors by which the newest prefills that are alike were off."""

    fixed: float
    spread: float
    token: float
    pair: float
    read: float
    p50: float = 1.0
    p95: float = 1.0

    def seconds(self, new: int, depth: int) -> float:
        parts = self.fixed, self.spread, self.token, self.pair, self.read
        return sum(part * feature for part, feature in zip(parts, _features(new, depth), strict=True))


def fit(
    samples: Sequence[Sample],
    steps: Sequence[Sample],
    new: int | None = None,
    depth: int | None = None,
    pair_share: float = 0.0,
    few_steps: float = 5.5,
) -> Law:
    """The law around a prompt of `new` tokens behind `depth`, or with neither for all prompts. Both sequences oldest first;
    `steps` are decode steps, of one new token each. `pair_share`: what attention to one token multiplies, as a share of all else that is
    multiplied for a token; 0: not known. `few_steps`: about as many decode steps take as long as a prefill of GUESS tokens."""
    guesses = [Sample(GUESS, step.depth, few_steps * step.seconds) for step in steps]
    parts = [(samples, 1.0), (steps, STEPS), (guesses, GUESSES)]
    rows = [
        (sample, share * AGE ** (len(group) - 1 - i) * _likeness(sample, new, depth))
        for group, share in parts
        for i, sample in enumerate(group)
    ]
    made, weights = Law(0.0, 0.0, 0.0, 0.0, 0.0), [weight for _, weight in rows]
    for _ in range(ROUNDS):
        made = Law(*_least_squares([sample for sample, _ in rows], weights, pair_share))
        off = [abs(made.seconds(s.new, s.depth) / s.seconds - 1) for s, _ in rows]
        weights = [w * min(1.0, TYPICAL / max(o, 1e-9)) for (_, w), o in zip(rows, off, strict=True)]
    paces = [
        (s.seconds / fitted, PACE_AGE ** (len(samples) - 1 - i) * _likeness(s, new, depth))
        for i, s in enumerate(samples)
        if (fitted := made.seconds(s.new, s.depth)) > 0
    ]
    p50 = quantile(paces, 0.5) or 1.0
    return Law(made.fixed, made.spread, made.token, made.pair, made.read, p50, max(p50, quantile(paces, 0.95) or 1.0))


def quantile(values: Sequence[tuple[float, float]], share: float) -> float | None:
    """Of (value, weight) pairs; None of none."""
    ordered, total, seen = sorted(values), sum(weight for _, weight in values), 0.0
    for value, weight in ordered:
        seen += weight
        if seen >= share * total:
            return value
    return None


def _likeness(sample: Sample, new: int | None, depth: int | None) -> float:
    if new is None or depth is None:
        return 1.0
    by_new = math.log2((new + 8) / (sample.new + 8)) / OCTAVES[0]
    by_depth = math.log2((depth + 256) / (sample.depth + 256)) / OCTAVES[1]
    return max(FAR, math.exp(-(by_new**2 + by_depth**2) / 2))


def _features(new: int, depth: int) -> tuple[float, ...]:
    return 1.0, 1 - math.exp(-(new - 1) / FEW), float(new), new * (depth + new / 2), float(depth)


def _least_squares(samples: Sequence[Sample], weights: Sequence[float], pair_share: float) -> tuple[float, ...]:
    """The factors that make the relative errors small, none negative: the most negative one is left out and the others
    are fitted again."""
    rows = [_features(s.new, s.depth) for s in samples]
    scale = [max(row[k] for row in rows) or 1.0 for k in range(FEATURES)]
    table = [
        ([value / size for value, size in zip(row, scale, strict=True)], s.seconds, w / s.seconds**2)
        for row, s, w in zip(rows, samples, weights, strict=True)
    ]
    if pair_share:
        table += [
            (_counted(s, scale, pair_share), 0.0, COUNTED * w / s.seconds**2)
            for s, w in zip(samples, weights, strict=True)
        ]
    kept = list(range(FEATURES))
    while kept:
        matrix = [[sum(w * r[i] * r[j] for r, _, w in table) for j in kept] for i in kept]
        right = [sum(w * r[i] * seconds for r, seconds, w in table) for i in kept]
        ridge = 1e-9 * sum(matrix[k][k] for k in range(len(kept)))
        for k in range(len(kept)):
            matrix[k][k] += ridge
        found = _solve(matrix, right)
        worst = min(range(len(kept)), key=found.__getitem__)
        if found[worst] >= 0:
            made = dict(zip(kept, found, strict=True))
            return tuple(made.get(k, 0.0) / scale[k] for k in range(FEATURES))
        del kept[worst]
    return (0.0,) * FEATURES


def _counted(sample: Sample, scale: Sequence[float], pair_share: float) -> list[float]:
    """The row that is zero where a pair takes as long, beside a token, as it multiplies."""
    row = [0.0] * FEATURES
    row[TOKEN], row[PAIR] = sample.new / scale[TOKEN], -sample.new / (pair_share * scale[PAIR])
    return row


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss with pivots, of a small positive definite system."""
    size = len(right)
    lines = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(size):
        pivot = max(range(k, size), key=lambda i: abs(lines[i][k]))
        lines[k], lines[pivot] = lines[pivot], lines[k]
        for i in range(k + 1, size):
            factor = lines[i][k] / lines[k][k]
            lines[i] = [a - factor * b for a, b in zip(lines[i], lines[k], strict=True)]
    found = [0.0] * size
    for k in reversed(range(size)):
        found[k] = (lines[k][size] - sum(lines[k][j] * found[j] for j in range(k + 1, size))) / lines[k][k]
    return found
