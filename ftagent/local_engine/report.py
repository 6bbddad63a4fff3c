"""What `ft status` and `ft engine status` know of the engine."""

from __future__ import annotations

from typing import Any

from ftagent.atomic import read_json
from ftagent.context import Context
from ftagent.errors import EngineNotReady, FtError, NotHere
from ftagent.local_engine.client import EngineClient
from ftagent.local_engine.holder import holder
from ftagent.local_engine.running import find_engine, is_crashed

ENGINE_FAULT = "FT-E05"  # codes of what is wrong here, and not with a request


def engine_report(context: Context) -> dict[str, Any]:
    """`state` is what `/ready` says; of an engine that does not answer `stopping`, `starting` or `unresponsive`; `stopped` where
    there is none. Unknown values are None; `message` and `hint` are of a crashed one,
    `fault` is why a recent request failed through no fault of its sender, `warning` what it does not do any more after a restart of its worker, `forecast` how good those of the first token are."""
    engine = find_engine(context.paths)
    log = context.paths.engine_log
    report: dict[str, Any] = {
        "state": "stopped",
        "url": None,
        "pid": None,
        "version": None,
        "model": None,
        "window_tokens": None,
        "kv_tokens": None,
        "phase": None,
        "progress": None,
        "eta_s": None,
        "stops_in_s": None,
        "message": None,
        "hint": None,
        "fault": None,
        "warning": None,
        "forecast": None,
        "log": str(log) if log.exists() else None,
    }
    if engine is None:
        held = holder(context.paths)
        if held is not None:
            report.update(state=held.doing, pid=held.pid)
        return report
    try:
        ready = engine.ready_state()
    except FtError:
        return report
    report.update(
        state=ready.get("state") or ("ready" if ready["ready"] else "starting"),
        url=engine.url.text,
        pid=engine.pid,
        version=engine.version,
        model=ready.get("model") or engine.model,
        window_tokens=ready.get("window"),
        kv_tokens=ready.get("kv_tokens"),
        phase=ready.get("phase"),
        progress=ready.get("progress"),
        eta_s=ready.get("eta_s"),
        stops_in_s=ready.get("stops_in_s"),
        warning=ready.get("warning"),
    )
    report["fault"] = _last_fault(engine.client)
    report["forecast"] = _forecast(engine.client)
    if is_crashed(ready):
        report.update(message=ready.get("message"), hint=ready.get("hint") or "ft engine restart")
    return report


def _last_fault(client: EngineClient) -> str | None:
    try:
        _, answer = client.call("GET", "/v1/requests?limit=64", timeout_s=2.0)
    except FtError:
        return None
    records = answer.get("requests") if isinstance(answer, dict) else None
    for record in reversed(records if isinstance(records, list) else []):
        code, _, message = str(record.get("error") or "").partition(": ")
        if code.startswith(ENGINE_FAULT):
            return message
    return None


def _forecast(client: EngineClient) -> dict[str, Any] | None:
    """How far forecasts of the first token were off; None where the engine does not tell."""
    try:
        _, answer = client.call("GET", "/v1/engine/forecast", timeout_s=2.0)
    except FtError:
        return None
    if not isinstance(answer, dict) or "checked" not in answer:
        return None
    return {name: answer.get(name) for name in ("p90_error", "checked", "samples")}


def _judged(p90_error: float | None, checked: int) -> str:
    if p90_error is None:
        return f"TTFT forecasts: no data yet (n={checked})"
    return f"TTFT forecasts off by {p90_error:.0%} at most in 9 of 10 (n={checked})"


def exit_code(report: dict[str, Any]) -> int:
    """0 for an engine that serves or will, 3 where none runs or it is ending, 5 where it has crashed or hangs."""
    if report["state"] in ("stopped", "stopping"):
        return NotHere.exit_code
    return EngineNotReady.exit_code if is_crashed(report) or report["state"] == "unresponsive" else 0


def running_client(context: Context) -> EngineClient:
    """The client of the running engine. Raises NotHere (exit 3)."""
    engine = find_engine(context.paths)
    if engine is None:
        stale = "its runtime file is stale" if read_json(context.paths.engine_file) else "none was started"
        raise NotHere(f"No engine is running ({stale}).", "ft engine start", code="FT-E0302 engine-not-running")
    return engine.client


def describe(report: dict[str, Any]) -> str:
    """One line."""
    if report["state"] == "stopped":
        return "stopped"
    if report["url"] is None:
        return f"{report['state']}  pid {report['pid'] or '-'}"
    parts = [str(report["state"])]
    if report["phase"] and report["phase"] != report["state"]:
        parts.append(str(report["phase"]))
    parts += [str(report["model"] or "-"), str(report["url"]), f"pid {report['pid'] or '-'}"]
    if report["window_tokens"]:
        parts.append(f"window {report['window_tokens']:,} tokens")
    if report["stops_in_s"] is not None:
        parts.append(f"ends without use in {max(1, round(report['stops_in_s'] / 60))} min")
    judged = report["forecast"]
    if judged:
        parts.append(_judged(judged["p90_error"], judged["checked"]))
    if report["message"]:
        parts.append(f"{report['message']} {report['hint']}")
    if report["warning"]:
        parts.append(f"warning: {report['warning']}")
    if report["fault"]:
        parts.append(f"warning: a request failed: {report['fault']} See: ft ctl requests")
    return "  ".join(parts)
