"""A plan in force: files written, lease held, agent running, receipt at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftagent.errors import FtError, LaunchFailed, explain_os_error
from ftagent.launch import receipt
from ftagent.launch.apply import apply, save_edits
from ftagent.launch.events import Events
from ftagent.launch.kept import put_away
from ftagent.launch.plan import Plan, launch_context
from ftagent.launch.run import exec_agent, run_agent
from ftagent.local_engine.provision import end_session
from ftagent.local_engine.running import RunningEngine
from ftagent.output import note
from ftagent.paths import Paths
from ftagent.session import leases
from ftagent.session import links as session_links
from ftagent.session import records as sessions

if TYPE_CHECKING:
    from ftagent.launch.egress import Report
    from ftagent.launch.sealed import Seal


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session comes from. `earlier` is the record that it goes on with, `parent` the session that it is a copy of."""

    earlier: dict[str, Any] | None = None
    parent: str | None = None
    worktree: dict[str, Any] | None = None
    tmux: str | None = None
    prices: receipt.Prices | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    plan: Plan
    engine: RunningEngine
    paths: Paths
    record: dict[str, Any]
    origin: Origin
    edits: list[Path] = field(default_factory=list)  # copies of what the agent had made of files written anew


def prepare(plan: Plan, engine: RunningEngine, paths: Paths, origin: Origin) -> Prepared:
    """Writes the plan's files and the session's record; when that fails nothing is left of them, or the earlier record."""
    directory = plan.session.state_dir
    try:
        edits = save_edits(plan, (origin.earlier or {}).get("written") or {})
        record = _record(apply(plan, paths), plan, origin)
        sessions.save(directory, record)
        event = "forked" if origin.parent else "resumed" if origin.earlier else "created"
        sessions.log_event(directory, event, agent=record["agent"], model=record["model"]["id"], parent=origin.parent)
        return Prepared(plan, engine, paths, record, origin, edits)
    except BaseException as error:
        if origin.earlier is None:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            with contextlib.suppress(OSError, FtError):
                sessions.save(directory, origin.earlier)
        end_session(engine.client, plan.session.id)
        if isinstance(error, OSError):
            raise LaunchFailed(*explain_os_error(error)) from None
        raise


def _record(written: dict[str, Any], plan: Plan, origin: Origin) -> dict[str, Any]:
    """The record of this launch, with what an earlier one had: everything that is only added to."""
    now = sessions.now()
    assigned = [session_links.link(id_, "assigned", now) for id_ in plan.injection.harness_ids]
    project = {**written["project"], "folder": sessions.folder_identity(plan.session.root), "worktree": origin.worktree}
    record = {**written, "project": project, "harness": assigned, "parent": origin.parent}
    if origin.earlier is not None:
        earlier = origin.earlier
        kept = {key: value for key, value in earlier.items() if key not in record}
        same: dict[str, Any] = {
            key: earlier.get(key) for key in ("created", "runs", "stats", "engine", "parent") if key in earlier
        }
        known = [one for one in earlier.get("harness") or [] if isinstance(one, dict) and "id" in one]
        links = session_links.merge(
            [{**session_links.link(one["id"], "assigned", ""), **one} for one in known], assigned
        )
        record = {**kept, **record, **same, "harness": links}
    return record


def run_prepared(prepared: Prepared, events: Events, become: bool, lease: int | None = None) -> int:
    """The agent's exit code. With `become` this process turns into the agent and does not return.

    `lease`: the session's, where it was taken before.
    """
    with contextlib.ExitStack() as last:
        if lease is not None:
            last.callback(leases.drop_lease, prepared.paths, prepared.plan.session.id, lease)
        try:
            return _run(prepared, events, become, lease, last)
        finally:
            _close(prepared)


def _close(prepared: Prepared) -> None:
    """The session's token is worth nothing any more, and the files that hold it go."""
    session = prepared.plan.session
    end_session(prepared.engine.client, session.id)
    for file in prepared.plan.injection.files:
        if session.token in file.text:
            with contextlib.suppress(OSError):
                put_away(file.path, file.text)


