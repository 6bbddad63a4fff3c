"""What changed between two JSON documents of which most stays: lists that grow at their end and lose their beginning."""

from __future__ import annotations

from typing import Any

_NOTHING: dict[str, Any] = {}


def patch(old: Any, new: Any) -> dict[str, Any]:
    """{}: nothing. `v`: the new value. `k`: patches by key. `d`, `s`, `a`: so many dropped in front, patches by index, added."""
    if old is new or (type(old) is type(new) and old == new):
        return _NOTHING
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return {"k": {key: found for key, value in new.items() if (found := patch(old[key], value))}}
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return _list_patch(old, new)
    return {"v": new}


def _list_patch(old: list[Any], new: list[Any]) -> dict[str, Any]:
    dropped = next((i for i, value in enumerate(old) if value == new[0]), 0)
    both = min(len(old) - dropped, len(new))
    if dropped and both < len(old) - dropped:
        return {"v": new}
    changed = {str(i): found for i in range(both) if (found := patch(old[dropped + i], new[i]))}
    if 2 * len(changed) > len(new):
        return {"v": new}
    cut = {} if dropped + both == len(old) else {"c": both}
    return {"d": dropped, "s": changed, "a": new[both:], **cut}


def applied(old: Any, change: dict[str, Any]) -> Any:
    """The new document; `old` stays. Raises KeyError, TypeError, IndexError or ValueError for a patch of something else."""
    if not change:
        return old
    if "v" in change:
        return change["v"]
    if "k" in change:
        return {**old, **{key: applied(old.get(key), inner) for key, inner in change["k"].items()}}
    kept = list(old[int(change["d"]) :])[: change.get("c")]
    for index, inner in change["s"].items():
        kept[int(index)] = applied(kept[int(index)], inner)
    return [*kept, *change["a"]]
