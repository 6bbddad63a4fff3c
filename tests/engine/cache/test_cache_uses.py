"""What lies on the latest prompt of a live line."""

from engine.cache.lines import LIVE_SESSION_S, REMEMBERED
from engine.cache.node import Node
from engine.cache.uses import Uses


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def branch(start: Node, key: bytes, length: int) -> list[Node]:
    nodes = [start]
    for n in range(length):
        nodes.append(Node(nodes[-1], key, n, nodes[-1].start + 1, False))
    return nodes[1:]


def test_what_a_line_has_left_is_wanted_no_more_and_what_lines_share_is_while_one_does() -> None:
    uses, root = Uses(Clock()), Node(None, b"", -1, 0)
    head = branch(root, b"h", 3)
    old, new, other = branch(head[-1], b"o", 2), branch(head[-1], b"n", 2), branch(head[-1], b"x", 1)
    uses.came("a", old[-1])
    assert uses.wanted() == {id(node) for node in (root, *head, *old)}
    uses.came("b", other[-1])
    uses.came("a", new[-1])
    assert uses.wanted() == {id(node) for node in (root, *head, *new, *other)}


def test_a_line_that_nobody_asks_for_an_hour_and_all_but_the_latest_lines_are_forgotten() -> None:
    uses, root = Uses(clock := Clock()), Node(None, b"", -1, 0)
    ends = branch(root, b"n", REMEMBERED + 1)
    for number, end in enumerate(reversed(ends)):
        uses.came(str(number), end)
    assert id(ends[-2]) in uses.wanted() and id(ends[-1]) not in uses.wanted()
    clock.now = LIVE_SESSION_S
    uses.came("now", ends[0])
    assert uses.wanted() == {id(root), id(ends[0])}
