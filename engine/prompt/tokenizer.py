"""Text to ids and back, with control tokens on or off."""

from __future__ import annotations

from collections.abc import Sequence


class TokenStream:
    """Incremental detokeniser of one answer."""

    def feed(self, ids: Sequence[int]) -> str:
        """The text that is complete after `ids`; never half a character. End-of-turn tokens give no text."""
        raise NotImplementedError

    def finish(self) -> str:
        """What is left; bytes that never became a character appear as U+FFFD."""
        raise NotImplementedError
