"""What is on the display and what keys do to it, without a terminal: frames and keys in, lines out."""

from __future__ import annotations

import asyncio
import os
import time

from ftagent.dashboard.app import Options
from ftagent.dashboard.doing import Doing
from ftagent.dashboard.effects import Host
from ftagent.dashboard.keys import GLOBAL, Key
from ftagent.dashboard.model import Frame, Part, Source
from ftagent.dashboard.recorder import Recorder
from ftagent.dashboard.screens import make
from ftagent.dashboard.screens.chrome import Chrome, compose
from ftagent.dashboard.screens.overlays import Overlay, above, edited
from ftagent.dashboard.screens.view import Room, View
from ftagent.dashboard.widgets.cells import Line

MESSAGE_S = 6.0


class Desk(Doing):
    """`frame` is shown; `latest` is newer while the display is frozen or has not been drawn yet."""

    def __init__(self, source: Source, options: Options, host: Host, first: Frame | None = None) -> None:
        self.source, self.options, self.host = source, options, host
        self.latest = self.frame = first or Frame(time.time())
        self.part: Part = options.part
        self.views: dict[Part, View] = {}
        self.palette = options.palette(os.environ)
        self.glyphs = options.glyphs()
        self.fps = options.fps
        self.height = 24
        self.overlay: Overlay | None = None
        self.typing: str | None = None
        self.frozen_at: float | None = None
        self.interrupted_at = -10.0
        self.tasks: set[asyncio.Task[None]] = set()
        self.recorder = Recorder()
        self._message, self._message_until = "", 0.0
        self._waiting: set[str] | None = None

    @property
    def view(self) -> View:
        """The screen that is shown, made when it is first looked at."""
        if self.part not in self.views:
            self.views[self.part] = make(self.part)
        return self.views[self.part]

    # frames in

    def take(self, frame: Frame) -> None:
        """The newest frame; a bell for each session that has begun to wait for its person."""
        self.latest = frame
        self.recorder.add(frame)
        waiting = {one.id: one.name or one.id for one in frame.sessions if one.waits_for_person}
        begun = [name for id_, name in waiting.items() if self._waiting is not None and id_ not in self._waiting]
        if self.options.bell and begun:
            self.host.ring(f"{', '.join(begun[:3])} {'waits' if len(begun) == 1 else 'wait'} for you")
        self._waiting = set(waiting)

    def due(self) -> bool:
        """Whether what is shown is no longer what should be."""
        if self.frozen_at is not None or (self._message and time.monotonic() > self._message_until):
            return True
        return self.frame is not self.latest

    # lines out

    def lines(self, width: int, height: int) -> list[Line]:
        """`height` lines of `width` cells; the newest frame unless it is frozen."""
        self.height = height
        now = time.monotonic()
        if self._message and now > self._message_until:
            self._message = ""
        if self.frozen_at is None:
            self.frame = self.latest
        frozen = now - self.frozen_at if self.frozen_at is not None else None
        room = Room(width, height, self.glyphs)
        lines = compose(self.frame, self.view, room, Chrome(frozen, self._message, self.typing))
        return above(lines, self.overlay.lines(self.frame, room), room) if self.overlay else lines

    def say(self, text: str) -> None:
        self._message, self._message_until = text, time.monotonic() + MESSAGE_S
        self.host.draw()

    def go(self, part: Part) -> None:
        """To another screen; only that and the overview are asked for from now on."""
        self.part = part
        self.source.show("overview", part)

    # keys in

    def key(self, name: str, character: str | None) -> None:
        """What lies above has it first, then a filter being typed, then the screen, then everything."""
        if name == "ctrl+c" and (self.overlay or self.typing is not None):
            self.overlay = self.typing = None
        elif self.overlay is not None:
            over = self.overlay
            effect = over.key(name, character, self.frame)
            if over.done and self.overlay is over:  # a yes may have opened the next question
                self.overlay = None
            self.perform(effect)
        elif self.typing is not None:
            self._type(name, character)
        else:
            found = self.find(name)
            if found is not None:
                self.do(found.action)
        self.host.draw()

    def paste(self, text: str) -> None:
        if self.overlay is not None:
            self.overlay.paste(text)
        elif self.typing is not None:
            self.typing += text.replace("\n", " ")
            self.view.query = self.typing
        self.host.draw()

    def _type(self, name: str, character: str | None) -> None:
        if name in ("enter", "escape"):
            self.view.query = "" if name == "escape" else self.typing or ""
            self.typing = None
        else:
            self.typing = edited(self.typing or "", name, character)
            self.view.query = self.typing

    def find(self, name: str) -> Key | None:
        """What the key means now, of the screen first; nothing where it acts and nothing may."""
        for key in (*self.view.bound(), *GLOBAL):
            if name in key.keys.split(","):
                return None if key.acting and self.readonly() else key
        return None

    def do(self, action: str) -> None:
        """`view.NAME` of the screen, else `NAME` or `NAME(number)` of this."""
        if action.startswith("view."):
            self.perform(getattr(self.view, action.removeprefix("view."))(self.frame))
            return
        name, _, argument = action.rstrip(")").partition("(")
        method = getattr(self, f"do_{name}")
        method(int(argument)) if argument else method()
