"""Which replica has a prompt's beginning already: what was sent to each, as hashes of token blocks."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

BLOCK_TOKENS = 64
MAX_BLOCKS = 1 << 16  # of one replica: four million tokens, more than such a server keeps


def blocks(tokens: Sequence[int]) -> list[bytes]:
    """One hash for each full block of `tokens`; each stands for all tokens up to the block's end."""
    found, chain = [], blake2b(digest_size=12)
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        chain.update(array("I", tokens[start : start + BLOCK_TOKENS]).tobytes())
        found.append(chain.digest())
    return found


class Seen:
    """The prefixes one replica was sent; those used longest ago are forgotten first. A guess: the replica may have dropped them."""

    def __init__(self, limit: int = MAX_BLOCKS) -> None:
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit

    def common(self, hashes: Sequence[bytes]) -> int:
        """How many of the leading blocks were sent before."""
        for count, one in enumerate(hashes):
            if one not in self._blocks:
                return count
        return len(hashes)

    def add(self, hashes: Sequence[bytes]) -> None:
        for one in reversed(hashes):  # the beginning is used last, so that it is forgotten last
            self._blocks[one] = None
            self._blocks.move_to_end(one)
        while len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()
