"""What can be typed at a place, read from folders and kept for the next call; starts nothing, asks no engine."""

from __future__ import annotations

import contextlib

from ftagent.agents import loader
from ftagent.atomic import read_json, write_json
from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.paths import ensure
from ftagent.settings.config import OPTIONS

KINDS = ("sessions", "models", "agents", "settings", "schemas")


def values(kind: str, context: Context) -> list[tuple[str, str]]:
    """Pairs of a word and what it is."""
    if kind == "sessions":
        return _sessions(context)
    if kind == "models":
        from ftagent.local_engine.models import installed

        return [(name, "") for name in installed(context.models_dir(context.settings()))]
    if kind == "agents":
        return [(name, "") for name in loader.names()]
    if kind == "settings":
        return [(option.name, option.help) for option in OPTIONS]
    from ftagent.schemas import names

    return [(name, "") for name in names()]


def _sessions(context: Context) -> list[tuple[str, str]]:
    """Kept by the time of the folder's last change: a session that only ended is listed all the same."""
    from ftagent.session.records import all_sessions

    file = context.paths.cache / "completion.json"
    try:
        stamp = context.paths.sessions.stat().st_mtime_ns
    except OSError:
        return []
    kept = read_json(file) or {}
    if kept.get("stamp") == stamp and isinstance(kept.get("sessions"), list):
        return [(str(name), str(about)) for name, about in kept["sessions"]]
    found = [
        (
            str(session.field("name") or session.id),
            f"{session.field('agent', 'name')} {session.field('project', 'root')}",
        )
        for session in all_sessions(context.paths)
    ]
    with contextlib.suppress(OSError, FtError):
        ensure(context.paths.cache)
        write_json(file, {"stamp": stamp, "sessions": [list(pair) for pair in found]})
    return found
