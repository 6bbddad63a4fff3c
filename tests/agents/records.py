"""Request records as people read them."""

from __future__ import annotations

from typing import Any

COLUMNS = ("prompt", "cached", "replayed", "new", "anticipated", "wasted", "output")


def table(requests: list[dict[str, Any]]) -> str:
    """One line for each request, oldest first."""
    rows = [["", "kind", *COLUMNS, "broke at"]]
    for number, request in enumerate(sorted(requests, key=lambda request: request["started"]), 1):
        counts = [request[f"{column}_tokens"] for column in COLUMNS]
        broke = request.get("broke_at") or {}
        where = " ".join(
            str(broke[key]) for key in ("token", "kind", "edge", "rule", "predicted") if broke.get(key) is not None
        )
        kind = request["kind"] or ("side" if request["side"] else request["end"])
        rows.append([str(number), str(kind), *("-" if count is None else f"{count:,}" for count in counts), where])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def summary(requests: list[dict[str, Any]], session: dict[str, Any]) -> dict[str, Any]:
    """A session in numbers: the agent's own requests, what they had to compute, and how its edits were foreseen.

    `edits_predicted` are the predictions of a changed prompt that were put to the test, `edits_foreseen` the changed
    prompts among the agent's own requests that a prediction fitted, of `edits`.
    """
    turns = [request for request in requests if not request["side"]]
    rules = {rule: score for rule, score in (session.get("predictions") or {}).items() if rule != "append"}
    broken = [request["broke_at"] for request in turns if request["broke_at"]]
    return {
        "version": session.get("version"),
        "requests": len(turns),
        "compactions": sum(request["kind"] == "compaction" for request in requests),
        **{name: sum(r[f"{name}_tokens"] or 0 for r in requests) for name in ("prompt", *COLUMNS[1:6])},
        "edits": len(broken),
        "edits_foreseen": sum(broke["predicted"] for broke in broken),
        "edits_predicted": sum(score["hits"] + score["misses"] for score in rules.values()),
        "edits_hit": sum(score["hits"] for score in rules.values()),
        "edits_early": sum(score["early"] for score in rules.values()),
        "appends_hit": (session.get("predictions") or {}).get("append", {}).get("hits", 0),
    }
