"""Misses of slot policies on recorded routing: `python bench/experts_miss.py [--replay FILE…] [--capacity 37 11] [--json] [--quick]`.

Rows `experts.miss.<policy>.<capacity %>`: the share of routed experts that decode steps do not find in slots, beside Belady's
optimum. `frequency` is what the engine does; `prefill` keeps what the prompt used most, `blind` the first experts of every layer,
`ahead<n>` knows the routing of the next n tokens exactly: what a better guess could give at most. Without --replay the kept
stream is read: SmolLM2 upcycled to 128 experts, top-8, with random routers, over texts and source code.

`--record FILE` makes such a stream: of an installed model with `--model DIR`, else one like the kept one (a quarter of an hour). The text is this
project's own documents and Python's library, or `--text FILE…`.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path

import numpy as np

from engine.bench.rows import Row, rounded, show
from engine.errors import WeightsError
from engine.experts.policy import DEFAULT
from engine.experts.record import Recorder, Stream, load_stream
from engine.experts.replay import replay

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "bench" / "streams" / "smollm2-128x8.npz"
COMPARED = (DEFAULT, "lru", "s3fifo", "prefill", "blind")
AHEAD = ("ahead1", "ahead2", "ahead4", "ahead8", "ahead16")
PROMPT_TOKENS, DECODE_TOKENS = 256, 512  # of each text


def rows_of(name: str, stream: Stream, capacities: list[float], quick: bool) -> list[Row]:
    """`name` goes into the rows of every stream but the kept one."""
    rows: list[Row] = []
    for capacity in capacities:
        slots = int(stream.layers * stream.experts * capacity / 100)
        optimum = replay(stream, slots, "belady").rate
        for policy in ("belady", *COMPARED, *(() if quick else AHEAD)):
            counted = replay(stream, slots, policy)
            row: Row = {
                "name": f"experts.miss.{policy}.{capacity:g}" + (f".{name}" if name else ""),
                "value": rounded(counted.rate),
                "unit": "of routed",
                "baseline": rounded(optimum),
                "ratio": round(counted.rate / optimum, 3) if optimum else None,
                "samples": counted.accesses,
                "routing": stream.label,
            }
            rows.append(row)
    return rows


def texts(given: list[Path]) -> list[str]:
    """What models are made to read: prose, Python and C++."""
    if given:
        return [path.read_text() for path in given]
    library = Path(sysconfig.get_paths()["stdlib"])
    prose = [(ROOT / "LICENSE").read_text(), (ROOT / "ARCHITECTURE.md").read_text() + (ROOT / "README.md").read_text()]
    python = [(library / name).read_text() for name in ("dataclasses.py", "argparse.py", "unittest/mock.py")]
    cpp = "".join(path.read_text() for path in sorted((ROOT / "csrc" / "cpu").glob("*.cpp")))
    return [*prose, *python, cpp]


def record_model(directory: Path, given: list[Path], threads: int) -> Stream:
    """Routing of a model the engine can load: each text is a prompt and then token after token, as if it were generated."""
    from tokenizers import Tokenizer

    from engine.memory.plan import Settings
    from engine.memory.planner import plan_model
    from engine.runner.load import load
    from engine.scheduler.step import Slice

    room = PROMPT_TOKENS + DECODE_TOKENS
    loaded = load(directory, plan_model(directory, Settings(kv_tokens=2 * room, max_running=1)), threads)
    geometry = loaded.manifest.geometry
    assert loaded.experts is not None, "the model has no experts"
    recorder = Recorder(geometry.moe_layers, geometry.experts, loaded.manifest.name)
    loaded.experts.record = recorder
    tokenizer = Tokenizer.from_file(str(loaded.manifest.path(loaded.manifest.tokenizer)))
    pages = loaded.pools.pages.alloc(-(-room // loaded.pools.page_tokens))
    state = -1 if loaded.pools.states is None else loaded.pools.states.alloc()
    for text in texts(given):
        ids = tokenizer.encode(text).ids[:room]
        if state >= 0:
            loaded.runner.zero_state(state)
        cuts = [0, *range(PROMPT_TOKENS, len(ids) + 1)]
        for start, end in pairwise(cuts):
            loaded.runner.step([Slice(0, ids[start:end], start, pages, state)], frozenset)
    return recorder.stream()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="replay the kept stream")
    parser.add_argument("--replay", type=Path, nargs="*", default=[], metavar="FILE")
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--model", type=Path, metavar="DIR", help="with --record: the model whose routing is wanted")
    parser.add_argument("--text", type=Path, nargs="+", default=[], metavar="FILE", help="with --record: what it reads")
    parser.add_argument("--capacity", type=float, nargs="+", default=[50, 37, 25, 11], metavar="PERCENT")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="37 and 11 per cent, no foresight")
    args = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    if args.record is not None:
        if args.model is not None:
            stream = record_model(args.model, args.text, args.threads)
        else:
            import upcycled

            stream = upcycled.record(texts(args.text), PROMPT_TOKENS, DECODE_TOKENS, args.threads)
        stream.save(args.record)
        print(f"{args.record}: {len(stream)} accesses, {len(stream.ids)} rows of {stream.top_k}", file=sys.stderr)
        return 0
    capacities = [37.0, 11.0] if args.quick else args.capacity
    rows: list[Row] = []
    for path in args.replay or [KEPT]:
        try:
            stream = load_stream(path)
        except WeightsError as error:
            sys.exit(str(error))
        rows += rows_of("" if path == KEPT else path.stem, stream, capacities, args.quick)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
