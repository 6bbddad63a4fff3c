"""What happened to the engine itself: the states it went through and how its workers ended, and what it computed in all. Told by /v1/engine/life."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

KEPT = 32
_COUNTED = ("prompt_tokens", "cached_tokens", "output_tokens", "anticipated_tokens", "wasted_tokens")


class Life:
    """Listens to what is published; keeps the newest `KEPT` of a kind."""

    def __init__(self) -> None:
        self._phases: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._crashes: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._totals = dict.fromkeys(("requests", *_COUNTED), 0)

    def note(self, kind: str, event: Mapping[str, Any]) -> None:
        """`event` was published now, at event["time"]."""
        if kind == "worker_gone":
            told = {name: event[name] for name in ("code", "message", "restart_in_s")}
            self._crashes.append({"at": event["time"], **told})
        elif kind == "request" and event["end"] is not None:
            self._totals["requests"] += 1
            for name in _COUNTED:
                self._totals[name] += event[name] or 0
        elif kind == "state":
            state, phase = event["state"], event["phase"]
            last = self._phases[-1] if self._phases else None
            if last is None or (last["state"], last["phase"]) != (state, phase):
                self._phases.append({"state": state, "phase": phase, "at": event["time"]})
                if state == "crashed":
                    told = {"code": event["code"], "message": event["message"], "restart_in_s": None}
                    self._crashes.append({"at": event["time"], **told})

    def json(self) -> dict[str, Any]:
        """`phases` and `crashes` oldest first; `restart_in_s` null: it was not started again. `totals` are of requests that ended."""
        return {"phases": list(self._phases), "crashes": list(self._crashes), "totals": dict(self._totals)}
