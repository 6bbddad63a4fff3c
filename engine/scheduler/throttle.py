"""A runner that is slower than it could be, so that waits of minutes can be tried on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Set

from engine.scheduler.step import Runner, Sampled, Slice

_LOOK_S = 0.02  # how often a step that is held back asks whom to drop
_LEAST_TOKENS = 16


def chunk_of(chunk_tokens: int, tokens_per_s: float) -> int:
    """Tokens of a chunk that is held back for about a second at most: who waits without computing looks like a process that is
    stuck, but for the messages at the end of each step."""
    return min(chunk_tokens, max(_LEAST_TOKENS, int(tokens_per_s)))


class Throttled:
    """`runner`, with at most `tokens_per_s` prompt tokens a second. Decoding keeps its pace.

    A step is held back before it is computed, and ends at once when everybody in it is gone.
    """

    def __init__(
        self,
        runner: Runner,
        tokens_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runner = runner
        self._tokens_per_s = tokens_per_s
        self._clock = clock
        self._sleep = sleep
        self.copy_page, self.copy_state, self.zero_state = runner.copy_page, runner.copy_state, runner.zero_state
        self.read_page, self.write_page = runner.read_page, runner.write_page
        self.read_state, self.write_state = runner.read_state, runner.write_state

    def step(self, slices: list[Slice], aborted: Callable[[], Set[int]]) -> list[Sampled]:
        """As `Runner.step`."""
        prefills = sum(len(s.tokens) for s in slices if s.sample is None or not s.sample.index)
        until = self._clock() + prefills / self._tokens_per_s
        while (left := until - self._clock()) > 0 and len(aborted()) < len(slices):
            self._sleep(min(left, _LOOK_S))
        return self._runner.step(slices, aborted)
