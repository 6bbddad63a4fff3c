"""`make demo`: the whole path on this machine, in a few minutes.

Pulls the default model, starts the engine, asks one question that the model answers by itself, then lets the mini agent
work through a scripted five-step session in a scratch repository with real tools, and prints what each request cost.
With `--keep` the table is kept as bench/results/demo.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report

FT = [sys.executable, "-P", "-m", "ftagent"]
QUESTION = "What is the capital of France? Answer in one sentence."
TASK = "add() in calc.py returns the wrong result. Find the fault, mend it and prove it with test.sh."
SCRIPT: dict[str, Any] = {
    "side": "Fix add()",
    "turns": [
        {
            "blocks": [
                {"text": "I will look at the repository first."},
                {"tool": "bash", "args": {"command": "ls && git log --oneline"}},
            ]
        },
        {"blocks": [{"text": "Now the file itself."}, {"tool": "read", "args": {"path": "calc.py"}}]},
        {
            "blocks": [
                {"text": "add() subtracts. One character is wrong."},
                {"tool": "edit", "args": {"path": "calc.py", "old": "return a - b", "new": "return a + b"}},
            ]
        },
        {
            "blocks": [
                {"text": "Now the proof."},
                {"tool": "bash", "args": {"command": "sh test.sh && git diff --stat"}},
            ]
        },
        {"blocks": [{"text": "add() subtracted instead of adding. It adds now, and test.sh passes."}]},
    ],
}


def ft(*arguments: str, capture: bool = False, cwd: Path | None = None) -> str:
    """Run one ft command; its output goes to the person unless captured. Ends the demo when it fails."""
    done = subprocess.run([*FT, *arguments], stdout=subprocess.PIPE if capture else None, text=True, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"demo: `ft {' '.join(arguments)}` ended with code {done.returncode}")
    return done.stdout or ""


def heading(text: str) -> None:
    print(
        f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else f"\n{text}", flush=True
    )


def scratch_repository(root: Path) -> None:
    """A git repository with one fault in it."""
    (root / "calc.py").write_text("def add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n")
    (root / "test.sh").write_text(
        "set -e\npython3 -c 'import calc; assert calc.add(2, 3) == 5, calc.add(2, 3); assert calc.mul(2, 3) == 6'\necho all good\n"
    )
    git = ["git", "-C", str(root), "-c", "user.name=demo", "-c", "user.email=demo@localhost"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "A small calculator"], check=True)


FIELDS = {
    "prompt_tokens": "tokens",
    "cached_tokens": "tokens",
    "replayed_tokens": "tokens",
    "new_tokens": "tokens",
    "output_tokens": "tokens",
    "ttft_s": "s",
    "watchdog_s": "s",
}


def table(records: list[dict[str, Any]]) -> str:
    """One line a request, under a heading."""
    lines = [
        f"{'request':>8} {'prompt':>8} {'cached':>8} {'replayed':>9} {'new':>6} {'output':>7} {'TTFT':>9} {'limit':>8}"
    ]
    for number, r in enumerate(records, 1):
        limit = f"{r['watchdog_s']:.0f} s" if r["watchdog_s"] else "-"
        lines.append(
            f"{number:>8} {r['prompt_tokens']:>8} {r['cached_tokens']:>8} {r['replayed_tokens']:>9} {r['new_tokens']:>6}"
            f" {r['output_tokens']:>7} {r['ttft_s']:>7.2f} s {limit:>8}"
        )
    return "\n".join(lines)


def to_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records as benchmark rows named demo.request<n>.<field>."""
    return [
        {
            "name": f"demo.request{number}.{field}",
            "value": record[field],
            "unit": unit,
            "baseline": None,
            "ratio": None,
            "samples": 1,
        }
        for number, record in enumerate(records, 1)
        for field, unit in FIELDS.items()
    ]


def from_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that `to_rows` was given."""
    records: dict[str, dict[str, Any]] = {}
    for row in rows:
        _, request, field = row["name"].split(".")
        records.setdefault(request, {})[field] = row["value"]
    return list(records.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the table in bench/results/demo.json")
    options = parser.parse_args()
    began = time.monotonic()

    was_running = subprocess.run([*FT, "engine", "status"], capture_output=True).returncode == 0
    heading("1  The default model (SmolLM2-135M as a mixture of 8 experts)")
    ft("models", "pull", "smollm2-moe")
    heading("2  The engine")
    ft("engine", "start", "--model", "smollm2-moe")
    try:
        heading(f"3  A free answer: {QUESTION}")
        ft("run", "--model", "smollm2-moe", QUESTION)
        heading("4  An agent at work (mini, five scripted steps: the words are given, every token is computed)")
        with tempfile.TemporaryDirectory(prefix="ft-demo-") as folder:
            root = Path(folder) / "calc"
            root.mkdir()
            scratch_repository(root)
            script = Path(folder) / "script.json"
            script.write_text(json.dumps(SCRIPT))
            ft("launch", "mini", "--script", str(script), "--", TASK, cwd=root)
            if "return a + b" not in (root / "calc.py").read_text():
                sys.exit("demo: the agent ended without mending calc.py")
        heading("5  What each request of that session cost (scripted: true)")
        records = json.loads(ft("ctl", "requests", "--json", capture=True))["requests"]
        session = next(r["session"] for r in reversed(records) if r["scripted"])
        records = [r for r in records if r["session"] == session]
        print(table(records))
        if options.keep:
            report.keep("demo", to_rows(records), scripted=True)
    finally:
        if not was_running:
            ft("engine", "stop")
    print(f"\nDone in {time.monotonic() - began:.0f} s. Next: ft launch claude --dry-run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
