"""A plan in force: files written, lease held, agent running, receipt at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftagent import sessions
from ftagent.errors import FtError, LaunchFailed, explain_os_error
from ftagent.launch import receipt
from ftagent.launch.apply import apply
from ftagent.launch.events import Events
from ftagent.launch.plan import Plan
from ftagent.launch.run import exec_agent, run_agent
from ftagent.output import note
from ftagent.paths import Paths
from ftagent.provision import end_session
from ftagent.running_engine import RunningEngine

if TYPE_CHECKING:
    from ftagent.launch.egress import Report
    from ftagent.launch.sealed import Seal


@dataclass(frozen=True, slots=True)
class Prepared:
    plan: Plan
    engine: RunningEngine
    paths: Paths
    record: dict[str, Any]


def prepare(plan: Plan, engine: RunningEngine, paths: Paths) -> Prepared:
    """Writes the plan's files and the session's record; when that fails nothing is left of them."""
    try:
        return Prepared(plan, engine, paths, apply(plan, paths))
    except BaseException as error:
        shutil.rmtree(plan.session.state_dir, ignore_errors=True)
        end_session(engine.client, plan.session.id)
        if isinstance(error, OSError):
            raise LaunchFailed(*explain_os_error(error)) from None
        raise


def run_prepared(prepared: Prepared, events: Events, become: bool) -> int:
    """The agent's exit code. With `become` this process turns into the agent and does not return."""
    try:
        return _run(prepared, events, become)
    finally:
        _close(prepared)


def _close(prepared: Prepared) -> None:
    """The session's token is worth nothing any more, and the files that hold it go."""
    session = prepared.plan.session
    end_session(prepared.engine.client, session.id)
    for file in prepared.plan.injection.files:
        if session.token in file.text:
            with contextlib.suppress(OSError):
                file.path.unlink()


def _run(prepared: Prepared, events: Events, become: bool) -> int:
    plan, paths = prepared.plan, prepared.paths
    session = plan.session
    for warning in plan.warnings:
        events.warn(warning.code, plan.masked(warning.text), warning.fix)
    mark = "scripted replay, " if plan.scripted else ""
    events.say(
        "launching",
        f"{plan.request.harness.name} on {plan.engine.model} ({mark}window {plan.window_tokens:,} tokens), "
        f"session {session.name} ({session.id})",
        session=session.id,
        scripted=plan.scripted,
    )
    started: dict[str, Any] = {"pid": os.getpid(), "start": sessions.now(), "end": None, "exit": None}
    try:
        lease = sessions.take_lease(paths, session.id, inheritable=become)
        prepared.record["runs"].append(started)
        sessions.save(session.state_dir, prepared.record)
    except OSError as error:
        raise LaunchFailed(*explain_os_error(error)) from None
    if become:
        exec_agent(plan.argv, plan.environment, session.cwd)
    egress: Report | None = None
    try:
        with _sealed(plan) as sealing:
            code = run_agent(plan.argv, plan.environment, session.cwd, None if sealing is None else sealing.enter)
            if sealing is not None:
                egress = sealing.report()
                prepared.record["egress"] = {"mode": sealing.mode, **egress.json()}
    except FtError as error:
        started.update(end=sessions.now(), exit=error.exit_code)
        with contextlib.suppress(OSError, FtError):
            sessions.save(session.state_dir, prepared.record)
        raise
    finally:
        sessions.drop_lease(paths, session.id, lease)
    started.update(end=sessions.now(), exit=code)
    records = receipt.fetch_records(prepared.engine.client, session.id)
    summary = receipt.summarise(records) if records is not None else None
    prepared.record["stats"] = summary
    prepared.record["engine"] = receipt.fetch_session(prepared.engine.client, session.id)
    with contextlib.suppress(OSError, FtError):  # the agent's exit code matters more than our record
        sessions.save(session.state_dir, prepared.record)
    text = receipt.render(summary, session.name, session.id) + receipt.egress_line(egress)
    if events.as_json:
        events.say("ended", text, exit=code, session=session.id, receipt=summary)
    elif not events.quiet:
        note(text)
    return code


@contextlib.contextmanager
def _sealed(plan: Plan) -> Iterator[Seal | None]:
    if not plan.request.sealed:
        yield None
        return
    from ftagent.launch.sealed import seal

    with seal(plan.engine.url, plan.session.id, plan.session.state_dir) as sealing:
        yield sealing
