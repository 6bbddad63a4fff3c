"""The local engine as a process: started once, waited for, and why it did not get ready."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ftagent.errors import Conflict, EngineNotReady, FtError, NotHere, UsageError
from ftagent.isolation import engine_environment
from ftagent.local_engine import port_owner
from ftagent.local_engine.client import EngineClient, parse_engine_url
from ftagent.local_engine.command import engine_command
from ftagent.local_engine.holder import holder
from ftagent.local_engine.log import cause_in, log_tail, new_log
from ftagent.local_engine.models import LocalModel
from ftagent.local_engine.options import as_arguments
from ftagent.local_engine.running import RunningEngine, find_engine, has_crashed, is_crashed
from ftagent.local_engine.stop import STOP_GRACE_S, stop_engine
from ftagent.paths import Paths, ensure
from ftagent.processes import is_alive
from ftagent.settings.config import Settings


class EngineGone(EngineNotReady):
    """It ended while it was waited for."""


Show = Callable[[str, str], None]  # text, phase
_FULL_BYTES = 1 << 20


def refuse_foreign_port(port: int) -> None:
    """Raises Conflict when something that is not our engine holds the port; never picks another port silently."""
    if not port_owner.is_taken(port):
        return
    try:
        _, health = EngineClient(parse_engine_url(f"http://127.0.0.1:{port}")).call("GET", "/health", timeout_s=2.0)
    except FtError:
        health = None
    if isinstance(health, dict) and "nonce" in health:
        who = "another ft engine, of another user or another FT_HOME"
    else:
        who = port_owner.owner(port) or "another program"
    raise Conflict(
        f"Port {port} is used by {who}.",
        "Stop it, or choose a port for ft: export FT_PORT=N",
        code="FT-E0610 port-in-use",
    )


@contextlib.contextmanager
def _start_lock(paths: Paths, show: Show) -> Iterator[None]:
    """One starter at a time; the second waits here and then finds the engine of the first."""
    descriptor = os.open(ensure(paths.runtime) / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            show("waiting for another ft that is starting the engine", "lock")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _settled(paths: Paths, show: Show, limit_s: float) -> RunningEngine | None:
    """The engine that answers, or None once no process has the folder: one that is ending, or that somebody else starts, is
    waited for. Raises Conflict when it does neither within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        found = find_engine(paths)
        held = None if found is not None else holder(paths)
        if held is None:
            return found
        if time.monotonic() > deadline:
            who = f" (pid {held.pid})" if held.pid else ""
            raise Conflict(f"The engine{who} in {paths.runtime} is {held.doing} and does not answer.", "ft engine stop")
        show(f"engine: the one before is {held.doing}", "before")
        time.sleep(0.05)


def serve_arguments(model: LocalModel, settings: Settings, models_dir: Path, paths: Paths) -> list[str]:
    """The arguments of `engine serve` that follow from the settings."""
    arguments = ["--model", model.reference, "--models-dir", str(models_dir), "--runtime-dir", str(paths.runtime)]
    arguments += [*as_arguments(settings), "--profiles-dir", str(paths.profiles)]
    budget = settings.optional_number("hibernate")
    budget = hibernation_bytes(paths.checkpoints) if budget is None else budget
    if budget:
        arguments += ["--hibernate-dir", str(paths.checkpoints), "--hibernate-bytes", str(budget)]
    return arguments


