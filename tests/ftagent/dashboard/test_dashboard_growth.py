"""A display that is left open: events come and go, memory stays."""

import gc
import tracemalloc
from dataclasses import replace

from ftagent.dashboard.app import Options
from ftagent.dashboard.desk import Desk
from ftagent.dashboard.mock import MockSource, frame
from ftagent.dashboard.model import Event
from ftagent.dashboard.recorder import MINUTES
from ftagent.dashboard.widgets.canvas import changed
from ftagent.dashboard.widgets.cells import Span

EACH, KEPT = 100, 64


class Nobody:
    def draw(self) -> None:
        """Nothing is shown."""

    def ring(self, text: str) -> None:
        self.heard = [*getattr(self, "heard", ()), text]


def test_a_hundred_thousand_events_leave_nothing_behind() -> None:
    desk = Desk(MockSource("four"), Options(), Nobody())
    step_s = MINUTES * 60 / 200  # the recorder is full after 200 frames
    made, sizes = frame("four"), []
    tracemalloc.start()
    for number in range(1_000):
        events = tuple(
            Event(
                number * EACH + i, made.now + number * step_s, "request", f"event {number * EACH + i}", name="claude-2"
            )
            for i in range(EACH)
        )[-KEPT:]
        desk.take(replace(made, now=made.now + number * step_s, events=events))
        if number % 10 == 0:
            desk.lines(120, 36)
        if number in (399, 999):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert desk.latest.events[-1].id == 99_999
    assert sizes[1] - sizes[0] < 200_000, sizes


def test_a_bell_for_each_session_that_begins_to_wait_for_its_person() -> None:
    host = Nobody()
    desk, made = Desk(MockSource("four"), Options(), host), frame("four")

    def waiting(*names: str):
        return replace(made, sessions=tuple(replace(s, waits_for_person=s.name in names) for s in made.sessions))

    for names in (("oc-main",), ("oc-main",), ("oc-main", "review"), (), ("claude-2", "codex-1")):
        desk.take(waiting(*names))
    assert host.heard == ["review waits for you", "claude-2, codex-1 wait for you"]


def test_only_cells_that_changed_are_painted() -> None:
    old = (Span("cpu "), Span("12", "warn"), Span(" of 40 in use"))
    assert changed(old, (Span("cpu "), Span("13", "warn"), Span(" of 40 in use"))) == (4, 2)
    assert changed(old, (Span("cpu "), Span("12", "bad"), Span(" of 40 in use"))) == (4, 2)
    assert changed((Span("日本 x"),), (Span("日本 y"),)) == (0, 6)
