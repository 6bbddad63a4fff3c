"""What the live source does when it is asked to, and what it fetches once: predictions and explanations."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

from ftagent.dashboard import memory_view
from ftagent.dashboard.http import Unreachable
from ftagent.dashboard.link import SLOW_S, Link
from ftagent.dashboard.model import Act, Explanation, Outcome, WhatIf
from ftagent.session.leases import lease_pid
from ftagent.session.records import SESSION_ID

_MEMORY_ACTS = ("moe_slots", "kv_tokens", "preset", "auto")
_ANCHOR_ACTS: Mapping[str, str] = {
    "pin": "It stays until it is let go of.",
    "unpin": "It goes when its memory is needed, as others do.",
    "drop": "It is gone.",
    "gc": "What no session wants is gone.",
}


class Acting:
    """Base of the live source. Nothing here raises: what failed is said."""

    link: Link

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """See Source."""
        if self.link.gathered.readonly:
            return Outcome(False, "This dashboard only reads (--readonly).")
        try:
            return await self._act(what, arguments)
        except Unreachable as error:
            return Outcome(False, f"The engine does not answer: {error}.")

    async def _act(self, what: Act, arguments: Mapping[str, Any]) -> Outcome:
        if what == "stop":
            return self._stop(str(arguments["session"]))
        if what in _ANCHOR_ACTS:
            return await self._post(f"/v1/engine/anchors/{what}", arguments, _ANCHOR_ACTS[what])
        if what == "apply":
            asked = {name: arguments[name] for name in _MEMORY_ACTS if arguments.get(name) is not None}
            return await self._post("/v1/engine/memory/apply", asked, "Memory is shared out anew.")
        if what in ("pause", "go_on"):
            words = "New requests wait, with heartbeats." if what == "pause" else "New requests are admitted again."
            done = await self._post("/v1/engine/pause", {"on": what == "pause"}, words)
            self.link.gathered.changed_life = True
            return done
        if what == "keep":
            return await self._post("/v1/engine/idle", {"after_s": None}, "The engine stays until it is stopped.")
        path = f"/v1/requests/{arguments['request']}/{what}"
        words = "Cancelled; most agents send the request again." if what == "cancel" else "A heartbeat is sent."
        return await self._post(path, {}, words)

    def _stop(self, session: str) -> Outcome:
        pid = lease_pid(self.link.context.paths, session) if SESSION_ID.fullmatch(session) else None
        if pid is None:
            return Outcome(False, "No process of this session is known.")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return Outcome(True, "The agent was asked to end.")

    async def _post(self, path: str, body: Mapping[str, Any], words: str) -> Outcome:
        if self.link.http is None:
            return Outcome(False, "No engine is running.")
        status, answer = await self.link.http.call("POST", path, dict(body), SLOW_S)
        if status >= 400:
            return Outcome(False, _refusal(status, answer))
        waits = answer.get("waits_for") if isinstance(answer, dict) else None
        said = answer.get("said") if isinstance(answer, dict) else None
        return Outcome(True, f"It waits for {waits}." if waits else str(said or words))

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """See Source."""
        if self.link.http is None:
            return WhatIf(label, asked, False, "No engine is running.")
        try:
            status, answer = await self.link.http.call("POST", "/v1/engine/memory/plan", asked, SLOW_S)
        except Unreachable as error:
            return WhatIf(label, asked, None, f"The engine does not answer: {error}.")
        if status >= 400 or not isinstance(answer, dict):
            return WhatIf(label, asked, False, _refusal(status, answer))
        return memory_view.what_if_of(label, asked, answer)

    async def explain(self, request: str) -> Explanation:
        """See Source."""
        turn = self.link.gathered.requests.turn(request)
        if turn is None:
            return Explanation(request, "This request is not remembered.")
        texts: Mapping[str, Any] = {}
        if turn.session and self.link.http is not None:
            with contextlib.suppress(Unreachable):
                answer = await self.link.http.get(f"/v1/sessions/{turn.session}/turns?texts=1") or {}
                found = [t for t in answer.get("turns") or () if t.get("id") == request]
                texts = (found[0].get("texts") if found else None) or {}
        return Explanation(request, turn.why, turn.broke_at, texts.get("old"), texts.get("new"))

    def offers(self) -> tuple[Act, ...]:
        """What this engine can be asked for."""
        cannot = self.link.gathered.cannot
        every: tuple[Act, ...] = (
            "cancel", "apply", "stop", "beat", "pause", "go_on", "keep", "pin", "unpin", "drop", "gc",
        )  # fmt: skip
        missing = {"apply": "memory", "pause": "pause", "go_on": "pause", **dict.fromkeys(_ANCHOR_ACTS, "anchors")}
        return tuple(act for act in every if missing.get(act) not in cannot)


def _refusal(status: int, answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message or f"The engine answered {status}.")
