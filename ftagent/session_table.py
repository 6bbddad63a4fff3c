"""Session records as rows and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftagent.output import table
from ftagent.paths import Paths
from ftagent.sessions import Session


def to_json(session: Session, paths: Paths) -> dict[str, Any]:
    """The record with its derived status; for an unreadable one, its path."""
    record = session.record or {}
    return {**record, "id": session.id, "status": session.status(paths), "path": str(session.directory)}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def render(sessions: Sequence[Session], paths: Paths) -> str:
    """NAME AGENT STATUS MODEL CTX REQUESTS TTFT(p50) LAST BRANCH; unknown is `-`."""
    rows = [["NAME", "ID", "AGENT", "STATUS", "MODEL", "CTX", "REQUESTS", "TTFT(p50)", "LAST", "BRANCH"]]
    for session in sessions:
        ttft = session.field("stats", "ttft_p50_s")
        rows.append(
            [
                _cell(session.field("name")),
                session.id,
                _cell(session.field("agent", "name")),
                session.status(paths),
                _cell(session.field("model", "id")),
                _cell(session.field("model", "ctx")),
                _cell(session.field("stats", "requests")),
                "-" if ttft is None else f"{ttft:.2f} s",
                _cell(session.last_run.get("end") or session.last_run.get("start") or session.field("created")),
                _cell(session.field("project", "branch")),
            ]
        )
    return table(rows)
