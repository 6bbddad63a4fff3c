"""What was computed ahead: marked on the nodes it lies in, until a real request uses it or it turns out to be waste."""

from __future__ import annotations

from collections.abc import Iterable

from engine.cache.node import Node


class Marks:
    """Counts tokens: `computed` = `used` + `wasted` + `pending` at any time."""

    def __init__(self) -> None:
        self.computed = 0
        self.used = 0
        self.wasted = 0
        self._of_line: dict[str, set[Node]] = {}

    @property
    def pending(self) -> int:
        """Computed ahead, kept, and not used yet."""
        return self.computed - self.used - self.wasted

    def add(self, path: Iterable[Node], start: int, end: int, line: str) -> None:
        """Background work for `line` computed positions [start, end) along `path`, which nobody had computed before."""
        for node in path:
            first, last = max(start, node.start), min(end, node.end)
            if first >= last:
                continue
            a, b = node.marked
            if a < b and not (first <= b and a <= last):  # what lies between is not ours: only one run is kept
                self._take_off(node, b)
                self.wasted += b - a
                a = b = first
            elif a < b:
                first, last = min(first, a), max(last, b)
            self.computed += (last - first) - (b - a)
            if node.marked_for != line:
                self._of_line.get(node.marked_for, set()).discard(node)
            node.marked, node.marked_for = (first, last), line
            self._of_line.setdefault(line, set()).add(node)

    def use(self, path: Iterable[Node], end: int) -> int:
        """A real request starts at `end` along `path`. Returns how many tokens before that were computed ahead."""
        found = sum(self._take_off(node, end) for node in path)
        self.used += found
        return found

    def settle(self, line: str) -> int:
        """The next real request of `line` has come and used what it could: the rest was for nothing. Returns its tokens."""
        lost = sum(self._take_off(node, node.end) for node in list(self._of_line.get(line, ())))
        self._of_line.pop(line, None)
        self.wasted += lost
        return lost

    def evicted(self, node: Node) -> None:
        """The node leaves the tree."""
        self.wasted += self._take_off(node, node.end)

    def check(self, nodes: Iterable[Node]) -> None:
        """Raises AssertionError when the counts disagree with what is marked."""
        total = 0
        for node in nodes:
            first, last = node.marked
            assert first == last or node.start <= first < last <= node.end
            assert first == last or node in self._of_line[node.marked_for]
            total += last - first
        assert total == self.pending, f"{total} tokens are marked, {self.pending} are pending"

    def _take_off(self, node: Node, end: int) -> int:
        first, last = node.marked
        taken = max(0, min(last, end) - first)
        node.marked = (first + taken, last) if first + taken < last else (0, 0)
        if not node.marked[1]:
            self._of_line.get(node.marked_for, set()).discard(node)
        return taken
