"""One method for each global key; `keys.GLOBAL` names them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ftagent.dashboard import leaving
from ftagent.dashboard.app import LEAST_FPS, MOST_FPS
from ftagent.dashboard.effects import Effects
from ftagent.dashboard.model import PARTS, Frame, Part
from ftagent.dashboard.recorder import Recorder
from ftagent.dashboard.screens.new_session import NewSession, known_agents
from ftagent.dashboard.screens.overlays import Help
from ftagent.dashboard.screens.sessions import OVER
from ftagent.dashboard.screens.view import Ask, Run, Save
from ftagent.dashboard.theme import MONOCHROME, PALETTES, Palette

TWICE_S = 1.0


class Doing(Effects):
    """Base of the desk: the half that keys reach."""

    latest: Frame
    part: Part
    palette: Palette
    fps: float
    height: int
    typing: str | None
    frozen_at: float | None
    interrupted_at: float
    recorder: Recorder

    # leaving

    def do_leave(self) -> None:
        ready = self.frame.engine.state == "ready"
        self.host.leave("The engine keeps running; ft engine stop ends it." if ready else None)

    def do_interrupt(self) -> None:
        now = time.monotonic()
        if now - self.interrupted_at <= TWICE_S:
            self.do_leave()
        self.interrupted_at = now
        self.say("press q to quit")

    # moving about

    def do_help(self) -> None:
        self.overlay = Help(self.view, self.readonly())

    def do_command_palette(self) -> None:
        self.host.palette_of_commands()

    def do_screen(self, number: int) -> None:
        self.go(PARTS[number])

    def do_pane(self, by: int) -> None:
        self.view.pane = (self.view.pane + by) % self.view.panes

    def do_move(self, by: int) -> None:
        """One row, or half a page for more than one."""
        half = max(1, self.height // 2)
        self.view.move(self.frame, by if abs(by) == 1 else half if by > 0 else -half)

    def do_up(self) -> None:
        """Or the rescue of a request whose agent is about to give up."""
        alert = next((a for a in self.frame.alerts if any(key == "k" for key, _ in a.keys)), None)
        if alert is not None and not self.readonly():
            self.act("beat", {"request": alert.request})
        else:
            self.do_move(-1)

    def do_first(self) -> None:
        self.view.move(self.frame, -1_000_000)

    def do_last(self) -> None:
        self.view.move(self.frame, 1_000_000)

    def do_open(self) -> None:
        self.perform(self.view.enter(self.frame))

    def do_back(self) -> None:
        if not self.view.back() and self.part != "overview":
            self.go("overview")

    # what is shown

    def do_filter(self) -> None:
        self.typing = self.view.query

    def do_sort(self) -> None:
        if self.view.sorts:
            self.view.sort = (self.view.sort + 1) % len(self.view.sorts)
            self.say(f"by {self.view.sorts[self.view.sort]}")

    def do_reverse(self) -> None:
        self.view.reversed = not self.view.reversed

    def do_everywhere(self) -> None:
        self.view.everywhere = not self.view.everywhere
        self.say("all projects" if self.view.everywhere else "this project")

    def do_freeze(self) -> None:
        self.frozen_at = time.monotonic() if self.frozen_at is None else None

    def do_faster(self, way: int) -> None:
        self.fps = max(LEAST_FPS, min(MOST_FPS, self.fps * 2 if way > 0 else self.fps / 2))
        self.source.pace(self.fps)
        self.host.retime(self.fps)
        self.say(f"{self.fps:g} frames a second at most")

    def do_theme(self) -> None:
        if os.environ.get("NO_COLOR"):
            self.say(f"NO_COLOR is set: {MONOCHROME.name}")
            return
        self.palette = PALETTES[(PALETTES.index(self.palette) + 1) % len(PALETTES)]
        self.host.dress(self.palette)
        self.say(f"theme {self.palette.name}")

    # taking along

    def do_copy(self) -> None:
        session = self.view.session(self.frame)
        if session is None:
            self.say("No session is selected.")
        else:
            self.host.copy(f"ft resume {session}")
            self.say(f"copied: ft resume {session}")

    def do_export(self) -> None:
        text = json.dumps(self.view.export(self.frame), ensure_ascii=False, indent=1)
        self.perform(Save(f"ft-{self.part}-{time.strftime('%Y%m%d-%H%M%S')}.json", text + "\n"))

    def do_record(self) -> None:
        """What `ft top --replay` plays: without prompts, paths and tokens."""
        path = Path.cwd() / f"ft-{time.strftime('%Y%m%d-%H%M%S')}.flight"
        try:
            many = self.recorder.save(path)
        except OSError as error:
            self.say(f"not written: {error}")
        else:
            self.say(f"{many} frames: ft top --replay {path}")

    def do_pager(self) -> None:
        text = "".join(f"{one.at or ''} {one.level or ''} {one.text}\n" for one in self.frame.logs)
        self.background(self.host.lend(leaving.page(text)))

    # acting

    def do_new(self) -> None:
        form = NewSession(self.options.agents or known_agents())
        self.overlay = form
        self.perform(form.preview())

    def do_resume(self) -> None:
        """Goes on with it; to one that runs detached its terminal, one that runs elsewhere is left alone."""
        wanted = self.view.session(self.frame)
        session = next((one for one in self.frame.sessions if one.id == wanted), None)
        if session is None:
            self.say("No session is selected.")
        elif session.detached:
            self.perform(Run(("sessions", "attach", session.id)))
        elif session.status not in OVER:
            self.say(f"{session.name or session.id} runs already, in a terminal of its own.")
        else:
            self.perform(Run(("resume", session.id)))

    def do_stop(self) -> None:
        session = self.view.session(self.frame)
        if session is not None:
            self.perform(Ask("Stop this session's agent? It can be resumed.", "stop", {"session": session}))

    def do_cancel(self) -> None:
        """The request of a banner, else of the selected session, else the first in flight."""
        urgent = next((a.request for a in self.frame.alerts if a.request), None)
        selected = self.view.session(self.frame)
        own = next((f.request for f in self.frame.in_flight if f.session == selected), None)
        request = urgent or own or next((f.request for f in self.frame.in_flight), None)
        if request is None:
            self.say("Nothing is in flight.")
            return
        question = "Cancel the request in flight? Its agent will most likely send it again."
        self.perform(Ask(question, "cancel", {"request": request}))

    def do_keep(self) -> None:
        self.act("keep", {})

    def do_pause(self) -> None:
        self.act("go_on" if self.frame.engine.paused else "pause", {})

    def do_behind(self) -> None:
        """The last key of a rescue banner."""
        if any(key == "b" for alert in self.frame.alerts for key, _ in alert.keys):
            self.act("pause", {})
        else:
            self.say("No request is near its limit.")
