"""The saved states as a tree: what continues whose prefix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftagent.dashboard.model import Anchor


def roots_of(listed: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> tuple[Anchor, ...]:
    """`listed` as `ft ctl anchors --json`. A state hangs below the nearest one before it, which the engine tells; where it does
    not, below the nearest one of its own line. `names` by session id."""
    by_id = {_id(one): one for one in listed}
    children: dict[str, list[str]] = {}
    tops = []
    last: dict[str, str] = {}  # line -> its deepest state so far
    for one in sorted(listed, key=lambda one: int(one.get("position") or 0)):
        line = str(one.get("line") or "")
        parent = one.get("parent") if "parent" in one else last.get(line)
        last[line] = _id(one)
        if parent is not None and str(parent) in by_id:
            children.setdefault(str(parent), []).append(_id(one))
        else:
            tops.append(_id(one))

    made: dict[str, Anchor] = {}
    for id_ in sorted(
        by_id, key=lambda id_: -int(by_id[id_].get("position") or 0)
    ):  # deepest first: children before parents
        below = sorted((made[child] for child in children.get(id_, ())), key=lambda anchor: anchor.position)
        made[id_] = _anchor(by_id[id_], names, tuple(below))
    return tuple(made[id_] for id_ in tops)


def walk(roots: Iterable[Anchor], depth: int = 0) -> Iterable[tuple[int, Anchor]]:
    """Every state with its depth, parents first."""
    for anchor in roots:
        yield depth, anchor
        yield from walk(anchor.children, depth + 1)


def _id(one: Mapping[str, Any]) -> str:
    return str(one["id"]) if "id" in one else f"{one.get('line')}@{one.get('position')}"


def _anchor(one: Mapping[str, Any], names: Mapping[str, str], children: tuple[Anchor, ...]) -> Anchor:
    lines = one.get("lines") or [one.get("line")]
    sessions = dict.fromkeys(names.get(session_of(str(line)), session_of(str(line))) for line in lines if line)
    return Anchor(
        id=_id(one),
        position=int(one.get("position") or 0),
        line=str(one.get("line") or ""),
        kind=one.get("kind"),
        edge=one.get("edge") or None,
        tier=one.get("tier"),
        bytes=one.get("bytes"),
        wanted=one.get("wanted"),
        pinned=one.get("pinned"),
        used_age_s=one.get("used_age_s"),
        sessions=tuple(sessions),
        children=children,
    )


def session_of(line: str) -> str:
    """A line is named after its session."""
    return line.partition("/")[0]
