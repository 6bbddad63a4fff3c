"""The records of the prefix tree: one node per KV page, checkpoints hanging on the nodes that hold their position."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

TOKEN_BYTES = 4

Claim = tuple[str, str, str]  # line, kind, edge


def token_array(tokens: Iterable[int]) -> array[int]:
    """Token ids as 32-bit integers, whose bytes are the keys of the tree."""
    made = array("I", tokens)
    assert made.itemsize == TOKEN_BYTES
    return made


def common_tokens(a: bytes, b: bytes) -> int:
    """How many leading tokens two keys share."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n // TOKEN_BYTES
    differing = int.from_bytes(a[:n], "little") ^ int.from_bytes(b[:n], "little")
    return ((differing & -differing).bit_length() - 1) // (8 * TOKEN_BYTES)


@dataclass(slots=True, eq=False)
class Node:
    """One page of KV. `key` holds the page's tokens, fewer than a full page only in a leaf. `start` is its position.

    `side` says that only side or background requests used it. Positions [marked[0], marked[1]) were computed ahead for
    line `marked_for` and nobody has used them yet.
    """

    parent: Node | None
    key: bytes
    page: int
    start: int
    side: bool = False
    last_use: int = 0
    marked: tuple[int, int] = (0, 0)
    marked_for: str = ""
    children: dict[bytes, Node] = field(default_factory=dict)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)  # by position, start < position <= end

    @property
    def end(self) -> int:
        return self.start + len(self.key) // TOKEN_BYTES


@dataclass(slots=True, eq=False)
class Checkpoint:
    """A saved recurrent state. `exact` is false off the device's grid: equal mathematics, not equal bits.

    `claims` are the (line, kind, edge) that want it, `kind` is the class of the heaviest of them; `side` says that only side
    or background requests used it; `parent` is the nearest checkpoint before it on the same line. `sessions` are those that
    used it as their head, with the time they last did. `pinned` by a person, it stays; `passing`, it is soon replaced,
    and nothing may rest on it.
    """

    position: int
    node: Node
    state: int
    kind: str
    session: str
    side: bool
    bytes: int
    exact: bool = True
    last_use: int = 0
    parent: Checkpoint | None = None
    claims: set[Claim] = field(default_factory=set)
    sessions: dict[str, float] = field(default_factory=dict)
    pinned: bool = False
    passing: bool = False


def usable(node: Node) -> list[Checkpoint]:
    """The checkpoints of `node`, and those of its siblings as far as they share its tokens: the states are the same."""
    found = list(node.checkpoints.values())
    if node.parent is not None and len(node.parent.children) > 1:
        for key, sibling in node.parent.children.items():
            if sibling is not node and sibling.checkpoints:
                shared_end = node.start + common_tokens(key, node.key)
                found += [c for p, c in sibling.checkpoints.items() if p <= shared_end]
    return found
