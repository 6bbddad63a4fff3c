"""What a person does to requests that run: end one, or have something sent to its client now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import FtError, NotFound

if TYPE_CHECKING:
    from engine.front.generation import Generation


class Cancelled(FtError):
    """A person ended the request from outside of the agent."""

    code = "FT-E0505 cancelled"


class Acting:
    """The requests that run, by id. Called from the front's event loop."""

    def __init__(self) -> None:
        self._running: dict[str, Generation] = {}

    def began(self, generation: Generation) -> None:
        self._running[generation.record.id] = generation

    def ended(self, generation: Generation) -> None:
        self._running.pop(generation.record.id, None)

    def cancel(self, request: str) -> None:
        """Its client gets an error, the computation stops unless another request shares it. Raises NotFound."""
        self._get(request).cancel()

    def beat(self, request: str) -> None:
        """Its client gets a heartbeat now. Raises NotFound."""
        self._get(request).beat()

    def _get(self, request: str) -> Generation:
        found = self._running.get(request)
        if found is None or not found.submitted:
            raise NotFound(f"No request {request[:40]!r} is running.", "See GET /v1/requests?running=1.")
        return found
