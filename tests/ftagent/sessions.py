"""An agent that keeps conversations as pi does, what ft lists of them, and records written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# What pi does of a conversation: a file with its id in the folder of sessions, or the one that --session names.
PI = """
while [ $# -gt 0 ]; do case "$1" in --session-dir) dir=$2;; --session|--fork) given="$1 $2";; esac; shift; done
mkdir -p "$dir"
[ -n "$given" ] || printf '{"type":"session","id":"%s","timestamp":"%s","cwd":"%s"}\\n' "p-$$" \\
  "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)" "$PWD" > "$dir/x_p-$$.jsonl"
echo "$given"; pwd
"""


def listed(sandbox: Any, *flags: str, **options: Any) -> list[dict[str, Any]]:
    done = sandbox.run("ls", "--json", *flags, **options)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["sessions"]
    return found


def record(sandbox: Any, number: int, **fields: Any) -> Path:
    digits = "".join("abcdefghij"[int(digit)] for digit in f"{number:010}")
    folder = sandbox.ft_home / "state" / "sessions" / f"s-{digits}"
    folder.mkdir(parents=True)
    written = {
        "schema": "ft.session/1",
        "id": folder.name,
        "name": f"n{number}",
        "created": "2026-01-01T00:00:00Z",
        "project": {"root": str(sandbox.project), "cwd": str(sandbox.project)},
        "agent": {"name": "pi"},
        "harness": [],
        "runs": [{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z", "exit": 0}],
    }
    (folder / "session.json").write_text(json.dumps({**written, **fields}))
    return folder
