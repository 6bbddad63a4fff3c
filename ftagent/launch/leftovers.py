"""What an earlier version of ft wrote into an agent's own configuration where this one writes nothing: the agent as it is
installed now may refuse to start with it. Only keys that still hold what was written are taken out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftagent.paths import Paths

if TYPE_CHECKING:
    from ftagent.files.restoring import Undo
    from harnesses.contract import Harness


def find(harness: Harness, paths: Paths) -> list[Undo]:
    """Touches nothing. What `--integrate` wrote for an agent that has it stays: it was asked for. Raises Refused."""
    if hasattr(harness.adapter, "integration") or not paths.journal.exists():
        return []
    from ftagent.files.restoring import plan_undo

    return [undo for undo in plan_undo(paths, harness.name) if undo.plan.changes]


def text_after(path: Path, text: str, leftovers: Sequence[Undo]) -> str:
    """What a file of the user will say when they are out of it."""
    for undo in leftovers:
        if undo.plan.target == path.resolve():
            return (undo.plan.after or b"").decode("utf-8", "replace")
    return text


def take_out(leftovers: Sequence[Undo], paths: Paths) -> list[Path]:
    """The files that were changed. Raises Refused, Conflict."""
    from ftagent.files.restoring import perform

    for undo in leftovers:
        perform(undo, paths)
    return [undo.plan.path for undo in leftovers]


def to_json(undo: Undo) -> dict[str, Any]:
    """An entry of `files` of the plan."""
    from ftagent.files.integrate import show

    return {
        "path": str(undo.plan.target),
        "action": "edit" if undo.plan.after is not None else "delete",
        "why": "what an earlier version of ft wrote there is taken out; everything else stays",
        "diff": show(undo.plan),
        "sha_before": None,
    }
