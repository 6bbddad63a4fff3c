"""Writes what the plan says, below the session's own folder and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftagent.atomic import write_text
from ftagent.launch.kept import digest, save_edit
from ftagent.launch.plan import Plan
from ftagent.launch.plan_json import SCHEMA
from ftagent.paths import Paths, ensure
from ftagent.session import records


def apply(plan: Plan, paths: Paths) -> dict[str, Any]:
    """Writes the planned files (0600) and session.json; returns the session's record."""
    ensure(paths.state)
    ensure(paths.sessions)
    ensure(plan.session.state_dir)
    for file in plan.injection.files:
        ensure(file.path.parent)
        write_text(file.path, file.text)
    record = session_record(plan)
    records.save(plan.session.state_dir, record)
    return record


def save_edits(plan: Plan, written: Mapping[str, str]) -> list[Path]:
    """Copies of what the agent made of the planned files in the launch before, see `kept`. Raises OSError."""
    return [copy for file in plan.injection.files if (copy := save_edit(file.path, written)) is not None]


def session_record(plan: Plan) -> dict[str, Any]:
    """The document of session.json (ft.session/1); holds no secret."""
    session = plan.session
    return {
        "schema": records.SCHEMA,
        "id": session.id,
        "name": session.name,
        "created": records.now(),
        "project": {
            "id": records.project_id(session.root),
            "root": str(session.root),
            "cwd": str(session.cwd),
            "branch": session.branch,
        },
        "agent": {
            "name": plan.request.harness.name,
            "version": plan.request.version,
            "path": None if plan.request.executable is None else str(plan.request.executable),
        },
        "harness": [{"id": id_, "source": "assigned"} for id_ in plan.injection.harness_ids],
        "model": {"id": plan.engine.model, "ctx": plan.window_tokens, "max_output": plan.max_output_tokens},
        "scripted": plan.scripted,
        "plan_schema": SCHEMA,
        "files": [str(file.path) for file in plan.injection.files],
        "written": {str(file.path): digest(file.text) for file in plan.injection.files},
        "runs": [],
        "stats": None,
        "engine": None,  # what the engine knew of the session when the agent had ended
    }
