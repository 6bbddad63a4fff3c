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
