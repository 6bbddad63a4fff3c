"""The texts of a bug report: versions, checks, settings, states and the engine's log; names of folders and secrets masked."""

from __future__ import annotations

import json
import platform
import re
from typing import Any

from ftagent import __version__
from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.files.difference import MASK, is_secret, masked_value
from ftagent.launch.environment import mask_urls

LOG_LINES = 400
_TOKEN = re.compile(r"\bft_(sess|admin)_[A-Za-z0-9_-]+|\b(sk|ghp|hf|xox[bp])[-_][A-Za-z0-9_-]{8,}|\bBearer\s+\S+")
_ASSIGNED = re.compile(r"""(["']?)([A-Za-z_][\w-]*)\1(\s*[=:]\s*)(["']?)([^\s"',}]+)\4""")


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
    return {
        name: redacted(part if isinstance(part, str) else json.dumps(part, indent=2, ensure_ascii=False), context)
        for name, part in parts.items()
    }


def redacted(text: str, context: Context) -> str:
    """Without tokens, passwords in URLs, values of variables that look secret, and the user's folder."""
    for name, value in context.env.items():
        if is_secret(name) and len(value) > 5:
            text = text.replace(value, MASK)
    text = mask_urls(_TOKEN.sub(MASK, text))
    text = _ASSIGNED.sub(lambda m: f"{m[1]}{m[2]}{m[1]}{m[3]}{m[4]}{MASK}{m[4]}" if _hides(m[2], m[5]) else m[0], text)
    home = str(context.paths.home)
    return text.replace(home, "~") if home != "/" else text


def _hides(name: str, value: str) -> bool:
    """Counts such as `max_tokens: 4096` are no secrets."""
    return is_secret(name) and not re.fullmatch(r"[\d.,]+|null|none|true|false", value, re.IGNORECASE)


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
    from ftagent.session.records import all_sessions

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
