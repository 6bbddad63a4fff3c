"""`engine bench NAME`: runs one benchmark in a process of its own and keeps its rows with machine, version and settings."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.bench.rows import ROWS_FILE, Row
from engine.errors import NotFound, Unsupported

SCHEMA = "ft.bench/1"
SOURCE = Path(__file__).parents[2]  # of a checkout; an installed package has no bench/ beside it
MODULES = {
    "prefix": ("engine.bench.prefix", "tokens computed in sessions whose context is edited"),
    "bw": ("engine.experts.bandwidth", "bandwidth of experts into slots and in place, and the split it implies"),
}
SCRIPTS = {  # name -> (file in bench/, one line)
    "decode": ("decode", "tokens per second of one sequence, beside llama.cpp and the memory bound"),
    "prefill": ("prefill", "prompt tokens per second, beside llama.cpp"),
    "experts": ("kernels", "expert kernels of every format, beside a memory reader and the arithmetic peak"),
    "overlap": ("overlap", "prefill over a slow device, with and without streaming ahead"),
    "split": ("split", "how misses are divided between fetching and computing in place"),
    "disk": ("disk", "experts that do not fit into memory, beside llama.cpp with a mapped file"),
    "memory": ("memory", "how KV and experts share fast memory while sessions grow, and what moves between them cost"),
    "load": ("load", "how fast a model is read, and how soon it decodes at full speed"),
    "agent": ("agent/run", "published agents at scripted work, beside llama.cpp on the same tokens"),
    "accuracy": ("accuracy", "what each format and activation precision changes in the next token's distribution"),
}
MISSES = "experts_miss"  # what `experts` runs when it is to record or replay routing
STOPPED, STOP_S = 130, 5.0  # exit code after Ctrl-C, and how long a benchmark may take to end
MISS_FLAGS = ("--record", "--replay", "--misses")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark named first and return its exit code; `report` prints what was kept instead."""
    parser = argparse.ArgumentParser(
        prog="engine bench",
        description="Measure a part of the engine.",
        usage="engine bench NAME [--results DIR] [arguments of NAME]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:10} {text}" for name, text in listing().items()),
        allow_abbrev=False,
        add_help=not arguments or arguments[0].startswith("-"),
    )
    parser.add_argument("what", choices=[*listing(), "report"], metavar="NAME")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where runs are kept")
    args, rest = parser.parse_known_args(list(arguments))
    if args.what == "report":
        from engine.bench.report import main as report

        return report(rest, args.results)
    rows, code = run(args.what, rest)
    if args.results is not None and rows:
        keep(args.results, args.what, rows, rest)
    return code


def listing() -> dict[str, str]:
    """What can be measured: name -> one line."""
    return {name: text for name, (_, text) in {**MODULES, **SCRIPTS}.items()}


def run(name: str, arguments: Sequence[str]) -> tuple[list[Row], int]:
    """(rows, exit code) of a benchmark whose output goes where ours does. Raises Unsupported when it needs a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        with subprocess.Popen(
            [*command(name, arguments), *arguments], env={**os.environ, ROWS_FILE: str(path)}
        ) as child:
            code = _wait(child)
        rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    return rows, 128 - code if code < 0 else code


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code. After Ctrl-C, which the terminal sends to both, it has a moment to end; then that is said."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
        print("Stopped.", file=sys.stderr)
        return STOPPED


def run_child(name: str, source: str) -> None:
    """In the benchmark's own process: run the module or the script `source`, which sees itself as `ft bench NAME`."""
    code: object = STOPPED
    try:
        sys.argv = [f"ft bench {name}", *sys.argv[1:]]
        if source.endswith(".py"):
            sys.path.insert(0, str(Path(source).parent))
            main_module = importlib.util.spec_from_file_location(f"ft_bench_{name}", source)
            assert main_module is not None and main_module.loader is not None
            loaded = importlib.util.module_from_spec(main_module)
            sys.modules[main_module.name] = loaded
            main_module.loader.exec_module(loaded)
        else:
            loaded = importlib.import_module(source)
        code = loaded.main(sys.argv[1:]) if inspect.signature(loaded.main).parameters else loaded.main()
    except KeyboardInterrupt:
        code = STOPPED
    sys.exit(code)  # type: ignore[arg-type]


def command(name: str, arguments: Sequence[str] = ()) -> list[str]:
    """How a benchmark is started, without its arguments. Raises Unsupported, NotFound."""
    if name in MODULES:
        return _child(name, MODULES[name][0])
    if name not in SCRIPTS:
        raise NotFound(f"There is no benchmark {name!r}.", f"Known: {', '.join(listing())}.")
    misses = name == "experts" and any(argument.split("=")[0] in MISS_FLAGS for argument in arguments)
    script = SOURCE / "bench" / f"{MISSES if misses else SCRIPTS[name][0]}.py"
    if not script.exists():
        raise Unsupported(
            f"The benchmark {name!r} comes with the source code only.", "Run it in a clone of the project."
        )
    return _child(name, str(script))


def _child(name: str, source: str) -> list[str]:
    call = "import sys; from engine.bench.runs import run_child; run_child(sys.argv.pop(1), sys.argv.pop(1))"
    return [sys.executable, "-P", "-c", call, name, source]


def keep(folder: Path, name: str, rows: Sequence[Row], arguments: Sequence[str]) -> Path:
    """Write one run to `folder`, under its name and time; returns the file."""
    made = document(name, rows, {"arguments": list(arguments)})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{made['date'].replace(':', '').replace('-', '')}.json"
    path.write_text(json.dumps(made, indent=1) + "\n")
    return path


def document(name: str, rows: Sequence[Row], settings: dict[str, Any]) -> dict[str, Any]:
    """Rows with what a reader needs to judge them."""
    return {
        "schema": SCHEMA,
        "name": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "machine": machine(),
        "settings": settings,
        "rows": list(rows),
    }


def machine() -> dict[str, Any]:
    """CPU model, cores this process may use, best vector instructions, memory in bytes and system."""
    info, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    text = info.read_text() if info.exists() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    total = [int(line.split()[1]) << 10 for line in memory.read_text().splitlines() if line.startswith("MemTotal")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": "AVX-512" if "avx512f" in text else "AVX2",
        "memory_bytes": total[0] if total else 0,
        "system": platform.system(),
    }


def commit() -> str:
    """The commit of the checkout, with a plus sign when measured code was changed; else the installed version."""
    if not (SOURCE / ".git").exists():
        return f"ftagent {metadata.version('ftagent')}"

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=SOURCE, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "engine", "ftagent", "harnesses", "csrc")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
