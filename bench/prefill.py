"""Prompt tokens per second, ours and llama.cpp's on the same weights: `python bench/prefill.py [--json] [--quick]`.

Rows `prefill<n>.<shape>.<format>`, an empty cache each time. Ours runs in the chunks the scheduler uses, llama.cpp in its own
default physical batch (`--ubatch`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import models
import sides
import versus
from sides import Side

from engine.bench.rows import Row, row, show

LENGTHS = (512, 4096)
LONG = 1024  # prompts above are measured in every other round


def rows_of(pair: models.Pair, args: argparse.Namespace) -> list[Row]:
    rounds = args.rounds or (2 if args.quick else 5)
    lengths = args.lengths or ([512] if args.quick else list(LENGTHS))
    python = versus.peer(args)
    prompts = {n: versus.tokens(n, pair.shape.vocab) for n in sorted(lengths)}
    rounds_of: Counter[int] = Counter()

    def measure(side: Side, whose: str) -> dict[str, float]:
        due = [n for n in prompts if n <= LONG or rounds_of[side.pid] % 2] or [min(prompts)]  # the first only warms up
        rounds_of[side.pid] += 1
        made = {f"{whose}{n}": n / side.prefill(prompts[n])[0] for n in due}
        if whose == "ours":
            made |= versus.shares(side.ask({"op": "profile", "tokens": prompts[min(prompts)]}))
        return made

    room = max(lengths) + 64
    opened = {"ours": lambda: sides.ours(pair.directory, args.threads, room, "--activations", args.activations)}
    measures = {"ours": lambda side: measure(side, "ours")}
    if python is not None:
        opened["theirs"] = lambda: sides.llama(python, pair.gguf, args.threads, room, args.ubatch)
        measures["theirs"] = lambda side: measure(side, "theirs")
    together = versus.fit_together(pair)
    samples = versus.alternate(opened, measures, rounds, together)
    facts = {"threads": args.threads, "ubatch": args.ubatch, "loaded": "together" if together else "in turn"}
    facts |= versus.note(python is not None)
    shares = {min(prompts): {"shares": versus.median_shares(samples)}}
    return [
        row(
            f"prefill{n}.{pair.name}.{pair.format}",
            "tokens/s",
            samples[f"ours{n}"],
            samples[f"theirs{n}"],
            **shares.get(n, {}),
            **facts,
        )
        for n in lengths
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    versus.add_flags(parser)
    add_flags(parser)
    args = parser.parse_args()
    show(versus.over_models(args, rows_of), args.json)
    return 0


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", help=f"prompt lengths; default: {LENGTHS}, quick: 512")
    parser.add_argument("--ubatch", type=int, default=512, help="physical batch of llama.cpp")


if __name__ == "__main__":
    sys.exit(main())
