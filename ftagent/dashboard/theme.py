"""How roles look: palettes for colour, grey and the sixteen colours of a terminal, and the glyphs of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Look:
    """`fg` and `bg` are `#rrggbb`, a name of the sixteen colours, or empty for the terminal's own."""

    fg: str = ""
    bg: str = ""
    bold: bool = False
    dim: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Palette:
    name: str
    dark: bool
    background: str
    looks: Mapping[str, Look]

    def look(self, role: str) -> Look:
        """Of `role`, or of `role+select` in a selected row; what a palette does not name looks as text."""
        name, _, selected = role.partition("+")
        look = self.looks.get(name) or self.looks["text"]
        if not selected:
            return look
        row = self.looks["select"]
        return replace(look, bg=row.bg, bold=True, reverse=row.reverse)


_HEAT_DARK = ("#1c2733", "#23405a", "#2b5f83", "#3a7f9f", "#5f9f8f", "#a3b565", "#e0b64a", "#f28c38")
_HEAT_LIGHT = ("#edf1f4", "#d3e2ee", "#aaccdf", "#7fb2cf", "#76a98a", "#b39b3d", "#c77d1e", "#b8500f")
_TENANTS_DARK = ("#8fa3b8", "#4fb3d9", "#2f6d8a", "#a98fdc", "#e0a54a", "#7fbf7f", "#c98a8a", "#3a4654")
_TENANTS_LIGHT = ("#5b6b7c", "#1f7fa8", "#7fb8d0", "#7450b5", "#b06f10", "#3c8a3c", "#a85252", "#c3ccd5")


def _colours(text: str, dim: str, good: str, warn: str, bad: str, accent: str, select: str, heat: tuple[str, ...], tenants: tuple[str, ...]) -> dict[str, Look]:  # fmt: skip
    looks = {
        "text": Look(text),
        "dim": Look(dim),
        "border": Look(dim),
        "head": Look(text, bold=True),
        "title": Look(accent, bold=True),
        "accent": Look(accent),
        "good": Look(good),
        "warn": Look(warn),
        "bad": Look(bad, bold=True),
        "key": Look(accent, bold=True),
        "select": Look(text, select, bold=True),
        "banner": Look(bad, bold=True, reverse=True),
        "frozen": Look(warn, bold=True, reverse=True),
    }
    looks |= {f"heat{level}": Look(colour) for level, colour in enumerate(heat)}
    return looks | {f"tenant{number}": Look(colour) for number, colour in enumerate(tenants)}


_SIXTEEN = {
    "text": Look(),
    "dim": Look("bright_black"),
    "border": Look("bright_black"),
    "head": Look(bold=True),
    "title": Look("cyan", bold=True),
    "accent": Look("cyan"),
    "good": Look("green"),
    "warn": Look("yellow"),
    "bad": Look("red", bold=True),
    "key": Look("cyan", bold=True),
    "select": Look(reverse=True),
    "banner": Look("red", bold=True, reverse=True),
    "frozen": Look("yellow", bold=True, reverse=True),
    **{f"heat{level}": Look(("bright_black", "blue", "blue", "cyan", "green", "yellow", "yellow", "red")[level]) for level in range(8)},
    **{f"tenant{n}": Look(("white", "cyan", "blue", "magenta", "yellow", "green", "red", "bright_black")[n]) for n in range(8)},
}  # fmt: skip
_MONOCHROME = {
    "text": Look(),
    "dim": Look(dim=True),
    "border": Look(dim=True),
    "head": Look(bold=True),
    "title": Look(bold=True),
    "warn": Look(bold=True),
    "bad": Look(bold=True, reverse=True),
    "key": Look(bold=True),
    "select": Look(reverse=True),
    "banner": Look(bold=True, reverse=True),
    "frozen": Look(reverse=True),
}

DARK = Palette("dark", True, "#11161c", _colours("#d5dde5", "#71808f", "#7fc97f", "#f0b429", "#ff6b5e", "#5fb8e0", "#24405a", _HEAT_DARK, _TENANTS_DARK))  # fmt: skip
LIGHT = Palette("light", False, "#fafbfc", _colours("#1d2730", "#6a7885", "#1f7a34", "#8f5c00", "#c0281c", "#0f6a9c", "#cfe3f1", _HEAT_LIGHT, _TENANTS_LIGHT))  # fmt: skip
TERMINAL = Palette("terminal", True, "", _SIXTEEN)
MONOCHROME = Palette("monochrome", True, "", _MONOCHROME)
PALETTES = (DARK, LIGHT, TERMINAL, MONOCHROME)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What lines, bars and marks are drawn with; every mark stands beside a word."""

    across: str
    down: str
    corners: str  # top left, top right, bottom left, bottom right
    full: str
    empty: str
    steps: str  # of a sparkline, lowest first
    shades: str  # of a heat map, lowest first
    good: str
    warn: str
    bad: str
    running: str
    pointer: str
    branch: str
    last: str
    trunk: str
    dot: str
    stale: str

    @property
    def ascii(self) -> bool:
        return self.across == "-"


UNICODE = Glyphs("─", "│", "╭╮╰╯", "█", "░", "▁▂▃▄▅▆▇█", " ░▒▓█", "✓", "!", "✗", "▶", "›", "├─", "╰─", "│ ", "•", "◷")  # fmt: skip
ASCII = Glyphs("-", "|", "++++", "#", ".", ".:-=+*#%", " .:*#", "v", "!", "x", ">", ">", "|-", "`-", "| ", "*", "?")


def glyphs_for(ascii_only: bool, encoding: str) -> Glyphs:
    """Plain ASCII where asked for, or where the terminal's encoding carries no more."""
    return ASCII if ascii_only or encoding.lower().replace("-", "") not in ("utf8", "utf16", "utf32") else UNICODE
