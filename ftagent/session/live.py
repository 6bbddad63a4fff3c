"""What a session is doing now: from its lease, from its record, and from the running engine. Derived, never stored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ftagent.errors import FtError
from ftagent.local_engine.running import find_engine
from ftagent.paths import Paths
from ftagent.session.leases import lease_is_held
from ftagent.session.links import is_lost
from ftagent.session.records import Session

IDLE_S = 600.0
STATUSES = (
    "running", "thinking", "prefill", "waiting", "idle", "detached", "prepared", "ended", "lost", "crashed", "unreadable",
)  # fmt: skip


class Live:
    """The engine's facts of its sessions, asked for once and only when a lease is held or `engine` is asked."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._facts: dict[str, Mapping[str, Any]] | None = None

    def facts(self, session_id: str) -> Mapping[str, Any]:
        if self._facts is None:
            self._facts = {}
            try:
                engine = find_engine(self._paths)
                listed = engine.client.get("/v1/sessions", timeout_s=2.0) if engine else {}
                for one in listed.get("sessions") or []:
                    self._facts[one["id"]] = one
            except (FtError, AttributeError, KeyError, TypeError):
                pass  # a listing without an engine is still a listing
        return self._facts.get(session_id, {})

    def status(self, session: Session) -> str:
        if session.record is None:
            return "unreadable"
        if lease_is_held(self._paths, session.id):
            return _alive(session, self.facts(session.id))
        run = session.last_run
        if not run:
            return "prepared"
        if run.get("end") is None and not run.get("exec"):
            return "crashed"
        return "lost" if is_lost(session.record) else "ended"


def _alive(session: Session, facts: Mapping[str, Any]) -> str:
    doing = facts.get("doing")
    if facts.get("running"):
        return str(doing) if doing in ("prefill", "thinking") else "running"
    last = facts.get("last_request")
    if isinstance(last, int | float):
        if time.time() - last > IDLE_S:
            return "idle"
        if facts.get("last_stop") in ("stop", "length"):
            return "waiting"
    return "detached" if session.last_run.get("tmux") else "running"