def _run(prepared: Prepared, events: Events, become: bool, lease: int | None, last: contextlib.ExitStack) -> int:
    """What `last` does comes after the session's token is closed: whoever takes the lease then registers the session anew."""
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
    for copy in prepared.edits:
        events.say("kept", f"what the agent had changed there is kept in {copy}", path=str(copy))
    began, drawn = time.time(), receipt.fetch_energy(prepared.engine.client)
    started: dict[str, Any] = {"pid": os.getpid(), "start": sessions.now(), "end": None, "exit": None}
    started.update(exec=become, tmux=prepared.origin.tmux, launched_by="ft launch")
    try:
        if lease is None:
            lease = leases.take_lease(paths, session.id)
            last.callback(leases.drop_lease, paths, session.id, lease)
        os.set_inheritable(lease, become)
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
        text = _ended(prepared, started, code, began, drawn)
    except FtError as error:
        started.update(end=sessions.now(), exit=error.exit_code)
        with contextlib.suppress(OSError, FtError):
            sessions.save_over(session.state_dir, prepared.record)
        raise
    text += receipt.egress_line(egress)
    if events.as_json:
        events.say("ended", text, exit=code, session=session.id, receipt=started["stats"])
    elif not events.quiet:
        note(text)
    return code


def _ended(prepared: Prepared, started: dict[str, Any], code: int, began: float, drawn: float | None) -> str:
    """The record of the run that ended with `code`; the receipt. `drawn`: the meters' joules at its begin."""
    session = prepared.plan.session
    started.update(end=sessions.now(), exit=code)
    records = receipt.fetch_records(prepared.engine.client, session.id, began)
    summary = receipt.summarise(records) if records is not None else None
    price = prepared.origin.prices.total(summary) if prepared.origin.prices and summary else None
    if summary is not None:
        summary["price"] = price
        summary["energy_j"] = receipt.used(drawn, receipt.fetch_energy(prepared.engine.client))
    started["stats"] = summary
    prepared.record["stats"] = _total(prepared.record["runs"], summary)
    prepared.record["engine"] = receipt.fetch_session(prepared.engine.client, session.id)
    _link(prepared, began)
    sessions.log_event(session.state_dir, "ended", exit=code)
    with contextlib.suppress(OSError, FtError):  # the agent's exit code matters more than our record
        sessions.save_over(session.state_dir, prepared.record)
    return receipt.render(summary, session.name, session.id, price)


@contextlib.contextmanager
def _sealed(plan: Plan) -> Iterator[Seal | None]:
    if not plan.request.sealed:
        yield None
        return
    from ftagent.launch.sealed import seal

    with seal(plan.engine.url, plan.session.id, plan.session.state_dir) as sealing:
        yield sealing


def _total(runs: list[dict[str, Any]], newest: dict[str, Any] | None) -> dict[str, Any] | None:
    """The newest run's figures with counts over all runs; what one run does not know is not counted."""
    known = [run["stats"] for run in runs if run.get("stats")]
    if newest is None:
        newest = known[-1] if known else None
    if newest is None or len(known) < 2:
        return newest
    sums = {}
    for key in ("requests", "prompt_tokens", "cached_tokens", "output_tokens"):
        values = [one[key] for one in known if one.get(key) is not None]
        sums[key] = sum(values) if values else None
    return {**newest, **sums}


def _link(prepared: Prepared, began: float) -> None:
    """Which conversations the agent held, and where it keeps the newest."""
    plan, record = prepared.plan, prepared.record
    found = session_links.observed(record["engine"])
    if not found and not plan.injection.harness_ids:
        begin, end = datetime.fromtimestamp(began, UTC), datetime.now(UTC)
        name, request = plan.request.harness.name, plan.request
        taken = sessions.conversations_but(prepared.paths, plan.session.id)
        cwd, state_dir = plan.session.cwd, plan.session.state_dir
        found = session_links.scan(name, request.env, request.home, cwd, begin, end, taken, state_dir)
    before = {one["id"] for one in record["harness"]}
    record["harness"] = links = session_links.merge(record["harness"], found)
    for one in links:
        if one["id"] not in before:
            sessions.log_event(plan.session.state_dir, "conversation", id=one["id"], source=one["source"])
    own = [one for one in links if not one.get("parent")]
    if own:
        newest = own[-1]
        newest["ended_by"] = "exit"
        context = launch_context(
            plan.request, plan.session, plan.engine, plan.window_tokens, plan.max_output_tokens, plan.read
        )
        with contextlib.suppress(OSError, FtError, ValueError):
            file = plan.request.harness.adapter.transcript(context, newest["id"])
            if file is not None and file.exists():
                newest["file"] = str(file)
