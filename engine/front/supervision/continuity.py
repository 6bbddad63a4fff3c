"""What one engine keeps, or at least tells, when its worker is another: the backend that was found, and the window that agents
were told."""

from __future__ import annotations


class Continuity:
    """`window` in tokens as it was told last, `backend` of the first worker that served; 0 and empty until then."""

    def __init__(self) -> None:
        self.window = 0
        self.backend = ""

    def arguments(self) -> list[str]:
        """For the next worker, so that it computes as the first one did."""
        return ["--backend-found", self.backend] if self.backend not in ("", "none") else []

    def moved(self, window: int) -> None:
        """A worker that serves gives another window, because somebody or something asked for it."""
        self.window = window

    def chosen(self, backend: str) -> None:
        """The worker has all that it runs on; how it computes experts may have been chosen while it served."""
        self.backend = self.backend or backend

    def serves(self, window: int, backend: str) -> list[str]:
        """A worker has become ready. What of it is less than agents were told, or other than it was, in sentences."""
        told = []
        if window < self.window:
            told.append(
                f"A request may have {window:,} tokens since the worker was restarted, and had {self.window:,} before:"
                " less memory was free. To plan anew: ft engine restart"
            )
        if self.backend and backend != self.backend:
            told.append(
                f"Experts are computed by {backend!r} since the worker was restarted, and were by {self.backend!r} before."
            )
        self.window, self.backend = max(window, self.window), self.backend or backend
        return told
