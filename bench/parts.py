"""Kept runs of benchmarks that are run part by part: the rows of a new run replace those of the same part, the others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MODELLED = ("phase", "session", "regret")  # of memory: the rows that no machine's speed changes
PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "agent": lambda row: str(row["name"]).split(".")[1],  # the workload
    "disk": lambda row: row.get("shape"),
    "memory": lambda row: (*str(row["name"]).split(".")[:2], str(row["name"]).split(".")[2] in _MODELLED),
}


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """`new` with the rows that `old`, kept before under the same name, has of other parts. Each of these says in `run` when, where and
    how it was measured. Neither is changed."""
    part = PARTS.get(new["name"])
    if old is None or part is None:
        return new
    made = {part(row) for row in new["rows"]}
    run = {key: old[key] for key in ("date", "commit", "machine", "settings")}
    left = [{**row, "run": row.get("run", run)} for row in old["rows"] if part(row) not in made]
    rows = sorted([*left, *new["rows"]], key=lambda row: str(part(row)))  # stable: each part in its own order
    return {**new, "scripted": new["scripted"] or bool(left and old["scripted"]), "rows": rows}
