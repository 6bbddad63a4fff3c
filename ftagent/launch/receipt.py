"""What a session cost, from the engine's own request records, and the canary line."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from ftagent.engine_client import EngineClient
from ftagent.errors import FtError

if TYPE_CHECKING:
    from ftagent.launch.egress import Report


def fetch_records(client: EngineClient, session_id: str) -> list[dict[str, Any]] | None:
    """The session's request records; None when the engine does not tell."""
    try:
        answer = client.get(f"/v1/sessions/{session_id}/turns", timeout_s=3.0)
    except FtError:
        return None
    records = answer.get("turns") if isinstance(answer, dict) else None
    return [record for record in records if isinstance(record, dict)] if isinstance(records, list) else None


def fetch_session(client: EngineClient, session_id: str) -> dict[str, Any] | None:
    """What the engine knows of the session, which it forgets when the session ends; None when it does not tell."""
    try:
        answer = client.get(f"/v1/sessions/{session_id}", timeout_s=3.0)
    except FtError:
        return None
    return answer if isinstance(answer, dict) else None


def _sum(records: list[dict[str, Any]], key: str) -> int | None:
    """None when no record knows: unknown is never 0."""
    values = [record[key] for record in records if isinstance(record.get(key), int | float)]
    return int(sum(values)) if values else None


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Totals over a session's records; unknown numbers are None."""
    ttfts = sorted(float(record["ttft_s"]) for record in records if isinstance(record.get("ttft_s"), int | float))
    return {
        "requests": len(records),
        "prompt_tokens": _sum(records, "prompt_tokens"),
        "cached_tokens": _sum(records, "cached_tokens"),
        "output_tokens": _sum(records, "output_tokens"),
        "ttft_p50_s": statistics.median(ttfts) if ttfts else None,
        "ttft_max_s": ttfts[-1] if ttfts else None,
        "scripted": any(record.get("scripted") for record in records),
    }


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def egress_line(report: Report | None) -> str:
    """What follows the number of requests served; empty for a launch that was not sealed."""
    if report is None:
        return ""
    if not report.refused:
        return ", 0 refused at egress"
    names = ", ".join(
        f"{attempt.host}{'' if attempt.port is None else f':{attempt.port}'} x{attempt.count}"
        for attempt in report.refused[:8]
    )
    return f", {report.attempts} refused at egress: {names}"


def render(summary: dict[str, Any] | None, name: str, session_id: str) -> str:
    """Two lines for stderr after the agent has ended."""
    if summary is None:
        return f"ft: session {name} ({session_id}) ended; the engine gave no figures"
    mark = " (scripted replay)" if summary["scripted"] else ""
    prompt, cached = summary["prompt_tokens"], summary["cached_tokens"]
    share = f" ({100 * cached / prompt:.0f} %)" if prompt and cached is not None else ""
    ttft = (
        f", TTFT median {summary['ttft_p50_s']:.2f} s, longest {summary['ttft_max_s']:.2f} s (n={summary['requests']})"
        if summary["ttft_p50_s"] is not None
        else ""
    )
    served = summary["requests"]
    return (
        f"ft: session {name} ({session_id}) ended{mark}: prompt {_number(prompt)} tokens, cached {_number(cached)}{share}, "
        f"output {_number(summary['output_tokens'])}{ttft}\n"
        f"ft: {served} {'request' if served == 1 else 'requests'} served here"
    )
