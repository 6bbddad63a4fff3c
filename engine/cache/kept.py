"""The checkpoints there are: by the id of their state, each with the nearest one before it on its line."""

from __future__ import annotations

from collections.abc import ValuesView

from engine.cache.claims import base
from engine.cache.node import Checkpoint, Node, usable


class Kept:
    """What is put here is registered with its node; what is taken is found nowhere any more."""

    def __init__(self) -> None:
        self._by_state: dict[int, Checkpoint] = {}

    def __len__(self) -> int:
        return len(self._by_state)

    def __contains__(self, state: int) -> bool:
        return state in self._by_state

    def values(self) -> ValuesView[Checkpoint]:
        return self._by_state.values()

    def holds(self, checkpoint: Checkpoint) -> bool:
        return self._by_state.get(checkpoint.state) is checkpoint

    def put(self, made: Checkpoint) -> None:
        made.node.checkpoints[made.position] = made
        self._by_state[made.state] = made
        made.parent = _before(made)
        for other in self._by_state.values():
            if other.parent is made.parent and other.position > made.position and _before(other) is made:
                other.parent = made

    def take(self, checkpoint: Checkpoint) -> None:
        del self._by_state[checkpoint.state]
        checkpoint.node.checkpoints.pop(checkpoint.position, None)
        for other in self._by_state.values():
            if other.parent is checkpoint:
                other.parent = checkpoint.parent

    def moved(self, old: int, new: int) -> None:
        """The state has another id now."""
        checkpoint = self._by_state[new] = self._by_state.pop(old)
        checkpoint.state = new

    def listing(self) -> list[dict[str, object]]:
        """For reports: position, kind, the edges it is kept for, the line that made it and those that want it, and
        the `id` of the nearest one before it (`parent`). Ids hold for one listing."""
        return [
            {
                "id": c.state,
                "parent": None if c.parent is None else c.parent.state,
                "line": base(c.session),
                "lines": sorted({base(line) for line, _, _ in c.claims}),
                "position": c.position,
                "kind": c.kind,
                "edge": ", ".join(sorted({edge for _, _, edge in c.claims if edge})),
                "tier": "ram",
                "bytes": c.bytes,
                "wanted": bool(c.claims),
                "pinned": c.pinned,
            }
            for c in self._by_state.values()
        ]

    def check(self) -> None:
        """Raises AssertionError when the bookkeeping is broken."""
        for state, checkpoint in self._by_state.items():
            assert checkpoint.state == state and checkpoint.node.checkpoints[checkpoint.position] is checkpoint
            assert checkpoint.parent is _before(checkpoint), "a checkpoint's parent is wrong"


def at(node: Node, position: int) -> Checkpoint | None:
    """What is kept after `position`, which lies in `node`."""
    return next((c for c in usable(node) if c.position == position), None)


def _before(checkpoint: Checkpoint) -> Checkpoint | None:
    """The nearest checkpoint before this one on its line."""
    node: Node | None = checkpoint.node
    limit = checkpoint.position
    while node is not None:
        earlier = [c for c in usable(node) if c.position < limit]
        if earlier:
            return max(earlier, key=lambda c: c.position)
        node = node.parent
    return None
