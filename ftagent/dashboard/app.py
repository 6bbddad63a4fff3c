"""`run`: the first frame at once, drawn without a library; then the same lines with keys. Imports nothing heavy by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from ftagent.dashboard import terminal
from ftagent.dashboard.model import Frame, Part, Source
from ftagent.dashboard.screens import make
from ftagent.dashboard.screens.chrome import compose
from ftagent.dashboard.screens.view import Room
from ftagent.dashboard.theme import DARK, MONOCHROME, PALETTES, Glyphs, Palette, glyphs_for
from ftagent.dashboard.widgets.ansi import rendered

FIRST_WAIT_S = 0.12
LEAST_FPS, MOST_FPS = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """`ft`: how this program is started again, for what leaves the screen. `theme` empty: colours as the terminal and
    NO_COLOR have it."""

    fps: float = 2.0
    ascii: bool = False
    readonly: bool = False
    theme: str = ""
    part: Part = "overview"
    ft: tuple[str, ...] = (sys.executable, "-P", "-m", "ftagent")
    agents: tuple[str, ...] = ()
    bell: bool = True

    def palette(self, env: Mapping[str, str]) -> Palette:
        """Monochrome under NO_COLOR whatever `theme` says; the terminal's own sixteen where it has no more."""
        if env.get("NO_COLOR"):
            return MONOCHROME
        named = {palette.name: palette for palette in PALETTES}
        if self.theme in named:
            return named[self.theme]
        rich = (
            env.get("COLORTERM") in ("truecolor", "24bit")
            or "256" in env.get("TERM", "")
            or "direct" in env.get("TERM", "")
        )
        return DARK if rich else named["terminal"]

    def glyphs(self) -> Glyphs:
        return glyphs_for(self.ascii, sys.stdout.encoding or "ascii")


def run(source: Source, options: Options | None = None) -> int:
    """Shows the dashboard until the person leaves; closes the source. Needs a terminal on stdin and stdout. Returns 0."""
    with terminal.quiet():
        return asyncio.run(_run(source, options or Options()))


async def _run(source: Source, options: Options) -> int:
    frames = source.frames()
    upcoming = asyncio.ensure_future(_next(frames))
    await asyncio.wait({upcoming}, timeout=FIRST_WAIT_S)
    first = upcoming.result() if upcoming.done() else None
    sys.stdout.write("\x1b[?1049h\x1b[?25l" + first_screen(first or Frame(time.time()), options))
    sys.stdout.flush()
    from ftagent.dashboard.tui import Dashboard

    app = Dashboard(source, _from(upcoming, frames), options, first)
    try:
        await app.run_async()
    finally:
        upcoming.cancel()
        await source.close()
    return app.return_code or 0


async def _next(frames: AsyncIterator[Frame]) -> Frame | None:
    return await anext(frames, None)


async def _from(upcoming: asyncio.Future[Frame | None], frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    """What was asked for already, then the rest."""
    first = await upcoming
    if first is None:
        return
    yield first
    async for frame in frames:
        yield frame


def first_screen(frame: Frame, options: Options) -> str:
    """The overview for the terminal as it is now, as bytes that draw it."""
    size = shutil.get_terminal_size()
    room = Room(size.columns, size.lines, options.glyphs())
    truecolour = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    return rendered(compose(frame, make(options.part), room), options.palette(os.environ), truecolour)
