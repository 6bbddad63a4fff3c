"""The dashboard as a Textual application: a canvas, a timer, and what only a terminal can do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from functools import partial

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.screen import Screen

from ftagent.dashboard.app import Options
from ftagent.dashboard.desk import Desk
from ftagent.dashboard.keys import GLOBAL
from ftagent.dashboard.leaving import Work
from ftagent.dashboard.model import Frame, Source
from ftagent.dashboard.terminal import lent
from ftagent.dashboard.theme import Palette
from ftagent.dashboard.widgets.canvas import Canvas
from ftagent.dashboard.widgets.cells import clean


class Main(Screen[None], inherit_bindings=False):
    """The only screen; the desk draws what lies above it, too."""

    def __init__(self, canvas: Canvas) -> None:
        super().__init__()
        self.canvas = canvas

    def compose(self) -> ComposeResult:
        """Of Textual."""
        yield self.canvas


class Dashboard(App[None], inherit_bindings=False):
    """Reads `frames` until they or the app end; `first` is shown until then. No key of Textual's own is bound but Ctrl+P."""

    CSS = "Screen { overflow: hidden hidden; }"

    def __init__(self, source: Source, frames: AsyncIterator[Frame], options: Options, first: Frame | None = None) -> None:  # fmt: skip
        super().__init__(ansi_color=True)
        self.desk = Desk(source, options, self, first)
        self.canvas = Canvas(self.desk.palette)
        self._frames = frames
        self._away = False
        self._drawn_at = 0.0
        self._reader: asyncio.Task[None] | None = None

    def get_default_screen(self) -> Screen[None]:
        """Of Textual: what is there at the start."""
        return Main(self.canvas)

    def on_mount(self) -> None:
        """Of Textual: everything is up."""
        self.canvas.focus()
        self.desk.source.show("overview", self.desk.part)
        self._reader = asyncio.create_task(self._read())
        self._timer = self.set_interval(1 / self.desk.fps, self._tick)

    def on_unmount(self) -> None:
        """Of Textual: the end."""
        for task in (self._reader, *self.desk.tasks):
            if task is not None:
                task.cancel()

    async def _read(self) -> None:
        async for frame in self._frames:
            self.desk.take(frame)
            if self.desk.frozen_at is None and time.monotonic() - self._drawn_at >= 0.9 / self.desk.fps:
                self.draw()

    def _tick(self) -> None:
        if self.desk.due():
            self.draw()

    def on_key(self, event: events.Key) -> None:
        """Of Textual: every key, wherever the focus is."""
        if isinstance(self.screen, Main):
            event.stop()
            self.desk.key(event.key, event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Of Textual."""
        self.desk.paste(event.text)

    def on_resize(self, event: events.Resize) -> None:
        """Of Textual."""
        self.call_after_refresh(self.draw)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Of Textual."""
        self.desk.key("down", None)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Of Textual."""
        self.desk.do_move(-1)
        self.draw()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Of Textual: the palette offers what keys do."""
        for key in (*self.desk.view.bound(), *GLOBAL):
            if not (key.acting and self.desk.readonly()) and key.action != "command_palette":
                name = key.keys.split(",")[0]
                yield SystemCommand(f"{key.does} ({key.shown})", "", partial(self.desk.key, name, None))

    # what the desk asks of a terminal (effects.Host)

    def draw(self) -> None:
        if not self._away and self.size.width and self.size.height:
            self.canvas.show(self.desk.lines(self.size.width, self.size.height))
            self._drawn_at = time.monotonic()

    def leave(self, message: str | None) -> None:
        self.exit(message=message)

    def ring(self, text: str) -> None:
        """A bell, and a note of the desktop from terminals that show one (OSC 9); the console of Linux would print it."""
        self.bell()
        if self._driver is not None and os.environ.get("TERM") != "linux":
            self._driver.write(f"\x1b]9;{clean(text)}\x1b\\")

    def copy(self, text: str) -> None:
        self.copy_to_clipboard(text)

    def dress(self, palette: Palette) -> None:
        self.canvas.dress(palette)

    def retime(self, fps: float) -> None:
        self._timer.stop()
        self._timer = self.set_interval(1 / fps, self._tick)

    def palette_of_commands(self) -> None:
        self.action_command_palette()

    async def lend(self, work: Work) -> None:
        """Frames go on being read meanwhile, nothing is drawn."""
        self._away = True
        try:
            with self.suspend(), lent():
                await work()
        finally:
            self._away = False
        self.canvas.refresh()
        self.draw()
