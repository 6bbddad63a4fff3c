"""Session records as rows and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftagent.output import table
from ftagent.session.live import Live
from ftagent.session.records import SCHEMA, Session
from ftagent.text import visible

CELL = 28


def to_json(session: Session, live: Live) -> dict[str, Any]:
    """The record with its derived status; for an unreadable one, its path."""
    record = session.record or {}
    return {
        "schema": SCHEMA,
        **record,
        "id": session.id,
        "status": live.status(session),
        "path": str(session.directory),
    }


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else visible(str(value)) or "-"


def render(sessions: Sequence[Session], live: Live, whole: bool = False) -> str:
    """NAME ID AGENT STATUS MODEL CTX WARM REQUESTS TTFT(p50) LAST BRANCH; unknown is `-`. Names are cut unless `whole`."""
    rows = [["NAME", "ID", "AGENT", "STATUS", "MODEL", "CTX", "WARM", "REQUESTS", "TTFT(p50)", "LAST", "BRANCH"]]
    for session in sessions:
        ttft = session.field("stats", "ttft_p50_s")
        rows.append(
            [
                _cell(session.field("name")),
                _cell(session.id),
                _cell(session.field("agent", "name")),
                live.status(session),
                _cell(session.field("model", "id")),
                _cell(session.field("model", "ctx")),
                _cell(session.field("engine", "warm", "tier")),
                _cell(session.field("stats", "requests")),
                "-" if ttft is None else f"{ttft:.2f} s",
                _cell(session.last_run.get("end") or session.last_run.get("start") or session.field("created")),
                _cell(session.field("project", "branch")),
            ]
        )
    if not whole:
        rows = [[cell if len(cell) <= CELL else cell[: CELL - 1] + "…" for cell in row] for row in rows]
    return table(rows, whole=whole)
