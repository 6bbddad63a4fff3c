"""The agents: which can run, in which version, what their files would do to a launch, and which run without us."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ftagent.agents import loader
from ftagent.agents.install import recipe_of
from ftagent.context import Context
from ftagent.doctor.check import Check
from ftagent.doctor.fixing import FT
from ftagent.errors import FtError
from ftagent.launch.find import agent_path, cached_version, find_executable, in_range
from ftagent.session import leases, records
from harnesses.contract import Harness

DRY_RUN_S = 60.0
_SESSION = re.compile(rb"/s/(s-[a-z2-7]{10})(?:/|\0|$)")


def agent(name: str, context: Context, required: bool) -> Check:
    absent = "FAIL" if required else "SKIP"
    id_ = f"agent {name}"
    try:
        harness = loader.load(name)
        recipe = recipe_of(harness)
    except FtError as error:
        return Check(id_, "FAIL", error.message, error.hint, "Its launcher cannot be used.", by_hand=True)
    adapter = harness.adapter
    if not adapter.executables:
        return Check(id_, "OK", "part of ft")
    fix = adapter.install_hint if recipe is None else f"ft agents install {name} --yes"
    by_hand = recipe is None
    found = find_executable(adapter.executables, agent_path(context.env, context.paths))
    if found.path is None:
        if found.skipped:
            return Check(id_, "FAIL", "; ".join(found.skipped), fix, "What is there of that name cannot run.", by_hand)
        return Check(id_, absent, "not installed", fix, by_hand=by_hand)
    version = cached_version(found.path, context.paths)
    text = f"{found.path} {version or '(version seen at its first launch)'}"
    known = harness.declaration.get("versions")
    if version and isinstance(known, str) and not in_range(version, known):
        cause = "What is known of it may not hold; the version known to be good goes into ft's own folder."
        return Check(id_, "WARN", f"{text}: not checked, {known} has been", fix, cause, by_hand)
    if found.skipped:
        cause = "They stand earlier on PATH and cannot run."
        return Check(
            id_, "WARN", f"{text}; passed over: {'; '.join(found.skipped)}", _remove(found.skipped[0]), cause, True
        )
    return Check(id_, "OK", text)


def _remove(skipped: str) -> str:
    return f"rm {shlex.quote(skipped.partition(' is ')[0])}"


def plan(name: str, context: Context) -> Iterator[Check]:
    """What a dry run warns of: files of the user, the project and the administrator that would have a say."""
    done = subprocess.run(
        [*FT, "launch", name, "--dry-run", "--json"],
        env=dict(context.env),
        cwd=context.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DRY_RUN_S,
    )
    try:
        warnings = json.loads(done.stdout).get("warnings") or []
    except ValueError:
        return
    for warning in warnings:
        fix = str(warning.get("fix") or "")
        yield Check(f"plan {name}", "WARN", str(warning["text"]), fix, str(warning.get("code") or ""), by_hand=True)


def sessions(context: Context) -> Iterator[Check]:
    """Records that cannot be read, and leases that a killed launch left."""
    paths = context.paths
    for session in records.all_sessions(paths):
        if session.record is None and not leases.lease_is_held(paths, session.id):
            text = f"the record of {session.id} cannot be read"
            fix = f"ft sessions rm {session.id} --yes"
            yield Check(
                "sessions", "WARN", text, fix, "It can neither be resumed nor shown; the agent's own file stays."
            )
    found = [file for file in sorted(paths.leases.glob("s-*.json")) if (paths.sessions / file.stem).is_dir()]  # ours
    stale = [file for file in found if not leases.lease_is_held(paths, file.stem)]
    if stale:
        text = f"{len(stale)} left by launches that were killed, such as {stale[0].name}"
        fix = "rm -- " + " ".join(shlex.quote(str(file)) for file in stale)
        yield Check("leases", "WARN", text, fix, "They count for nothing.")


def orphans(context: Context) -> Iterator[Check]:
    """Agents with a session of ours and no launch that holds it (Linux: own processes)."""
    names = _programs()
    held = set(leases.held_leases(context.paths))
    for process in sorted(Path("/proc").glob("[0-9]*")):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")[:2]
            if not names & {Path(word.decode("utf-8", "replace")).name for word in words}:
                continue
            found = _SESSION.search((process / "environ").read_bytes())
        except OSError:
            continue
        if found is None or (id_ := found[1].decode()) in held or not (context.paths.sessions / id_).is_dir():
            continue
        text = f"{words[0].decode('utf-8', 'replace')} (pid {process.name}) uses session {id_} without a launch"
        cause = "Its launcher was killed, or you started it yourself with --print-env."
        yield Check("orphan", "WARN", text, f"kill {process.name}", cause, by_hand=True)


def _programs() -> set[str]:
    def of(name: str) -> Harness | None:
        try:
            return loader.load(name)
        except FtError:
            return None

    return {program for harness in map(of, loader.names()) if harness for program in harness.adapter.executables}
