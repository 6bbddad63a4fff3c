"""What a session cost, from the engine's own request records, and the canary line."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftagent.errors import FtError
from ftagent.local_engine.client import EngineClient
from ftagent.settings.config import Settings

if TYPE_CHECKING:
    from ftagent.launch.egress import Report


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens somewhere else, in whatever currency the user thinks."""

    input: float
    cached: float
    output: float

    @staticmethod
    def of(settings: Settings) -> Prices | None:
        """None where the user has set none; cached tokens cost as much as others where only those have no price."""
        values = {name: settings.values[f"price_{name}"] for name in ("input", "cached", "output")}
        if values["input"] is None or values["output"] is None:
            return None
        cached = values["input"] if values["cached"] is None else values["cached"]
        return Prices(float(values["input"]), float(cached), float(values["output"]))

    def total(self, summary: Mapping[str, Any]) -> float | None:
        prompt, cached, output = (summary[f"{name}_tokens"] for name in ("prompt", "cached", "output"))
        if prompt is None or output is None:
            return None
        cached = cached or 0
        return float((prompt - cached) * self.input + cached * self.cached + output * self.output) / 1e6


def fetch_records(client: EngineClient, session_id: str, since: float = 0.0) -> list[dict[str, Any]] | None:
    """The session's request records from `since` on (seconds since the epoch); None when the engine does not tell."""
    try:
        answer = client.get(f"/v1/sessions/{session_id}/turns", timeout_s=3.0)
    except FtError:
        return None
    records = answer.get("turns") if isinstance(answer, dict) else None
    if not isinstance(records, list):
        return None
    return [r for r in records if isinstance(r, dict) and float(r.get("started") or since) >= since]


def fetch_session(client: EngineClient, session_id: str) -> dict[str, Any] | None:
    """What the engine knows of the session, which it forgets when the session ends; None when it does not tell."""
    try:
        answer = client.get(f"/v1/sessions/{session_id}", timeout_s=3.0)
    except FtError:
        return None
    return answer if isinstance(answer, dict) else None


def fetch_energy(client: EngineClient) -> float | None:
    """Joules that the engine's machine has used since the engine was started; None where no meter can be read."""
    try:
        answer = client.get("/v1/engine/power", timeout_s=3.0)
    except FtError:
        return None
    joules = answer.get("energy_j") if isinstance(answer, dict) else None
    return float(joules) if isinstance(joules, int | float) else None


def used(before: float | None, after: float | None) -> float | None:
    """Between two of `fetch_energy`; None too where another engine was started in between."""
    return None if before is None or after is None or after < before else round(after - before, 1)


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
        "energy_j": None,
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


def render(summary: dict[str, Any] | None, name: str, session_id: str, price: float | None = None) -> str:
    """Two lines for stderr after the agent has ended, one more with a price, and with energy."""
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
    joules = summary.get("energy_j")
    energy = "" if joules is None else f"ft: energy of the machine meanwhile: {joules / 1000:,.1f} kJ\n"
    saved = "" if price is None else f"ft: the same tokens at your reference price: {price:,.2f}\n"
    return (
        f"ft: session {name} ({session_id}) ended{mark}: prompt {_number(prompt)} tokens, cached {_number(cached)}{share}, "
        f"output {_number(summary['output_tokens'])}{ttft}\n"
        f"{saved}{energy}ft: {served} {'request' if served == 1 else 'requests'} served here"
    )
