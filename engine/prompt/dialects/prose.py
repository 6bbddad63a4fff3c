"""Running text of one block: outer whitespace dropped, and whether the reader is inside a quotation of code."""

from __future__ import annotations


class Prose:
    """Holds whitespace back until something follows it, so that the pieces never depend on how the text was cut."""

    def __init__(self) -> None:
        self._blank = ""
        self._started = False
        self._fenced = False
        self._line_start = ""  # the first characters of the current line, enough to see a fence
        self._ticks = 0  # back-ticks on the current line

    @property
    def quoted(self) -> bool:
        """True inside a fenced block or after an odd number of back-ticks on this line."""
        return self._fenced or self._ticks % 2 == 1

    def push(self, text: str) -> str:
        """Append; returns what is now certain to be part of the block."""
        self._watch(text)
        if not self._started:
            text = text.lstrip()
        if not text:
            return ""
        text = self._blank + text
        body = text.rstrip()
        self._blank = text[len(body) :]
        self._started = self._started or bool(body)
        return body

    def _watch(self, text: str) -> None:
        first, *others = text.split("\n")
        self._extend(first)
        for line in others:
            if self._line_start.startswith("```"):
                self._fenced = not self._fenced
            self._line_start, self._ticks = "", 0
            self._extend(line)

    def _extend(self, text: str) -> None:
        self._ticks += text.count("`")
        if len(self._line_start) < 3:
            self._line_start = (self._line_start + text).lstrip()[:3]
