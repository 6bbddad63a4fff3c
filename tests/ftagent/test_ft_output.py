"""Tables fit the terminal that shows them, and are whole everywhere else."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftagent.output import LEAST_COLUMN, _cut, _fitted, table
from tests.ftagent.conftest import REAL_FT
from tests.ftagent.sessions import record


@settings(max_examples=60, deadline=None)
@given(widths=st.lists(st.integers(0, 90), min_size=1, max_size=12), room=st.integers(LEAST_COLUMN, 200))
def test_columns_are_cut_before_they_are_left_out(widths: list[int], room: int) -> None:
    fitted = _fitted(widths, 2, room)
    assert sum(fitted) + 2 * (len(fitted) - 1) <= room
    assert all(min(before, LEAST_COLUMN) <= after <= before for before, after in zip(widths, fitted, strict=False))
    if sum(widths) + 2 * (len(widths) - 1) <= room:
        assert fitted == widths
    least = [min(width, LEAST_COLUMN) + 2 for width in widths]
    assert len(fitted) == len(widths) or sum(least[: len(fitted) + 1]) - 2 > room


def test_of_a_path_the_end_stays() -> None:
    assert _cut("/home/me/.local/state/ft/sessions", 16) == "/home…t/sessions"
    assert _cut("a long sentence", 8) == "a long …"
    assert _cut("short", 5) == "short"


def test_a_table_that_no_terminal_shows_is_whole() -> None:
    assert table([["NAME", "WHERE"], ["x" * 300, "/y"]]) == "NAME" + " " * 298 + "WHERE\n" + "x" * 300 + "  /y"


@pytest.mark.parametrize("columns", [40, 200])
def test_a_listing_in_a_narrow_terminal(sandbox: Any, columns: int) -> None:
    record(sandbox, 1, name="a-session-with-a-long-name", model={"id": "a-model-with-a-long-name", "ctx": 65536})
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = subprocess.run([*REAL_FT, "ls"], stdout=slave, env=sandbox.env, cwd=sandbox.project, timeout=60)
    os.close(slave)
    lines = os.read(master, 65536).decode(errors="replace").splitlines()
    os.close(master)
    assert done.returncode == 0 and len(lines) == 2
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("NAME") and ("BRANCH" in lines[0]) == (columns == 200)
    assert ("a-session-with-a-long-name" in lines[1]) == (columns == 200)
