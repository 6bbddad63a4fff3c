"""The texts of a bug report: versions, checks, settings, states and the engine's log; secrets, names and places are taken out."""

from __future__ import annotations

import json
import os
import platform
import pwd
from pathlib import Path
from typing import Any

from ftagent import __version__
from ftagent.atomic import read_json
from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.files.difference import masked_value
from ftagent.redaction import Redaction
from ftagent.session.records import all_sessions

LOG_LINES = 400


def gather(context: Context) -> dict[str, str]:
    """By name. A part that cannot be had holds the reason."""
    parts: dict[str, Any] = {
        "version.json": {"ft": __version__, "python": platform.python_version(), "platform": platform.platform()},
        "engine.json": _engine(context),
        "doctor.json": _doctor(context),
        "settings.json": _settings(context),
        "sessions.json": _sessions(context),
        "engine.log": _log(context),
    }
    hide = redaction(context)
    return {
        name: hide.text(part if isinstance(part, str) else json.dumps(part, indent=2, ensure_ascii=False))
        for name, part in parts.items()
    }


def redaction(context: Context) -> Redaction:
    """With the tokens that our own files hold, the person's names, and that of the machine."""
    secrets = [str((read_json(context.paths.engine_file) or {}).get("admin_token") or "")]
    names = [context.env.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME")]
    sessions = all_sessions(context.paths)
    for session in sessions:
        secrets.append(str(session.field("token") or ""))
        root = session.field("project", "root")
        names += [Path(root).name] if isinstance(root, str) else []
    return Redaction(context.paths, context.env, secrets, [*names, platform.node(), _user()])


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _engine(context: Context) -> object:
    from ftagent.local_engine.report import engine_report

    try:
        return engine_report(context)
    except FtError as error:
        return error.to_json()


def _doctor(context: Context) -> object:
    from ftagent.checks import run_checks

    try:
        return [check.json() for check in run_checks(context, None)]
    except FtError as error:
        return error.to_json()


def _settings(context: Context) -> object:
    try:
        settings = context.settings()
    except FtError as error:
        return error.to_json()
    return {
        name: {"value": masked_value((name,), value), "origin": settings.origins[name]}
        for name, value in settings.values.items()
    }


def _sessions(context: Context) -> object:
    """What kind, which model and how it ended; neither names nor folders of projects."""
    return [
        {
            "id": session.id,
            "status": session.status(context.paths),
            "agent": session.field("agent", "name"),
            "version": session.field("agent", "version"),
            "model": session.field("model", "id"),
            "runs": len(session.field("runs") or []),
            "last_exit": session.last_run.get("exit"),
        }
        for session in all_sessions(context.paths)[:50]
    ]


def _log(context: Context) -> str:
    from ftagent.local_engine.log import log_tail

    log = context.paths.engine_log
    return log_tail(log, LOG_LINES) if log.exists() else "no engine log\n"
