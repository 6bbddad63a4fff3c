"""Why a turn was not all cached, in one line for people; the facts are the engine's request records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ftagent.output import table

_COUNTS = ("prompt", "cached", "replayed", "new", "anticipated", "wasted")


def explain_text(session: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> str:
    """A table of turns, the reason in the last column, the texts around a break below it where the records have them."""
    name = session.get("name") or session.get("harness")
    head = f"session {session.get('id')}" + (f" ({name})" if name else "")
    if not turns:
        return f"{head}: no requests yet"
    rows = [["TURN", *(count.upper() for count in _COUNTS), "WHY"]]
    seen: set[Any] = set()
    texts: list[str] = []
    for number, turn in enumerate(turns, 1):
        counts = [_count(turn.get(f"{count}_tokens")) for count in _COUNTS]
        rows.append([str(number), *counts, why(turn, turn.get("line") not in seen)])
        seen.add(turn.get("line"))
        texts += _texts(number, turn)
    return "\n".join([head, table(rows), *texts, *_predictions(session)])


def why(turn: Mapping[str, Any], first: bool) -> str:
    """One sentence on one request record; `first` of its line in this listing."""
    cold = f"; cold because {turn['cold']}" if turn.get("cold") else ""
    kind = f"{turn['kind']} request, " if turn.get("kind") and turn["kind"] != "turn" else ""
    broke = turn.get("broke_at")
    if broke:
        return kind + _break(broke) + cold
    if turn.get("resent"):
        return kind + "the same prompt again" + cold
    return kind + ("first of its line" if first else "continues") + cold


def anchors_text(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """A table of the saved states, by line and position."""
    if not checkpoints:
        return "no checkpoints"
    rows = [["LINE", "POSITION", "KIND", "EDGE", "TIER"]]
    for one in sorted(checkpoints, key=lambda c: (str(c.get("line") or ""), int(c.get("position") or 0))):
        rows.append(
            [str(one.get(k) or "-") for k in ("line",)]
            + [_count(one.get("position"))]
            + [str(one.get(k) or "-") for k in ("kind", "edge", "tier")]
        )
    return table(rows)


def _break(broke: Mapping[str, Any]) -> str:
    kind = broke.get("kind")
    if kind == "reply":
        what = "the last reply came back changed"
    elif kind == "tools":
        what = "the tools changed"
    else:
        what = f"message {broke.get('message')} block {broke.get('block')} ({kind}) changed"
    edge = f", edge {broke['edge']}" if broke.get("edge") else ""
    rule = broke.get("rule")
    if broke.get("predicted"):
        said = f", predicted by rule {rule}" if rule else ", predicted from the template"
    elif rule:
        said = f", not as rule {rule} predicted"
    else:
        said = ", not predicted"
    return f"{what} at token {_count(broke.get('token'))}{edge}{said}"


def _texts(number: int, turn: Mapping[str, Any]) -> list[str]:
    texts = turn.get("texts")
    if not texts:
        return []
    return [f"turn {number} was: {texts.get('old')!r}", f"turn {number} is:  {texts.get('new')!r}"]


def _predictions(session: Mapping[str, Any]) -> list[str]:
    lines = []
    for rule, score in (session.get("predictions") or {}).items():
        total = score["hits"] + score["misses"]
        line = f"rule {rule}: {score['hits']} of {total} predictions came true"
        if score.get("early"):
            line += f", {score['early']} were too early"
        differs = score.get("differs")
        if differs:
            line += f"; the newest miss differs at message {differs.get('message')} ({differs.get('kind')})"
        lines.append(line)
    return lines


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"
