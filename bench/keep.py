"""Run a benchmark and keep its rows: `python bench/keep.py NAME [arguments]` writes bench/results/NAME.json.

NAME is a script beside this one, or a benchmark of the engine's own: `python bench/keep.py prefix --traces tests/prefix/traces`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import report

from engine.bench import runs

HERE = Path(__file__).parent
HARNESSES = HERE.parent / "harnesses"


def command(name: str) -> list[str]:
    """How a benchmark is started, without its arguments. Raises SystemExit for one that does not exist."""
    script = HERE / f"{name}.py"
    if script.exists():
        return [sys.executable, str(script)]
    if name not in runs.listing():
        sys.exit(f"keep: there is no benchmark {name!r}")
    more = ["--declarations", str(HARNESSES)] if name == "prefix" else []
    return [*runs.command(name), *more]


def shown(argument: str) -> str:
    """An argument without where it lies on this machine."""
    return Path(argument).name if Path(argument).is_absolute() else argument


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit("usage: python bench/keep.py NAME [arguments]")
    name, arguments = sys.argv[1], sys.argv[2:]
    run = subprocess.run([*command(name), "--json", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(run.stdout)
    scripted = any(row.get("scripted") for row in rows)
    path = report.keep(name, rows, scripted=scripted, settings={"arguments": [shown(a) for a in arguments]})
    print(f"kept {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
