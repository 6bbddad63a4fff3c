"""Measure this machine and the engine on it, and print what was measured"""

from __future__ import annotations

import argparse

from ftagent.context import Context

PASS_THROUGH = True
BENCHMARKS = {
    "prefix": "tokens computed in sessions whose context is edited",
    "decode": "tokens per second of one sequence, beside llama.cpp",
    "prefill": "prompt tokens per second, beside llama.cpp",
    "experts": "expert kernels; misses of cache policies on recorded routing",
    "bw": "bandwidths of this machine, and what they imply",
    "overlap": "prefill over a slow device",
    "split": "how misses are divided between fetching and computing in place",
    "disk": "experts that do not fit into memory",
    "memory": "how KV and experts share fast memory while sessions grow",
    "load": "how fast a model is read",
    "agent": "published agents at scripted work, beside llama.cpp on the same tokens",
    "accuracy": "what formats and precisions change in the output",
    "report": "the latest kept rows, beside what they are to reach",
}
FORWARDED_HELP = tuple(BENCHMARKS)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"ft bench {'|'.join(BENCHMARKS)} [--json] [--quick] [arguments]"
    parser.epilog = "\n".join(
        [
            *(f"  {name:10} {text}" for name, text in BENCHMARKS.items()),
            "",
            "ft bench NAME --help lists the arguments of a benchmark.",
            "",
            "examples:",
            "  ft bench decode --quick           under a minute",
            "  ft bench prefix --only append     one of the token-exact sessions",
            "  ft bench report --json            rows for programs",
            "",
        ]
    )
    parser.add_argument("what", choices=tuple(BENCHMARKS), metavar="NAME", help="the benchmark")


def run(args: argparse.Namespace, context: Context) -> int:
    from pathlib import Path

    import harnesses
    from ftagent.local_engine.command import run_engine_tool
    from ftagent.paths import ensure

    results = ensure(context.paths.state) / "bench"
    more = ["--declarations", str(Path(str(harnesses.__file__)).parent)] if args.what == "prefix" else []
    if args.what == "agent" and not any(word.split("=")[0] == "--models-dir" for word in args.rest):
        more = ["--models-dir", str(context.models_dir(context.settings()))]
    if args.what == "bw":
        more = ["--profiles-dir", str(context.paths.profiles)]
    return run_engine_tool(context.env, "bench", args.what, *args.rest, *more, "--results", str(results))
