"""Answers of the engine as parts of a frame: engine, memory, anchors, experts, forecast. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ftagent import __version__
from ftagent.dashboard.model import (
    Anchors,
    Crash,
    CurvePoint,
    Engine,
    Experts,
    Fill,
    Flag,
    Forecast,
    ForecastPoint,
    Layer,
    LogLine,
    Phase,
    Told,
    Version,
)
from ftagent.dashboard.tree import roots_of
from ftagent.settings.config import ENGINE_OPTIONS, Settings

Json = Mapping[str, Any]
_SETTING = {"kv": "kv_tokens", "max_running_requests": "max_running"}
_LEVELS = {"INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}


def engine_of(
    ready: Json,
    stats: Json,
    life: Json,
    memory: Json,
    power: Json,
    told: Told,
    url: str,
    pid: int | None,
    flags: tuple[Flag, ...],
) -> Engine:
    """`ready` is the newest state, whatever brought it; the others may be empty."""
    worker = stats.get("engine") or {}
    foreign = memory.get("foreign") or {}
    total, left = foreign.get("total_bytes"), foreign.get("available_bytes")
    host = Fill("RAM", None if total is None or left is None else total - left, total)
    cannot = ready.get("cannot") or {}
    version = stats.get("version")
    return Engine(
        told=told,
        state=str(ready.get("state") or "starting"),
        model=ready.get("model") or stats.get("model"),
        port=urlsplit(url).port,
        pid=pid,
        worker_pid=ready.get("worker_pid"),
        version=version,
        uptime_s=stats.get("uptime_s"),
        phase=ready.get("phase"),
        progress=ready.get("progress"),
        eta_s=ready.get("eta_s"),
        stops_in_s=ready.get("stops_in_s"),
        code=ready.get("code"),
        message=ready.get("message"),
        hint=ready.get("hint"),
        warning=ready.get("warning"),
        restarts=ready.get("restarts"),
        restarts_left=life.get("restarts_left"),
        scripted=stats.get("scripted"),
        paused=life.get("paused"),
        window_tokens=ready.get("window"),
        kv_tokens=ready.get("kv_tokens"),
        running=worker.get("running", stats.get("running")),
        waiting=worker.get("waiting"),
        device=memory.get("device") or _upstreams(worker),
        temperature_c=power.get("temperature_c"),
        power_w=power.get("power_w"),
        energy_j=power.get("energy_j"),
        memory=(host,) if total else (),
        versions=tuple(
            Version(name, str(value))
            for name, value in (("ft", __version__), ("engine", version), ("python", platform.python_version()))
            if value
        ),
        flags=flags,
        crashes=tuple(
            Crash(float(c["at"]), str(c["code"]), str(c["message"]), c.get("restart_in_s"))
            for c in life.get("crashes") or ()
        ),
        phases=_phases(life.get("phases") or ()),
        cannot=tuple((str(name), str(why)) for name, why in cannot.items()),
    )


def _upstreams(worker: Json) -> str | None:
    replicas = worker.get("upstream")
    return ", ".join(str(one.get("url")) for one in replicas) if isinstance(replicas, list) else None


def _phases(told: Sequence[Json]) -> tuple[Phase, ...]:
    ends = [*(float(phase["at"]) for phase in told[1:]), None][: len(told)]
    return tuple(
        Phase(str(p["state"]), str(p["phase"]), float(p["at"]), None if end is None else end - float(p["at"]))
        for p, end in zip(told, ends, strict=True)
    )


def flags_of(stats: Json, settings: Settings | None, arguments: Sequence[str] | None, memory: Json) -> tuple[Flag, ...]:
    """Every effective setting of the engine. What it was started with says where a value comes from; None: not known."""
    effective = (stats.get("engine") or {}).get("settings") or {}
    by_name = {_SETTING.get(option.name, option.name): option for option in ENGINE_OPTIONS}
    pinned = {"kv_tokens": memory.get("kv"), "moe_slots": memory.get("experts")}
    found = []
    for name, value in effective.items():
        option, origin = by_name.get(name), None
        if value == "not used here":
            origin = None
        elif (pinned.get(name) or {}).get("pinned") and not (option and arguments and option.flag in arguments):
            origin = "set by hand"
        elif option is not None and arguments is not None:
            if option.flag in arguments:
                kept = "default" if settings is None else settings.origins.get(option.name, "default")
                origin = "flag" if kept in ("default", option.flag) else _short(kept)
            else:
                origin = "default" if option.implied is not None or option.default is not None else "chosen"
        found.append(Flag(name, f"{value:,}" if isinstance(value, int) else str(value), origin))
    return tuple(found)


def _short(origin: str) -> str:
    return Path(origin).name if origin.startswith("/") else origin


def anchors_of(stats: Json, told: Told, names: Mapping[str, str], cannot: Json) -> Anchors:
    """`names` by session id."""
    worker = stats.get("engine") or {}
    kept, disk = worker.get("checkpoints"), worker.get("hibernation")
    disk = disk if isinstance(disk, Mapping) else {}
    if not isinstance(kept, Mapping):
        why = cannot.get("anchors") or ("this model needs no states" if worker else None)
        return Anchors(told=told, why_none=why, disk_bytes=disk.get("bytes"), disk_cap_bytes=disk.get("budget_bytes"))
    return Anchors(
        told=told,
        roots=roots_of(kept.get("list") or (), names),
        count=kept.get("count"),
        bytes=kept.get("bytes"),
        cap_bytes=kept.get("cap_bytes"),
        evicted=kept.get("evicted"),
        disk_bytes=disk.get("bytes"),
        disk_cap_bytes=disk.get("budget_bytes"),
    )


def experts_of(stats: Json, picture: Json, told: Told, hit_rate: float | None, per_token: float | None) -> Experts:
    """`picture` is ft.experts/1, {} where it was not asked for; `hit_rate` and misses `per_token` of late."""
    counts = (stats.get("engine") or {}).get("experts") or {}
    rates = counts.get("rates") or {}
    profile = rates.get("profile") or {}
    layers = picture.get("layers") or ()
    slots = counts.get("slots")
    return Experts(
        told=told,
        layers=tuple(
            Layer(
                int(one["layer"]),
                one["hits"],
                one["misses"],
                tuple(max(0, use) / 100 for use in one["use"]),
                tuple(char == "1" for char in one["in_slot"]),
            )
            for one in layers
        ),
        why_none="experts are computed where they lie: there are no slots" if picture and not layers else None,
        slots=slots if isinstance(slots, int) else None,
        total=picture.get("total"),
        hits=counts.get("hits"),
        misses=counts.get("misses"),
        hit_rate=hit_rate,
        misses_per_token=per_token,
        curve=tuple(CurvePoint(int(n), float(rate)) for n, rate in picture.get("curve") or ()),
        curve_steps=picture.get("curve_steps"),
        optimum_slots=picture.get("optimum_slots"),
        fill_share=counts.get("fill_share"),
        filled=counts.get("filled"),
        in_place=counts.get("in_place"),
        fill_bytes_per_s=rates.get("fill_bytes_per_s"),
        host_bytes_per_s=rates.get("host_bytes_per_s"),
        profile_fill_bytes_per_s=profile.get("fill_bytes_per_s"),
        profile_host_bytes_per_s=profile.get("host_bytes_per_s"),
    )


def forecast_of(answers: Sequence[Json], stats: Json, told: Told) -> Forecast:
    """`answers` are ft.forecast/1, one for each point of the curve."""
    error = stats.get("forecast") or {}
    source = next((str(a.get("source")) for a in answers), "measured" if error.get("samples") else "none")
    return Forecast(
        told=told,
        source=source,
        samples=error.get("samples"),
        p90_error=error.get("p90_error"),
        checked=error.get("checked"),
        curve=tuple(
            ForecastPoint(int(a["new"]), float(a["ttft_p50_s"]), a.get("ttft_p95_s"))
            for a in answers
            if a.get("ttft_p50_s") is not None
        ),
    )


def log_line(text: str) -> LogLine:
    """`2026-09-21 12:03:29,512 INFO engine.front: serving …`, or a worker's `… worker INFO serving …`; anything else has neither level
    nor time."""
    parts = text.split(" ", 4)
    at = parts[1].partition(",")[0] if len(parts) > 1 else ""
    if len(parts) > 3 and parts[2] in _LEVELS:
        return LogLine(" ".join(parts[3:]), _LEVELS[parts[2]], at)
    if len(parts) > 4 and parts[3] in _LEVELS:
        return LogLine(f"{parts[2]}: {parts[4]}", _LEVELS[parts[3]], at)
    return LogLine(text)