def hibernation_bytes(folder: Path) -> int:
    """The usual budget of prefixes kept on disk: 8 GiB, at most a tenth of what is free there; 0 where nothing is."""
    existing = next((place for place in (folder, *folder.parents) if place.is_dir()), Path("/"))
    return min(8 << 30, shutil.disk_usage(existing).free // 10)


def start_engine(
    arguments: list[str], port: int, paths: Paths, env: Mapping[str, str], show: Show, silence_s: float
) -> tuple[RunningEngine, bool]:
    """The running engine, and whether this call started it. Returns once `/health` answers; it may still be loading.

    One that has crashed is replaced.

    Raises Conflict when the port is foreign, EngineNotReady when the process dies or stays silent for `silence_s`.
    """
    with _start_lock(paths, show):
        found = _settled(paths, show, max(silence_s, STOP_GRACE_S))
        if found is not None and not has_crashed(found):
            return found, False
        if found is not None:
            show("engine: crashed, starting another", "crashed")
            stop_engine(paths)
        refuse_foreign_port(port)
        log = new_log(paths)
        with log.open("ab") as output:
            process = subprocess.Popen(  # not waited for: it outlives us
                engine_command("serve", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=paths.state,
                env=engine_environment(env),
                start_new_session=True,
            )
        deadline = time.monotonic() + silence_s
        try:
            while time.monotonic() < deadline:
                found = find_engine(paths)
                if found is not None:
                    process.returncode = 0  # detached on purpose: no warning about a child that is still running
                    return found, found.pid in (None, process.pid)
                if process.poll() is not None:
                    raise _died(f"exit code {process.returncode}", "starting", log, process.returncode)
                show("engine: starting", "starting")
                time.sleep(0.05)
        except KeyboardInterrupt:
            process.terminate()  # nobody waits for it yet
            process.wait()
            raise
        process.terminate()
        raise _no_progress("starting", silence_s, log)


def _died(how: str, phase: str, log: Path, code: int = EngineNotReady.exit_code) -> EngineNotReady:
    """The engine's own last words where it had some. `code` is its exit code, kept where it means something to callers."""
    kept = code if code in (UsageError.exit_code, NotHere.exit_code, Conflict.exit_code) else None
    cause = cause_in(log_tail(log, 40))
    if cause is not None:
        return EngineNotReady(cause.message, cause.hint or f"Log: {log}", code=cause.code, exit_code=kept)
    said = next((line.strip() for line in reversed(log_tail(log).splitlines()) if line.strip()), "")
    if not said and shutil.disk_usage(log.parent).free < _FULL_BYTES:
        return EngineNotReady(
            f"The disk is full: the engine could not write {log}.",
            "Free some space, or set FT_HOME to another disk.",
            code="FT-E0510 engine-crashed",
        )
    return EngineNotReady(
        f"The engine stopped while {phase} ({how})" + (f": {said}" if said else "."),
        f"Log: {log}",
        code="FT-E0510 engine-crashed",
        exit_code=kept,
    )


def _crashed(state: Mapping[str, Any], phase: str, log: Path) -> EngineNotReady:
    """The worker gave up: the front says why, which is worth more than the log."""
    message, hint = state.get("message"), state.get("hint")
    if not message:
        return _died(str(state.get("state")), phase, log)
    return EngineNotReady(str(message), str(hint or "ft engine restart"), code="FT-E0510 engine-crashed")


def _no_progress(phase: str, silence_s: float, log: Path) -> EngineNotReady:
    tail = log_tail(log)
    return EngineNotReady(
        f"The engine made no progress for {silence_s:.0f} s in phase {phase!r}." + (f"\n{tail}" if tail else ""),
        f"Log: {log}; wait longer with --wait SECONDS.",
        code="FT-E0511 engine-no-progress",
    )


def wait_ready(engine: RunningEngine, log: Path, show: Show, silence_s: float, early: bool = False) -> dict[str, Any]:
    """Polls `/ready` until it is 200 and returns its body; `early`: until requests are served, which may be before all experts
    are read. The limit counts from the last change of phase or progress."""
    seen: tuple[Any, ...] = ()
    last_change = time.monotonic()
    phase = "starting"
    while True:
        try:
            state = engine.ready_state()
        except EngineNotReady:
            if not is_alive(engine.pid):
                died = _died("it no longer answers", phase, log)
                raise EngineGone(died.message, died.hint, code=died.code, exit_code=died.exit_code) from None
            state = {"ready": False, "phase": phase}  # alive and too busy to answer: the limit on silence decides
        if state["ready"] or (early and state.get("serves")):
            return state
        phase = str(state.get("phase") or state.get("state") or phase)
        if is_crashed(state):
            raise _crashed(state, phase, log)
        now = (state.get("state"), state.get("phase"), state.get("progress"))
        if now != seen:
            seen, last_change = now, time.monotonic()
        elif time.monotonic() - last_change > silence_s:
            raise _no_progress(phase, silence_s, log)
        show(_describe(state, phase), phase)
        time.sleep(0.1)


def _describe(state: Mapping[str, Any], phase: str) -> str:
    text = f"engine: {phase}"
    progress = state.get("progress")
    if isinstance(progress, int | float):
        text += f" {progress * 100:.0f} %" if progress <= 1 else f" {progress:.0f} %"
    if isinstance(state.get("eta_s"), int | float):
        text += f", about {state['eta_s']:.0f} s left"
    return text
