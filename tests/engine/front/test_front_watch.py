"""When a worker counts as stuck."""

from __future__ import annotations

from engine.front.supervision.child import Movement
from engine.front.supervision.watch import Watch


def run(states: str, ready: bool = True, busy: bool = False, stall_s: float = 20.0) -> tuple[int | None, str]:
    """One look a second at a process that never speaks; when it was called stuck, and the words."""
    watch = Watch(stall_s, 0.0)
    for second, state in enumerate(states, start=1):
        words = watch.look(second, 0.0, Movement(state, second if busy else 7) if state != "?" else None, ready)
        if words:
            return second, words
    return None, ""


def test_stopped_and_frozen_within_seconds() -> None:
    assert run("T" * 10) == (4, "is stopped")
    assert run("S" * 10)[0] == 4
    assert run("T" * 10, busy=True)[0] == 4, "ticks of a stopped process are old ones"


def test_computing_waiting_for_disk_and_unknown_are_patient() -> None:
    assert run("R" * 199, busy=True) == (None, "")
    assert run("D" * 199) == (None, "")
    assert run("?" * 199) == (None, "")
    assert run("R" * 250, busy=True)[0] == 201


def test_loading_has_the_long_limit() -> None:
    assert run("S" * 60, ready=False)[0] == 21
    assert run("R" * 60, ready=False, busy=True) == (None, "")
