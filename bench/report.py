"""Kept benchmark results: rows plus what a reader needs to judge them (machine, commit, settings)."""

from __future__ import annotations

import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import parts

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """CPU model, cores, memory in bytes and kernel of this machine."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    memory = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    isa = "AVX-512" if "avx512f" in Path("/proc/cpuinfo").read_text() else "AVX2"
    return {"cpu": cpu, "cores": len(_cores()), "isa": isa, "memory_bytes": memory, "system": platform.system()}


def _cores() -> set[int]:
    import os

    return os.sched_getaffinity(0)


def commit() -> str:
    """The commit measured, with a plus sign when the tree had changes."""
    root = Path(__file__).parent.parent
    head = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "--", "engine", "ftagent", "harnesses", "csrc"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return head + ("+" if dirty else "")


def keep(
    name: str, rows: list[dict[str, Any]], *, scripted: bool = False, settings: dict[str, Any] | None = None
) -> Path:
    """Write bench/results/<name>.json; returns its path. What was kept of other parts of the same benchmark stays (see `parts`)."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {
        "schema": "ft.bench/1",
        "name": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "scripted": scripted,
        "emulated": False,
        "settings": settings or {},
        "rows": rows,
    }
    before = json.loads(path.read_text()) if path.exists() else None
    path.write_text(json.dumps(parts.merged(before, document), indent=1) + "\n")
    return path


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())  # type: ignore[no-any-return]


def origin(document: dict[str, Any], rows: list[dict[str, Any]] | None = None) -> str:
    """File, and date, commit and machine of each run that `rows` (default: all) are of."""
    found: dict[str, None] = {}
    for row in document["rows"] if rows is None else rows:
        run = row.get("run", document)
        m = run["machine"]
        where = f"{m['cpu']}, {m['cores']} cores, {m['isa']}, {m['memory_bytes'] / 2**30:.0f} GiB"
        found[f"{run['date']} · commit {run['commit']} · {where}"] = None
    return f"bench/results/{document['name']}.json · {'; '.join(found)}"


def caption(document: dict[str, Any]) -> str:
    """One line: where it comes from, samples, what was scripted or emulated."""
    samples = max((row.get("samples") or 1) for row in document["rows"])
    notes = ["assistant turns scripted, every token computed"] if document["scripted"] else []
    notes.append("emulated" if document["emulated"] else "nothing emulated")
    return f"{origin(document)} · n = {samples} · {', '.join(notes)}"
