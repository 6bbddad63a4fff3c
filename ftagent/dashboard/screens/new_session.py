"""The form of a new session: what `ft launch` takes on the left, what it would do on the right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from shutil import which

from ftagent.dashboard.model import Frame
from ftagent.dashboard.screens.overlays import Overlay, edited
from ftagent.dashboard.screens.view import Effect, Preview, Room, Run
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, beside, clean, cut, fit, line, width, wrap

OURS = "mini"  # always there
FIELDS = ("agent", "name", "model", "folder", "more")
HELP = {
    "agent": "Left and Right choose",
    "name": "of the session; empty: made up",
    "model": "empty: the one that is served",
    "folder": "empty: this project",
    "more": "of ft launch, such as --detach",
}


def known_agents() -> tuple[str, ...]:
    """Every agent that can be launched: those that are installed, then the others."""
    from ftagent.agents.loader import names
    from ftagent.launch.find import agent_path
    from ftagent.paths import find_paths

    path = agent_path(os.environ, find_paths(os.environ))
    return tuple(sorted(names(), key=lambda name: which(name, path=path) is None and name != OURS))


class NewSession(Overlay):
    """Enter launches; the plan beside it is made anew whenever the form says something else."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = tuple(agents) or ("claude",)
        self.chosen = 0
        self.field = 0
        self.texts = dict.fromkeys(FIELDS[1:], "")
        self.plan = ""
        self.columns = 80  # of the plan
        self.plan_of: tuple[str, ...] = ()  # arguments

    def arguments(self) -> tuple[str, ...]:
        """Of `ft`, without `--dry-run`."""
        arguments = ["launch", self.agents[self.chosen]]
        if self.texts["name"].strip():
            arguments += ["--name", self.texts["name"].strip()]
        if self.texts["model"].strip():
            arguments += ["--model", self.texts["model"].strip()]
        if self.texts["folder"].strip():
            arguments += ["--project", self.texts["folder"].strip()]
        return (*arguments, *self.texts["more"].split())

    def preview(self) -> Preview:
        return Preview((*self.arguments(), "--dry-run", "--no-color"), self.columns)

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        cells, rows = min(room.width, 150), min(room.height, 30)
        left = cells if cells < 80 else 44 if cells < 110 else 54
        self.columns = max(40, cells - left - 4)
        form: list[Line] = []
        for number, name in enumerate(FIELDS):
            here = number == self.field
            value = self.agents[self.chosen] if name == "agent" else self.texts[name]
            shown = value if width(value) < left - 14 else "~" + value[-(left - 16) :]
            form.append(
                line(
                    (f"{'>' if here else ' '} {fit(name, 7)} ", "key" if here else "dim"),
                    (cut(clean(shown), left - 14), "head"),
                    ("_" if here else "", "key"),
                )
            )
            form.append(line((f"          {HELP[name]}", "dim")))
        form += [(), line(("ft " + clean(" ".join(self.arguments())), "accent")), ()]
        form.append(line(("Enter", "key"), " launches  ", ("Tab", "key"), " next  ", ("Esc", "key"), " leaves"))
        if left == cells:
            return box("New session", form, cells, min(rows, len(form) + 2), room.glyphs, focus=True)
        asked = self.preview().arguments != self.plan_of
        note = "asking ft launch --dry-run ..." if asked else "nothing is changed yet"
        role = "dim" if asked else "text"
        plan = [line((part, role)) for one in self.plan.splitlines() for part in _wrapped(clean(one), self.columns)]
        return beside(
            box("New session", form, left, rows, room.glyphs, focus=True),
            box("What it would do", plan, cells - left, rows, room.glyphs, note),
        )

    def key(self, key: str, character: str | None, frame: Frame) -> Effect:
        name = FIELDS[self.field]
        if key == "escape":
            self.done = True
        elif key == "enter":
            self.done = True
            return Run(self.arguments())
        elif key in ("tab", "down"):
            self.field = (self.field + 1) % len(FIELDS)
            return self.preview()
        elif key in ("shift+tab", "up"):
            self.field = (self.field - 1) % len(FIELDS)
            return self.preview()
        elif name == "agent":
            if key in ("left", "right", "space", "h", "l"):
                self.chosen = (self.chosen + (-1 if key in ("left", "h") else 1)) % len(self.agents)
                return self.preview()
        else:
            self.texts[name] = edited(self.texts[name], key, character)
            return self.preview()
        return None

    def paste(self, text: str) -> None:
        name = FIELDS[self.field]
        if name != "agent":
            self.texts[name] += clean(text.replace("\n", " "))


def _wrapped(text: str, cells: int) -> list[str]:
    """What goes on is set in, so that columns stay apart."""
    if width(text) <= cells:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()))
    first, *rest = wrap(text, cells - len(indent) - 2)
    return [indent + first, *(f"{indent}  {part}" for part in rest)]
