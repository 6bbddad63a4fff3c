"""Run a benchmark and keep its rows: `python bench/keep.py decode [arguments]` writes bench/results/decode.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import report


def main() -> int:
    name, arguments = sys.argv[1], sys.argv[2:]
    script = Path(__file__).parent / f"{name}.py"
    run = subprocess.run(
        [sys.executable, str(script), "--json", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    path = report.keep(name, json.loads(run.stdout), settings={"arguments": arguments})
    print(f"kept {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
