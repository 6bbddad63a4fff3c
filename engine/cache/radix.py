"""Prefix tree over token ids whose nodes are KV pages. Matching is token by token; sharing is page by page.

Every node holds one reference to its page; running requests hold their own. A node whose page somebody else holds is
locked. Two siblings never have keys of which one is a prefix of the other, so a position of a line has one node.
"""

from __future__ import annotations

import heapq
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.cache.marks import Marks
from engine.cache.node import TOKEN_BYTES, Checkpoint, Node, common_tokens, usable
from engine.cache.uses import Uses
from engine.memory.pools import PagePool

UNRESUMABLE, IDLE, USED, KEPT = range(4)  # in this order pages are evicted


@dataclass(frozen=True, slots=True)
class Match:
    """What is cached of a prompt.

    `tokens` is the longest common prefix, at most the prompt without its last token (that one is computed for its
    logits). A request starts at `resume_at`; `pages` cover [0, resume_at) and the last of them must be copied when
    resume_at is inside it. `checkpoint` is the state at resume_at, None for pure attention or when resume_at is 0.
    `line` are all checkpoints on the common prefix, shallow to deep. `forks` is true when the tree goes on, differently.
    """

    pages: list[int]
    tokens: int
    checkpoint: Checkpoint | None
    resume_at: int
    line: tuple[Checkpoint, ...] = ()
    forks: bool = False


