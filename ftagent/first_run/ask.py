"""One question at a time: a list to choose from, and keys. With a cursor the list moves; without one it is a plain prompt."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import textwrap
import tty
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ftagent.output import Style
from ftagent.text import printable

ESCAPE_S = 0.05  # within which the rest of an arrow key follows its first byte
MOST_CHOICES = 9
WIDE = 10_000  # where nothing is drawn again, the terminal itself wraps
_ARROWS = {b"[A": "up", b"OA": "up", b"[B": "down", b"OB": "down"}
LEAVE = "q"


@dataclass(frozen=True, slots=True)
class Page:
    """`told`, then the choices, then what `costs` says of the chosen one. `keys` are the others by what they do; `go` is what
    Enter does."""

    told: Sequence[str]
    go: str
    choices: Sequence[str] = ()
    costs: Callable[[int], Sequence[str]] = lambda chosen: ()
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """`key` is "enter", one of the page's keys, or LEAVE."""

    key: str
    chosen: int = 0


def ask(page: Page, style: Style, cursor: bool) -> Answer:
    """Shows the page and waits. `cursor`: the terminal moves its own. Raises KeyboardInterrupt at Ctrl-C."""
    return _by_keys(page, style) if cursor else _by_lines(page, style)


def _by_lines(page: Page, style: Style) -> Answer:
    chosen = 0
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # a line typed before its question was seen answers none
    while True:
        _write([*_lines(page, chosen, style, WIDE), ""])
        words = [f"Enter: {page.go}"]
        if len(page.choices) > 1:
            words.append(f"1-{min(len(page.choices), MOST_CHOICES)}: choose")
        words += [f"{key}: {what}" for key, what in page.keys.items()]
        asked = f"[{', '.join([*words, f'{LEAVE}: leave'])}] "
        width = shutil.get_terminal_size((80, 24)).columns - 1
        print("\n".join(textwrap.wrap(asked, width, break_on_hyphens=False)), end=" ", flush=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in (LEAVE, "quit", "exit", "\x1b"):
            return Answer(LEAVE, chosen)
        if word == "":
            return Answer("enter", chosen)
        if word in page.keys:
            return Answer(word, chosen)
        if word.isdecimal() and 1 <= int(word) <= min(len(page.choices), MOST_CHOICES):
            chosen = int(word) - 1


def _by_keys(page: Page, style: Style) -> Answer:
    chosen = drawn = 0
    entered = sys.stdin.fileno()
    before = termios.tcgetattr(entered)
    try:
        tty.setcbreak(entered, termios.TCSAFLUSH)  # a key pressed before its question was seen answers none
        while True:
            size = shutil.get_terminal_size((80, 24))
            lines = [*_lines(page, chosen, style, size.columns - 1), "", *_foot(page, style, size.columns - 1)]
            sys.stdout.write(f"\x1b[{drawn}F\x1b[J" if drawn else "")
            _write(lines)
            drawn = len(lines) if len(lines) < size.lines else 0  # what has left the screen is not drawn over
            key = _key(entered)
            if key in ("enter", LEAVE, *page.keys):
                return Answer(key, chosen)
            if key.isdecimal() and 1 <= int(key) <= min(len(page.choices), MOST_CHOICES):
                chosen = int(key) - 1
            elif key in ("up", "down") and page.choices:
                chosen = (chosen + (1 if key == "down" else -1)) % min(len(page.choices), MOST_CHOICES)
    finally:
        termios.tcsetattr(entered, termios.TCSADRAIN, before)


def _key(entered: int) -> str:
    """The next key by name; LEAVE for Esc and for a terminal that is gone."""
    first = os.read(entered, 1)
    if first == b"\x1b":
        rest = b""
        while len(rest) < 2 and select.select([entered], [], [], ESCAPE_S)[0]:
            rest += os.read(entered, 1)
        return _ARROWS.get(rest, "") if rest else LEAVE
    if first in (b"\r", b"\n"):
        return "enter"
    named = {b"": LEAVE, b"\x04": LEAVE, b"k": "up", b"j": "down"}
    return named.get(first) or first.decode("ascii", "replace").lower()


def _foot(page: Page, style: Style, width: int) -> list[str]:
    """The keys, as many lines as they need; no key is parted from what it does."""
    words = [("Enter", page.go), *([("Up/Down", "choose")] if len(page.choices) > 1 else []), *page.keys.items()]
    lines, room = [""], width
    for key, what in [*words, (LEAVE, "leave")]:
        taken = len(key) + 1 + len(what) + 2
        if taken - 2 > room and lines[-1]:
            lines.append("")
            room = width
        lines[-1] += f"{style(key, 'bold')} {what}  "
        room -= taken
    return [line.rstrip() for line in lines]


def _lines(page: Page, chosen: int, style: Style, width: int) -> list[str]:
    """None wider than `width`: what is drawn again must be as many rows as it has lines."""
    head, *told = page.told
    lines = [style(_cut(head, width), "bold"), *_wrapped(told, width)]
    for number, choice in enumerate(page.choices[:MOST_CHOICES]):
        mark = ">" if number == chosen else " "
        line = _cut(f"{mark} {number + 1} {choice}", width)
        lines.append(style(line, "bold") if number == chosen else line)
    costs = _wrapped(page.costs(chosen), width)
    return [*lines, *([""] if costs else []), *costs]


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(printable(line), width, subsequent_indent="  ", drop_whitespace=True, max_lines=3) or [
            ""
        ]
    return wrapped


def _cut(line: str, width: int) -> str:
    line = printable(line)
    return line if len(line) <= width else line[: width - 3] + "..."


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
