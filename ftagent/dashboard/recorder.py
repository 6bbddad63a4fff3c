"""The flight recorder: the last minutes as one file without prompts, and its player.

A file is gzip of one JSON document a line: the head, then frames. A frame holds only what differs from the one before it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftagent.atomic import write_bytes
from ftagent.dashboard.codec import from_json
from ftagent.dashboard.model import Act, Explanation, Frame, Outcome, Part, WhatIf
from ftagent.dashboard.patches import applied, patch
from ftagent.dashboard.redact import Redactor
from ftagent.errors import NotHere, Refused

SCHEMA = "ft.flight/1"
MINUTES = 10.0
EVERY_S = 1.0  # one frame of so long is kept
MOST_FRAMES = 3_600
TURNS = 128
MOST_BYTES = 256 << 20  # unpacked
LONGEST_S = 5.0  # a pause that is played
_READ_ONLY = "This is a recording: nothing can be done in it."


class Recorder:
    """Keeps what was seen within `minutes`. Frames share their parts, so that many cost little more than one."""

    def __init__(self, minutes: float = MINUTES) -> None:
        self._keep_s = minutes * 60
        self._frames: deque[Frame] = deque(maxlen=MOST_FRAMES)

    def add(self, frame: Frame) -> None:
        """Frames come in the order of their time. The newest one is always kept, of those before it one a second."""
        if len(self._frames) > 1 and self._frames[-1].now - self._frames[-2].now < EVERY_S:
            self._frames.pop()
        self._frames.append(frame)
        while self._frames[0].now < frame.now - self._keep_s:
            self._frames.popleft()

    def __len__(self) -> int:
        return len(self._frames)

    def save(self, path: Path) -> int:
        """Write all of it, readable by its owner only. How many frames. Raises OSError."""
        write_bytes(path, gzip.compress(b"".join(_lines(self._frames)), mtime=0))
        return len(self._frames)


def _lines(frames: deque[Frame]) -> Iterator[bytes]:
    yield _line({"schema": SCHEMA, "frames": len(frames)})
    redactor, before = Redactor(), {}  # type: Redactor, dict[str, Any]
    for frame in frames:
        document = redactor.json(replace(frame, offers=(), readonly=True, turns=frame.turns[-TURNS:]))
        yield _line(patch(before, document))
        before = document


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def load(path: Path) -> list[Frame]:
    """The frames of a file. Raises NotHere, and Refused for what is no recording."""
    try:
        with gzip.open(path) as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotHere(f"There is no file {path}.", "ft top --record FILE makes one.") from None
    except (OSError, EOFError) as error:
        raise Refused(f"{path} is no recording: {error}.", "ft top --record FILE makes one.") from None
    if len(data) > MOST_BYTES:
        raise Refused(f"{path} is longer than any recording.", "ft top --record FILE makes one.")
    document: dict[str, Any] = {}
    frames = []
    try:
        head, *rest = data.splitlines()
        if json.loads(head)["schema"] != SCHEMA:
            raise ValueError(f"not {SCHEMA}")
        for line in rest:
            document = applied(document, json.loads(line))
            frames.append(replace(from_json(document), source=f"replay {path.name}", readonly=True, offers=()))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise Refused(f"{path} is no recording: {error}.", "ft top --record FILE makes one.") from None
    if not frames:
        raise Refused(f"{path} holds no frame.", "ft top --record FILE makes one.")
    return frames


class ReplaySource:
    """See model.Source. Plays a recording in its own time, once, and stays at its end."""

    def __init__(self, path: Path, speed: float = 1.0) -> None:
        """Raises as `load`."""
        self._frames = load(path)
        self._speed = speed
        self._closed = asyncio.Event()

    @property
    def last(self) -> Frame:
        return self._frames[-1]

    async def frames(self) -> AsyncIterator[Frame]:
        """See Source."""
        before = self._frames[0].now
        for frame in self._frames:
            await self._wait(min(LONGEST_S, max(0.0, frame.now - before)) / self._speed)
            if self._closed.is_set():
                return
            before = frame.now
            yield frame
        await self._closed.wait()

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._closed.wait()
            except TimeoutError:
                pass

    def show(self, *parts: Part) -> None:
        """See Source. Everything that was recorded is there."""

    def pace(self, fps: float) -> None:
        """See Source. A recording plays in its own time."""

    def again(self, part: Part) -> None:
        """See Source. A recording stays as it is."""

    async def act(self, what: Act, **arguments: Any) -> Outcome:
        """See Source."""
        return Outcome(False, _READ_ONLY)

    async def what_if(self, label: str, **asked: Any) -> WhatIf:
        """See Source."""
        return WhatIf(label, asked, None, _READ_ONLY)

    async def explain(self, request: str) -> Explanation:
        """See Source. The sentence is kept, the texts are not."""
        turn = next((turn for turn in self.last.turns if turn.request == request), None)
        return Explanation(request, "-" if turn is None else turn.why, None if turn is None else turn.broke_at)

    async def close(self) -> None:
        """See Source."""
        self._closed.set()
