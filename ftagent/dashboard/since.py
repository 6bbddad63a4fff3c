"""What of a session is on disk beside its newest state: its launches, and what is another now than at the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ftagent.dashboard.diffs import Diff
from ftagent.dashboard.model import Receipt
from ftagent.session.records import Session

KEPT = 8


def changes_of(
    session: Session, model: str | None, window: int | None, diff: Diff | None, files: Sequence[str]
) -> tuple[str, ...] | None:
    """In words. `model` and `window` are served now (None: not known), `files` those that the launch wrote and that are others
    now. None: its record cannot be read."""
    if session.record is None:
        return None
    was, ctx, branch = session.field("model", "id"), session.field("model", "ctx"), session.field("project", "branch")
    told = []
    if was and model and was != model:
        told.append(f"model {was} then, {model} is served now: nothing computed before can be used")
    elif ctx and window and ctx != window:
        told.append(f"window of {ctx:,} tokens then, {window:,} now")
    if diff is not None and branch and diff.branch and diff.branch != branch:
        told.append(f"branch {branch} then, {diff.branch} now")
    return (*told, *(f"{name}, written for it, is another file now" for name in files))


def receipts_of(session: Session) -> tuple[Receipt, ...]:
    """Newest first, at most `KEPT`."""
    runs = session.field("runs")
    found = [_receipt(run) for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    return tuple(reversed(found[-KEPT:]))


def _receipt(run: Mapping[str, Any]) -> Receipt:
    began, ended = seconds_of(run.get("start")), seconds_of(run.get("end"))
    stats = run.get("stats") or {}
    names = (
        "requests",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "ttft_p50_s",
        "ttft_max_s",
        "energy_j",
        "price",
    )
    return Receipt(
        started_at=began,
        seconds=None if began is None or ended is None else ended - began,
        exit=run.get("exit"),
        scripted=bool(stats.get("scripted")),
        **{name: stats.get(name) for name in names},
    )


def seconds_of(text: Any) -> float | None:
    """Since the epoch, of a time as records hold it."""
    try:
        return None if text is None else datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
