"""Every key of the dashboard: what it is called, what it does, and whether it changes anything outside the screen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """`keys`: names as Textual has them, comma-separated. `action`: of the app, or `view.NAME` of the screen that is shown.
    `acting`: it changes the engine, a session or the disk, and is gone when the dashboard is read-only."""

    keys: str
    shown: str
    does: str
    action: str
    acting: bool = False


GLOBAL: tuple[Key, ...] = (
    Key("q", "q", "quit; the engine keeps running", "leave"),
    Key("question_mark", "?", "this help", "help"),
    Key("ctrl+p", "Ctrl+P", "command palette", "command_palette"),
    Key("1", "1", "overview", "screen(0)"),
    Key("2,t", "2 t", "turns", "screen(1)"),
    Key("3,m", "3 m", "memory", "screen(2)"),
    Key("4", "4", "experts", "screen(3)"),
    Key("5,c", "5 c", "anchors (checkpoints)", "screen(4)"),
    Key("6", "6", "engine", "screen(5)"),
    Key("7,l", "7 l", "logs", "screen(6)"),
    Key("8,d", "8 d", "doctor", "screen(7)"),
    Key("tab", "Tab", "next pane", "pane(1)"),
    Key("shift+tab", "Shift+Tab", "pane before", "pane(-1)"),
    Key("down,j", "Down j", "next row", "move(1)"),
    Key("up,k", "Up k", "row before; under a rescue banner k is a heartbeat", "up"),
    Key("g,home", "g Home", "first row", "first"),
    Key("G,end", "G End", "last row", "last"),
    Key("ctrl+d,pagedown", "Ctrl+D", "half a page down", "move(10)"),
    Key("ctrl+u,pageup", "Ctrl+U", "half a page up", "move(-10)"),
    Key("enter", "Enter", "open what is selected", "open"),
    Key("escape", "Esc", "back; clears the filter", "back"),
    Key("slash", "/", "filter", "filter"),
    Key("s", "s", "sort by the next column", "sort"),
    Key("S", "S", "reverse the order", "reverse"),
    Key("a", "a", "sessions of this project, or all", "everywhere"),
    Key("space", "Space", "freeze the display; data goes on", "freeze"),
    Key("plus,equals_sign", "+", "refresh more often", "faster(1)"),
    Key("minus", "-", "refresh less often", "faster(-1)"),
    Key("T", "T", "theme", "theme"),
    Key("y", "y", "copy the command that resumes it", "copy"),
    Key("e", "e", "export what is shown as JSON", "export"),
    Key("E", "E", "write the last minutes as a recording", "record"),
    Key("o", "o", "log in the pager", "pager"),
    Key("ctrl+c", "Ctrl+C", "says how to quit; twice within 1 s quits", "interrupt"),
    Key("n", "n", "new session", "new", acting=True),
    Key("r", "r", "resume the session", "resume", acting=True),
    Key("X", "X", "cancel its request in flight", "cancel", acting=True),
    Key("K", "K", "keep the engine alive", "keep", acting=True),
    Key("P", "P", "pause admission, or go on", "pause", acting=True),
    Key("b", "b", "under a rescue banner: others behind it", "behind", acting=True),
)
NEVER = ("ctrl+s", "ctrl+q", "ctrl+z")
"""Flow and job control of the terminal belong to the person."""
