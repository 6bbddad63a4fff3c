"""The model that would be served, and the engine that serves: files, port, process."""

from __future__ import annotations

import fcntl
import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from ftagent.atomic import read_json
from ftagent.context import Context
from ftagent.doctor.check import Check
from ftagent.errors import FtError
from ftagent.local_engine import port_owner
from ftagent.local_engine.holder import holder
from ftagent.local_engine.models import DEFAULT_MODEL, PULLABLE, LocalModel, find_model, installed
from ftagent.local_engine.report import describe, engine_report
from ftagent.local_engine.running import find_engine, is_crashed
from ftagent.settings.config import Settings

PORTS = 50  # looked through for a free one


def models(context: Context, settings: Settings) -> tuple[LocalModel | None, list[Check]]:
    """The model that would be served where it can be, and what was found."""
    models_dir = context.models_dir(settings)
    present = installed(models_dir)
    found = list(unfinished(models_dir))
    try:
        model = find_model(settings.text("model"), models_dir, context.cwd)
    except FtError as error:
        return None, [_unusable(error, settings.text("model"), present), *found]
    if not model.pulled:
        text, cause = f"{model.name} is made at the first launch", "That launch takes longer by the making."
        return None, [Check("models", "WARN", text, f"ft models pull {DEFAULT_MODEL}", cause), *found]
    assert model.directory is not None
    broken = missing_part(model.directory)
    if broken:
        again = f"ft models pull {model.name} --force" if model.name in PULLABLE else f"ft models verify {model.name}"
        cause = "The engine refuses to load it. It has to be made again."
        bad = Check("models", "FAIL", f"{model.name}: {broken}", again, cause, by_hand=model.name not in PULLABLE)
        return None, [bad, *found]
    return model, [Check("models", "OK", f"{model.name} (of {', '.join(present) or model.reference})"), *found]


def _unusable(error: FtError, wanted: str, present: list[str]) -> Check:
    cause = "No launch finds a model."
    if wanted in PULLABLE:
        return Check("models", "FAIL", error.message, f"ft models pull {wanted} --force", cause)
    if present:
        return Check("models", "FAIL", error.message, f"ft config set model {present[0]}", cause)
    return Check("models", "FAIL", error.message, f"ft config set model {DEFAULT_MODEL}", cause)


def missing_part(folder: Path) -> str:
    """What of a model's files is not there, or shorter than its manifest says; empty where all is there. Reads no weights."""
    manifest = read_json(folder / "ftw.json") or {}
    banks = [bank for bank in manifest.get("banks") or [] if isinstance(bank, dict)]
    dense = manifest.get("dense") if isinstance(manifest.get("dense"), dict) else {}
    wanted = [(str(bank.get("file")), int(bank.get("bytes") or 0)) for bank in banks]
    if dense and dense.get("file"):
        ends = [int(t["offset"]) + int(t["bytes"]) for t in (dense.get("tensors") or {}).values()]
        wanted.append((str(dense["file"]), max(ends, default=0)))
    wanted += [(str(manifest[name]), 1) for name in ("tokenizer", "config") if isinstance(manifest.get(name), str)]
    for name, size in wanted:
        try:
            has = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if has < size:
            return f"{name} breaks off: {has:,} of {size:,} bytes"
    return ""


def unfinished(models_dir: Path) -> Iterator[Check]:
    """Pulls that were interrupted and are not running."""
    for folder in sorted(models_dir.glob(".*.pull")):
        if not folder.is_dir() or _is_locked(folder / "lock"):
            continue
        name = folder.name[1 : -len(".pull")]
        size = sum(file.stat().st_blocks * 512 for file in folder.iterdir() if file.is_file())
        order = (read_json(folder / "pull.json") or {}).get("order") or {}
        if order.get("repo") and order.get("experts"):
            wanted = f"{order['repo']}:{order['experts']}"
            fix = f"ft models pull {shlex.quote(wanted)} --name {shlex.quote(name)}"
            text = f"getting {name} was not finished; {size / 1e9:.1f} GB of it are kept"
            yield Check("unfinished pull", "WARN", text, fix, f"It goes on there. To give it up: rm -r {folder}")
        else:
            text = f"{folder} was left by a pull that was killed"
            yield Check(
                "unfinished pull", "WARN", text, f"rm -r {shlex.quote(str(folder))}", "It holds nothing usable."
            )


def _is_locked(file: Path) -> bool:
    try:
        with file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def engine(context: Context, settings: Settings) -> Check:
    if find_engine(context.paths) is not None:
        report = engine_report(context)
        if is_crashed(report):
            cause = "Requests are refused until it is started again."
            return Check("engine", "FAIL", describe(report), "ft engine restart", cause)
        if report["fault"]:
            cause = "A file of the model, or the machine, failed a request."
            fix = f"ft models verify {shlex.quote(str(report['model']))}"
            return Check("engine", "WARN", describe(report), fix, cause, by_hand=True)
        if report["warning"]:
            return Check(
                "engine", "WARN", describe(report), "ft engine restart", "Something is lost since its worker restarted."
            )
        return Check("engine", "OK", describe(report))
    held = holder(context.paths)
    if held is not None and held.announced and not held.ending:
        who = f" (pid {held.pid})" if held.pid else ""
        text = f"the engine{who} does not answer"
        cause = "It hangs, was stopped by a debugger or Ctrl-Z, or its record in the runtime folder was damaged."
        return Check("engine", "FAIL", text, "ft engine stop", cause)
    port = settings.number("port")
    if held is None and port_owner.is_taken(port):
        return _taken(port, settings)
    return Check("engine", "OK", f"stopped; port {port} is free" if held is None else f"the engine is {held.doing}")


def _taken(port: int, settings: Settings) -> Check:
    who = port_owner.owner(port) or "another program"
    text, cause = f"port {port} is used by {who}", "The engine cannot start, and no other port is taken silently."
    free = next((other for other in range(port + 1, port + PORTS) if other < 65_536 and _is_free(other)), None)
    if free is None or settings.origins["port"].startswith("$"):
        return Check("engine", "FAIL", text, f"export FT_PORT={free or 'N'}", cause, by_hand=True)
    return Check("engine", "FAIL", text, f"ft config set port {free}", cause)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def leftovers(context: Context) -> Iterator[Check]:
    """Of an engine that is gone."""
    file = context.paths.engine_file
    if file.exists() and holder(context.paths) is None and find_engine(context.paths) is None:
        try:
            json.loads(file.read_text(encoding="utf-8"))
            text = f"{file} was left by an engine that is gone"
        except (OSError, ValueError):
            text = f"{file} cannot be read"
        yield Check(
            "runtime file", "WARN", text, f"rm -- {shlex.quote(str(file))}", "Its token opens nothing any more."
        )
