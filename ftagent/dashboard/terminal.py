"""The settings of the terminal: silent while the dashboard has it, its own again while it is lent."""

from __future__ import annotations

import contextlib
import sys
import termios
from collections.abc import Iterator
from typing import Any

_saved: list[Any] | None = None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keys pressed before the screen listens wait for it, Ctrl+C too, and are not echoed; at the end the terminal is as it was."""
    global _saved
    try:
        _saved = termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError, OSError):
        yield
        return
    silent = [*_saved[:3], _saved[3] & ~(termios.ECHO | termios.ICANON | termios.ISIG), *_saved[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, _saved)
        sys.stdout.write("\x1b[?1049l\x1b[?25h\x1b[0m")
        sys.stdout.flush()


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """As it was before the dashboard, for whoever has it meanwhile."""
    if _saved is None:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, _saved)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
