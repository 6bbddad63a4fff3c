"""Tokens per second of one sequence, ours and llama.cpp's on the same weights: `python bench/decode.py [--json] [--quick]`.

Rows `decode.<shape>.<format>` compare tokens per second; rows `….bound` compare ours with what the memory allows: the weights
one token reads, as stored in the file, at the speed with which the same threads read memory in the same rounds.
"""

from __future__ import annotations

import argparse
import sys

import models
import sides
import versus
from sides import Side

from engine.bench.rows import Row, row, show

CONTEXT = 128  # short, as in llama.cpp's own benchmark of generation
PROFILED = 4  # steps of a round in which operations are timed


def rows_of(pair: models.Pair, args: argparse.Namespace) -> list[Row]:
    rounds, steps = args.rounds or (3 if args.quick else 9), 8 if args.quick else 16
    python = versus.peer(args)
    prompt = versus.tokens(CONTEXT, pair.shape.vocab)
    started: set[int] = set()

    def decode(side: Side, name: str) -> dict[str, float]:
        if side.pid not in started:
            started.add(side.pid)
            side.prefill(prompt)
        seconds, _ = side.decode(steps)
        return {name: steps / seconds}

    def ours(side: Side) -> dict[str, float]:
        speed = decode(side, "ours")
        speed["bound"] = side.ask({"op": "dram"})["gbs"] * 1e9 / pair.token_bytes
        return speed | versus.shares(side.ask({"op": "profile", "steps": PROFILED}))

    room = CONTEXT + (steps + PROFILED) * (rounds + 2)
    flags = ("--dram", "--activations", args.activations)
    opened = {"ours": lambda: sides.ours(pair.directory, args.threads, room, *flags)}
    measures = {"ours": ours}
    if python is not None:
        opened["theirs"] = lambda: sides.llama(python, pair.gguf, args.threads, room)
        measures["theirs"] = lambda side: decode(side, "theirs")
    together = versus.fit_together(pair)
    samples = versus.alternate(opened, measures, rounds, together)
    name = f"decode.{pair.name}.{pair.format}"
    facts = {"threads": args.threads, "context": CONTEXT, "loaded": "together" if together else "in turn"}
    facts |= versus.note(python is not None)
    return [
        row(name, "tokens/s", samples["ours"], samples["theirs"], **facts),
        row(
            f"{name}.bound",
            "tokens/s",
            samples["ours"],
            samples["bound"],
            bytes_per_token=pair.token_bytes,
            shares=versus.median_shares(samples),
            **facts,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    versus.add_flags(parser)
    args = parser.parse_args()
    show(versus.over_models(args, rows_of), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
