"""Running a generation to its end, for answers that are sent whole."""

from __future__ import annotations

import contextlib

from engine.errors import FtError
from engine.front.generation import Generation
from engine.front.items import Finished, Logprob


async def run(generation: Generation) -> tuple[Finished, list[Logprob]]:
    """Consume all events. Raises the FtError that ended the request, after recording it."""
    finished: Finished | None = None
    logprobs: list[Logprob] = []
    try:
        async with contextlib.aclosing(generation.events()) as items:
            async for item in items:
                if isinstance(item, Finished):
                    finished = item
                elif isinstance(item, Logprob):
                    logprobs.append(item)
    except FtError as error:
        generation.fail(error)
        raise
    assert finished is not None
    return finished, logprobs
