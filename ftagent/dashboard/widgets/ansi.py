"""Lines as a terminal takes them, without a library: for the first frame, and for plain output."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.theme import Look, Palette
from ftagent.dashboard.widgets.cells import Line

_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def _colour(name: str, base: int, truecolour: bool) -> str:
    if name.startswith("#"):
        red, green, blue = (int(name[i : i + 2], 16) for i in (1, 3, 5))
        if truecolour:
            return f"{base + 8};2;{red};{green};{blue}"
        cube = 16 + 36 * _sixth(red) + 6 * _sixth(green) + _sixth(blue)
        return f"{base + 8};5;{cube}"
    bright = name.startswith("bright_")
    return str(base + (60 if bright else 0) + _NAMES.index(name.removeprefix("bright_")))


def _sixth(value: int) -> int:
    """Of the 6 x 6 x 6 cube, whose steps are at 0, 95, 135, 175, 215, 255."""
    return min(range(6), key=lambda i: abs((0, 95, 135, 175, 215, 255)[i] - value))


def codes(look: Look, background: str, truecolour: bool) -> str:
    """The parameters of SGR, empty for plain text."""
    parts = [number for number, on in (("1", look.bold), ("2", look.dim), ("7", look.reverse)) if on]
    if look.fg:
        parts.append(_colour(look.fg, 30, truecolour))
    if look.bg or background:
        parts.append(_colour(look.bg or background, 40, truecolour))
    return ";".join(parts)


def rendered(lines: Sequence[Line], palette: Palette, truecolour: bool) -> str:
    """All lines, each from its first column, nothing after the last."""
    done: list[str] = []
    for number, line in enumerate(lines):
        done.append(f"\x1b[{number + 1};1H")
        for span in line:
            sgr = codes(palette.look(span.role), palette.background, truecolour)
            done.append(f"\x1b[{sgr}m{span.text}\x1b[0m" if sgr else span.text)
    return "".join(done)
