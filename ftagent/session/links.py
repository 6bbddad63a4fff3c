"""The agent's own ids of a session's conversations: where each came from, and which one is continued."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftagent.errors import FtError, NotHere, UsageError

STRENGTH = ("scanned", "observed", "assigned")
CONFIDENCE = {"assigned": "certain", "observed": "certain", "scanned": "likely"}
_ROLLOUTS = {  # where agents that say no id on the wire write one, and the variable that moves the place
    "codex": ("CODEX_HOME", ".codex", "sessions/*/*/*/rollout-*.jsonl"),
    "pi": ("PI_CODING_AGENT_DIR", ".pi/agent", "sessions/*/*.jsonl"),
}
_SLACK_S = 2.0
_FIRST_LINE_BYTES = 1 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")  # it becomes an argument of the agent


def stamp(seconds: float) -> str:
    """RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def link(id_: str, source: str, first: str, last: str | None = None, parent: str | None = None) -> dict[str, Any]:
    return {
        "id": id_,
        "source": source,
        "confidence": CONFIDENCE[source],
        "parent": parent,
        "first_seen": first,
        "last_seen": last or first,
        "ended_by": None,
    }


def observed(facts: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """From the engine's facts of a session; anything that is no id is passed over."""
    found = facts.get("harness_ids") if facts else None
    return [
        link(one["id"], "observed", stamp(one["first_seen"]), stamp(one["last_seen"]), one.get("parent"))
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict) and isinstance(one.get("id"), str) and _ID.fullmatch(one["id"])
    ]


def merge(known: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """In the order of their last use. Of one id the strongest source stays, the first and the last time."""
    merged: dict[str, dict[str, Any]] = {}
    for one in (*known, *found):
        before = merged.get(one["id"])
        if before is None:
            merged[one["id"]] = dict(one)
            continue
        if STRENGTH.index(one["source"]) > STRENGTH.index(before["source"]):
            before.update(source=one["source"], confidence=one.get("confidence"))
        before["last_seen"] = max(str(before.get("last_seen") or ""), str(one.get("last_seen") or ""))
        before["parent"] = before.get("parent") and one.get("parent")
    ordered = sorted(merged.values(), key=lambda one: str(one.get("last_seen") or ""))
    own = [one for one in ordered if not one.get("parent")]
    for one in own[:-1]:
        if one.get("confidence") != "ambiguous":
            one["ended_by"] = one.get("ended_by") if one.get("ended_by") not in (None, "exit") else "clear"
    return ordered


def continued(record: Mapping[str, Any], chosen: str | None = None) -> str:
    """The id that a resume goes on with. Raises NotHere without one, UsageError where two are as likely: nothing is guessed."""
    links = [one for one in record.get("harness") or [] if isinstance(one, dict) and not one.get("parent")]
    name = record.get("name") or record.get("id")
    if chosen is not None:
        near = [one["id"] for one in links if one["id"].startswith(chosen)]
        if len(near) != 1:
            raise NotHere(f"Session {name} has no conversation {chosen!r}.", f"ft sessions show {name}")
        return str(near[0])
    if not links:
        raise NotHere(
            f"What conversation the agent held in session {name} is not known.",
            "Start a new session, or give the agent's own arguments behind --.",
            code="FT-E0303 no-conversation",
        )
    newest = links[-1]
    if newest.get("confidence") == "ambiguous":
        ids = ", ".join(one["id"] for one in links if one.get("confidence") == "ambiguous")
        raise UsageError(
            f"Session {name} may have held any of these conversations: {ids}.", f"ft resume {name} --conversation ID"
        )
    return str(newest["id"])


def scan(
    agent: str,
    env: Mapping[str, str],
    home: Path,
    cwd: Path,
    start: datetime,
    end: datetime,
    taken: Collection[str] = (),
    state_dir: Path | None = None,
) -> list[dict[str, Any]]:
    """Conversations that the agent began in `cwd` between the two times, from the first lines of its files, which are in the
    user's folder or in one of the session's, `state_dir`.

    Those of other sessions are `taken`. More than one is `ambiguous`. Agents that say their ids on the wire need none of this, and give [].
    """
    if agent not in _ROLLOUTS:
        return []
    variable, folder, pattern = _ROLLOUTS[agent]
    given = env.get(variable)
    roots = [Path(given).expanduser() if given else home / folder]
    if state_dir is not None:
        roots.append(state_dir / agent)
    found = [one for root in roots for path in root.glob(pattern) if (one := _first_line(path, cwd, start, end))]
    found = [one for one in found if one["id"] not in taken]
    if len(found) > 1:
        found = [{**one, "confidence": "ambiguous"} for one in found]
    return sorted(found, key=lambda one: str(one["first_seen"]))


def _first_line(path: Path, cwd: Path, start: datetime, end: datetime) -> dict[str, Any] | None:
    try:
        if path.stat().st_mtime < start.timestamp() - _SLACK_S:
            return None
        with path.open("rb") as file:
            document = json.loads(file.readline(_FIRST_LINE_BYTES))
        fields = document.get("payload", document)
        begun = datetime.fromisoformat(str(fields.get("timestamp") or document["timestamp"]).replace("Z", "+00:00"))
        inside = start.timestamp() - _SLACK_S <= begun.timestamp() <= end.timestamp() + _SLACK_S
        if not inside or Path(fields["cwd"]) != cwd or not _ID.fullmatch(fields["id"]):
            return None
        if fields.get("model_provider") not in (None, "ft"):
            return None
        return {
            **link(fields["id"], "scanned", stamp(begun.timestamp()), stamp(path.stat().st_mtime)),
            "file": str(path),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def transcript_of(record: Mapping[str, Any], id_: str) -> Path | None:
    """Where that conversation was when the record was written."""
    for one in record.get("harness") or []:
        if isinstance(one, dict) and one.get("id") == id_ and one.get("file"):
            return Path(one["file"])
    return None


def is_lost(record: Mapping[str, Any]) -> bool:
    """Whether the conversation that would be continued is known to be gone."""
    links: Sequence[Mapping[str, Any]] = record.get("harness") or []
    try:
        file = transcript_of(record, continued(record))
    except (FtError, KeyError, TypeError):
        return False
    return bool(links) and file is not None and not file.exists()