class RadixCache:
    """Single-threaded. `hybrid`: resuming needs a checkpoint. `stranded` is told each checkpoint whose last page is evicted;
    `keep` names checkpoints whose pages are evicted last. `marks` are those of work done ahead."""

    def __init__(
        self,
        pool: PagePool,
        page_tokens: int,
        hybrid: bool = False,
        stranded: Callable[[Checkpoint], None] = lambda checkpoint: None,
        keep: Callable[[Checkpoint], bool] = lambda checkpoint: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.page_tokens = page_tokens
        self.hybrid = hybrid
        self.pages = 0
        self.evicted_pages = 0
        self._pool = pool
        self._stranded = stranded
        self._keep = keep
        self.marks = Marks()
        self._root = Node(None, b"", -1, 0)
        self.uses = Uses(clock)

    def match(self, tokens: array[int]) -> Match:
        """The longest cached prefix of `tokens`. Marks it as just used; takes no references."""
        self.uses.now += 1
        data, page_bytes = tokens.tobytes(), self.page_tokens * TOKEN_BYTES
        limit = max(0, len(tokens) - 1)
        path: list[Node] = []
        line: list[Checkpoint] = []
        node, common = self._root, 0
        while child := node.children.get(data[common * TOKEN_BYTES : common * TOKEN_BYTES + page_bytes]):
            child.last_use = self.uses.now
            path.append(child)
            line += usable(child)
            node, common = child, child.end
            if len(child.key) < page_bytes:
                break
        last, forks = self._best_partial(node, data[common * TOKEN_BYTES :], line)
        if last is not None:
            path.append(last)
            common += common_tokens(last.key, data[common * TOKEN_BYTES :])
        common = min(common, limit)
        line = sorted((c for c in line if c.position <= common), key=lambda c: c.position)
        if not self.hybrid:
            return Match(self._cover(path, common), common, None, common, forks=forks)
        if not line:
            return Match([], common, None, 0, forks=forks)
        checkpoint = line[-1]
        pages = self._cover([*path[: checkpoint.node.start // self.page_tokens], checkpoint.node], checkpoint.position)
        return Match(pages, common, checkpoint, checkpoint.position, tuple(line), forks)

    def insert(self, tokens: array[int], pages: list[int], side: bool = False) -> Node:
        """Make the KV of `tokens`, lying in `pages`, findable. The caller goes on to own its references.

        Where the tree already has a full page of these tokens, `pages` is changed to share it. `side` is false when a main
        request uses them. Returns the node that holds the last token.
        """
        self.uses.now += 1
        data, page_bytes = tokens.tobytes(), self.page_tokens * TOKEN_BYTES
        node = self._root
        for i, page in enumerate(pages):
            key = data[i * page_bytes : (i + 1) * page_bytes]
            if not key:
                return node
            child = node.children.get(key) or _related(node, key)
            if child is None:
                child = Node(node, key, page, i * self.page_tokens, side)
                node.children[key] = child
                self._pool.retain(page)
                self.pages += 1
            elif len(child.key) < len(key):
                self._grow(child, key, page)
            child.last_use = self.uses.now
            child.side = child.side and side
            if len(key) < page_bytes:
                return child
            if child.page != page:
                self._pool.retain(child.page)
                self._pool.release(page)
                pages[i] = child.page
            node = child
        return node

    def locate(self, tokens: array[int], position: int) -> Node:
        """The node that holds `position` (> 0) along `tokens`. Raises LookupError when it is not cached."""
        node = deque([self._root, *self.path(tokens, position)], maxlen=1).pop()
        if node.end < position:
            raise LookupError(f"position {position} is not cached")
        return node

    def path(self, tokens: array[int], position: int) -> Iterator[Node]:
        """The nodes along `tokens` that hold positions up to `position`, as far as they are cached."""
        data, page_bytes = tokens.tobytes(), self.page_tokens * TOKEN_BYTES
        node = self._root
        while node.end < position:
            key = data[node.end * TOKEN_BYTES : node.end * TOKEN_BYTES + page_bytes]
            child = node.children.get(key) or _covering(node, key, position)
            if child is None:
                return
            yield child
            node = child

    def evict(self, pages: int, most: int = KEPT) -> int:
        """Free up to `pages` pages: leaves that no request holds, by rank, within a rank the least recently used; none
        above rank `most`. Returns how many were freed."""
        wanted = self.uses.wanted()
        heap = [(*self._rank(node, wanted), id(node), node) for node in self.nodes() if self._evictable(node)]
        heapq.heapify(heap)
        freed = 0
        while heap and freed < pages and heap[0][0] <= most:
            node = heapq.heappop(heap)[-1]
            parent = node.parent
            assert parent is not None
            self._remove(node)
            freed += 1
            if parent is not self._root and self._evictable(parent):
                heapq.heappush(heap, (*self._rank(parent, wanted), id(parent), parent))
        self.evicted_pages += freed
        return freed

    def idle_pages(self) -> int:
        """How many pages `evict` could free at rank IDLE."""
        wanted = self.uses.wanted()
        kept: set[int] = set()
        for node in reversed(list(self.nodes())):
            if id(node) in kept or self._pool.refs(node.page) > 1 or self._rank(node, wanted)[0] > IDLE:
                kept |= {id(node), id(node.parent)}
        return self.pages - len(kept - {id(self._root)})

    def moved(self, pages: Mapping[int, int]) -> None:
        """The KV of these pages lies in others now: old page -> new one. References are the pool's business."""
        for node in self.nodes():
            node.page = pages.get(node.page, node.page)

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents before children."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def check(self) -> None:
        """Raises AssertionError when the tree, its pages or its checkpoints disagree."""
        count = 0
        for node in self.nodes():
            count += 1
            assert node.parent is not None and node.parent.children[node.key] is node
            assert node.start == node.parent.end and node.start % self.page_tokens == 0
            assert 0 < len(node.key) <= self.page_tokens * TOKEN_BYTES
            assert self._pool.refs(node.page) > 0, "a node's page is free"
            assert not node.children or len(node.key) == self.page_tokens * TOKEN_BYTES, "a partial page has children"
            keys = sorted(node.parent.children)
            assert not any(b.startswith(a) for a, b in pairwise(keys)), "siblings overlap"
            assert all(c.node is node and node.start < p <= node.end for p, c in node.checkpoints.items())
        assert count == self.pages
        self.marks.check(self.nodes())

    def _best_partial(self, node: Node, rest: bytes, line: list[Checkpoint]) -> tuple[Node | None, bool]:
        """(the child that shares most with `rest`, whether the tree goes on differently); adds usable checkpoints."""
        best, shared = None, 0
        for key, child in node.children.items():
            common = common_tokens(key, rest)
            if not common:
                continue
            line += [c for p, c in child.checkpoints.items() if p <= node.end + common]
            child.last_use = self.uses.now
            if common > shared:
                best, shared = child, common
        goes_on = bool(node.children) if best is None else len(best.key) > shared * TOKEN_BYTES
        return best, goes_on and len(rest) > shared * TOKEN_BYTES

    def _cover(self, path: list[Node], position: int) -> list[int]:
        return [node.page for node in path[: -(-position // self.page_tokens)]]

    def _grow(self, node: Node, key: bytes, page: int) -> None:
        assert node.parent is not None
        del node.parent.children[node.key]
        node.key = key
        node.parent.children[key] = node
        if node.page != page:
            self._pool.retain(page)
            self._pool.release(node.page)
            node.page = page

    def _evictable(self, node: Node) -> bool:
        return not node.children and self._pool.refs(node.page) == 1

    def _rank(self, node: Node, wanted: Collection[int]) -> tuple[int, int]:
        if any(self._keep(c) for c in node.checkpoints.values()):
            return KEPT, node.last_use
        if self.hybrid and not node.checkpoints:
            # A leaf that nobody can resume from; an inner node is asked when its children are gone.
            return UNRESUMABLE, node.last_use
        return (IDLE if node.side or id(node) not in wanted else USED), node.last_use

    def _remove(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.key]
        self._pool.release(node.page)
        self.pages -= 1
        self.marks.evicted(node)
        for position, checkpoint in list(node.checkpoints.items()):
            heir = _covering(node.parent, node.key, position)
            if heir is None:
                self._stranded(checkpoint)
            else:
                checkpoint.node = heir
                heir.checkpoints[position] = checkpoint
        node.checkpoints.clear()


def _related(node: Node, key: bytes) -> Node | None:
    """The child whose key begins with `key` or is its beginning."""
    for other, child in node.children.items():
        if other.startswith(key) or key.startswith(other):
            return child
    return None


def _covering(node: Node, key: bytes, position: int) -> Node | None:
    """A child that has `key`'s tokens up to `position`."""
    wanted = key[: (position - node.end) * TOKEN_BYTES]
    for other, child in node.children.items():
        if other.startswith(wanted):
            return child
    return None
