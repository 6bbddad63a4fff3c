"""The plan as one JSON document, schema ft.plan/1."""

from __future__ import annotations

import difflib
from typing import Any

from ftagent.launch.plan import MASK, Plan
from harnesses.contract import PlannedFile

SCHEMA = "ft.plan/1"


def to_json(plan: Plan) -> dict[str, Any]:
    """Secrets are masked; unknown values are null."""
    session, engine = plan.session, plan.engine
    return {
        "schema": SCHEMA,
        "agent": {
            "name": plan.request.harness.name,
            "version": plan.request.version,
            "path": None if plan.request.executable is None else str(plan.request.executable),
        },
        "session": {
            "id": session.id if session.assigned else None,
            "name": session.name,
            "new": plan.request.resume is None or plan.request.fork,
            "resumes": plan.request.resume,
            "token": MASK,
            "project": str(session.root),
            "cwd": str(session.cwd),
            "branch": session.branch,
            "state_dir": str(session.state_dir),
            "harness_ids": list(plan.injection.harness_ids),
        },
        "scripted": plan.scripted,
        "argv": [plan.masked(word) for word in plan.argv],
        "env": {
            "set": [
                {
                    "name": variable.name,
                    "value": MASK if variable.secret else plan.masked(variable.value),
                    "why": variable.why,
                    "replaces": None if variable.replaces is None else plan.masked(variable.replaces),
                }
                for variable in plan.set_variables
            ],
            "unset": plan.removed_variables,
        },
        "files": [*_leftovers(plan), *(_file_json(plan, file) for file in plan.injection.files)],
        "engine": {
            "url": engine.url,
            "running": engine.running,
            "start_command": engine.command or None,
            "model": engine.model,
            "quality": "toy" if engine.toy else None,
            "pull_first": engine.needs_pull,
            "window_tokens": plan.window_tokens,
            "window_source": "engine" if engine.running else "predicted",
            "max_output_tokens": plan.max_output_tokens,
        },
        "render": {
            "preserve_thinking": plan.request.preserve_thinking,
            "template_switch": engine.thinking_switch,
            "edit_hints": plan.request.edit_hints,
        },
        "sealed": plan.request.sealed,
        "forecast": {
            "prompt_tokens": None,
            "ttft_cold_s": None,
            "ttft_warm_s": None,
            "verdict": "no data",
            **(plan.forecast or {}),
            "watchdog_s": plan.injection.watchdog_s,
            "watchdog_default_s": plan.injection.watchdog_default_s,
        },
        "warnings": [{"code": w.code, "text": plan.masked(w.text), "fix": w.fix} for w in plan.warnings],
    }


def _leftovers(plan: Plan) -> list[dict[str, Any]]:
    if not plan.leftovers:
        return []
    from ftagent.launch.leftovers import to_json as shown

    return [shown(undo) for undo in plan.leftovers]


def _file_json(plan: Plan, file: PlannedFile) -> dict[str, Any]:
    before = plan.files_before.get(str(file.path))
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        plan.masked(file.text).splitlines(keepends=True),
        fromfile=str(file.path) if before is not None else "/dev/null",
        tofile=str(file.path),
    )
    return {
        "path": str(file.path),
        "action": "create" if before is None else "replace",
        "why": file.why,
        "diff": "".join(lines),
        "sha_before": None,
    }
