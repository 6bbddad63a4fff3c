"""Whether computing one token's experts has become much slower than it was when the backend was chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

FACTOR = 2.0  # slower than this is reported
WEIGHT = 1 / 1024  # of a new layer in the running time
SETTLING = 1024  # layers that set what is normal, where nothing was measured before


class Watch:
    """Fed with seconds per layer of one row. `normal_s` is what it should be; 0 until it is known."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None  # called when `slow` has changed
        self.normal_s = self.now_s = 0.0
        self.slow = False
        self._seen = 0

    def expect(self, seconds: float) -> None:
        """What one layer took when the backend was chosen."""
        self.normal_s = self.now_s = seconds

    def saw(self, seconds: float) -> None:
        """One layer of one row took `seconds`. Logs when the running time crosses the factor, either way."""
        self._seen += 1
        if not self.normal_s:
            self.now_s += (seconds - self.now_s) / self._seen
        else:  # one late wake-up in a layer of microseconds is no trend
            self.now_s += WEIGHT * (min(seconds, 16 * self.normal_s) - self.now_s)
        if not self.normal_s:
            if self._seen >= SETTLING:
                self.normal_s = self.now_s
            return
        slow = self.now_s > FACTOR * self.normal_s * (0.75 if self.slow else 1.0)
        if slow != self.slow:
            self.slow = slow
            words = "now take %.1f times what they did at the start" if slow else "are back at %.1f times"
            log.warning("experts of one token " + words, self.now_s / self.normal_s)
            self.changed()

    def report(self) -> dict[str, Any]:
        """Plain data for statistics."""
        return {
            "normal_us": round(self.normal_s * 1e6, 1),
            "now_us": round(self.now_s * 1e6, 1),
            "slow": self.slow,
        }
