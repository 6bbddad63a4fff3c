"""What played traces are worth: rows beside the best static splits and the clairvoyant schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from engine.bench.memory.clairvoyant import Clairvoyant, blocks
from engine.bench.memory.play import Played
from engine.bench.memory.trace import PHASES, Shape, Turn
from engine.bench.rows import Row, rounded

SWEEP = 24  # static splits that are compared for each phase


def phase_rows(tier: str, played: Played, turns: Sequence[Turn], best: Clairvoyant, shape: Shape) -> Iterator[Row]:
    """Decode rates of the growing session beside the best static split of each phase, and of the whole session.

    A split can serve a phase when its KV holds the longest context in it.
    """
    phases = list(pairwise(PHASES))
    ratios = []
    for i, phase in enumerate([*phases, (PHASES[0], PHASES[-1])]):
        ours = [seconds for at, seconds in played.decoded if phase[0] <= at < phase[1]]
        if not ours:
            continue
        slabs, rate = best_static(turns, phase, best, shape)
        whole = i == len(phases)
        row = _row(
            f"memory.{tier}.session" if whole else f"memory.{tier}.phase.{phase[1] // 1024}k",
            len(ours) / sum(ours),
            "tokens/s",
            rate,
            samples=len(ours),
            static_kv_slabs=slabs,
            **(series(played, shape) if whole else {}),
        )
        if not whole:
            ratios.append(row["ratio"])
        yield row
    yield _row(f"memory.{tier}.phase", min(ratios), "of static", 1.0, samples=len(ratios))


def series(played: Played, shape: Shape) -> dict[str, object]:
    """How the slabs were shared out while the session grew, and how fast it decoded: a line of numbers for each turn."""
    made, rest = [], iter(sorted(played.decoded))
    step = next(rest, None)
    for tokens, kv, experts in played.shares:
        seconds = []
        while step is not None and step[0] < tokens:
            seconds.append(step[1])
            step = next(rest, None)
        made.append([tokens, kv, experts, rounded(len(seconds) / sum(seconds)) if seconds else None])
    columns = ["tokens", "kv_slabs", "experts_slabs", "tokens_per_s"]
    sizes = {"slabs": shape.slabs, "slab_tokens": shape.tokens_per_slab, "slots_per_slab": shape.slots_per_slab}
    return {**sizes, "series_columns": columns, "series": made}


def best_static(turns: Sequence[Turn], phase: tuple[int, int], best: Clairvoyant, shape: Shape) -> tuple[int, float]:
    """(slabs of KV, tokens per second) of the static split that decodes fastest in `phase`."""
    inside = [(at, end - start) for at, start, end in blocks(turns) if phase[0] <= at < phase[1]]
    steps = sum(n for _, n in inside)
    least = best.slabs(max(at + n for at, n in inside)) + 1  # a page beside them is nobody's
    most = shape.slabs - -(-shape.top_k // shape.slots_per_slab)
    found = []
    for slabs in range(least, most, max(1, (most - least) // SWEEP)):
        seconds = sum(s for at, s in best.static(turns, slabs) if phase[0] <= at < phase[1])
        found.append((slabs, steps / seconds))
    return max(found, key=lambda pair: pair[1])


def regret_row(tier: str, played: Played, turns: Sequence[Turn], best: Clairvoyant) -> Row:
    """Seconds of the changing trace beside those of whoever knows all of it, moves included."""
    least = best.best(turns)
    return _row(
        f"memory.{tier}.regret",
        played.seconds,
        "s",
        least.seconds,
        samples=len(turns),
        decode_s=rounded(played.decode_s),
        replay_s=rounded(played.replay_s),
        move_s=rounded(played.move_s),
        moves=len(played.moves),
        clairvoyant_replay_s=rounded(least.replay_s),
    )


def _row(name: str, value: float, unit: str, baseline: float, samples: int = 1, **more: object) -> Row:
    ratio = round(value / baseline, 4) if baseline else None
    made: Row = {"name": name, "value": rounded(value), "unit": unit, "baseline": rounded(baseline), "ratio": ratio}
    return made | {"samples": samples} | more
