"""What other programs want: what lasts is acted on, what threatens at once is acted on at once, what flutters moves nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory.available import MEMINFO, Available, read_available
from engine.memory.foreign import RETURN_S, SETTLE_S, Foreign, Host

MIB = 1 << 20
TOTAL, RESERVE = 16 << 30, 512 * MIB


class Machine:
    """A clock and a reader that a test sets."""

    def __init__(self, free_mib: int) -> None:
        self.now, self.free = 100.0, free_mib * MIB

    def read(self) -> Available:
        return Available(self.free, TOTAL, "free memory")

    def clock(self) -> float:
        return self.now

    def pass_s(self, foreign: Foreign, seconds: float, free_mib: int | None = None, every_s: float = 0.1):
        """Look again and again; the last look."""
        if free_mib is not None:
            self.free = free_mib * MIB
        spare = None
        for _ in range(round(seconds / every_s)):
            self.now += every_s
            spare = foreign.look()
        return spare


def watched(free_mib: int) -> tuple[Machine, Foreign]:
    machine = Machine(free_mib)
    foreign = Foreign(machine, clock=machine.clock)
    assert foreign.look().reserve_bytes == min(RESERVE, free_mib * MIB // 2)
    return machine, foreign


def test_a_shortage_that_lasts_is_given_back_in_full_and_no_earlier():
    machine, foreign = watched(4096)
    machine.pass_s(foreign, 5)
    assert machine.pass_s(foreign, SETTLE_S - 0.2, free_mib=400).give_back_bytes == 0
    assert machine.pass_s(foreign, 0.4).give_back_bytes == RESERVE - 400 * MIB


def test_what_threatens_at_once_is_given_back_at_once():
    machine, foreign = watched(4096)
    machine.pass_s(foreign, 5)
    spare = machine.pass_s(foreign, 0.1, free_mib=100)
    assert spare.give_back_bytes == RESERVE - 100 * MIB and spare.may_take_bytes == 0


def test_a_flutter_moves_nothing():
    machine, foreign = watched(2048)
    for _ in range(200):
        assert machine.pass_s(foreign, 0.3, free_mib=300).give_back_bytes == 0
        spare = machine.pass_s(foreign, 0.3, free_mib=2048)
        assert spare.give_back_bytes == 0
    assert spare.may_take_bytes == 0, "nothing is taken of what was not free all the time"


def test_it_comes_back_only_when_it_has_been_free_for_a_while():
    machine, foreign = watched(4096)
    machine.pass_s(foreign, 5, free_mib=100)
    assert machine.pass_s(foreign, RETURN_S - 0.5, free_mib=4096).may_take_bytes == 0
    spare = machine.pass_s(foreign, 1.5)
    assert spare.may_take_bytes == 4096 * MIB - RESERVE - RESERVE // 2


def test_looks_that_are_rare_still_need_two_to_agree():
    machine, foreign = watched(4096)
    machine.now += 60
    machine.free = 400 * MIB
    assert foreign.look().give_back_bytes == 0
    machine.now += 60
    assert foreign.look().give_back_bytes == RESERVE - 400 * MIB


def test_memory_that_was_planned_and_not_touched_yet_is_not_free():
    machine, foreign = watched(4096)
    for _ in range(30):
        machine.now += 0.1
        spare = foreign.look(promised_bytes=3800 * MIB)
    assert spare.give_back_bytes == RESERVE - 296 * MIB and spare.available_bytes == 4096 * MIB


def test_a_machine_that_had_little_left_at_the_start_is_not_short():
    machine, foreign = watched(64)
    assert machine.pass_s(foreign, 30).give_back_bytes == 0
    assert machine.pass_s(foreign, 2, free_mib=8).give_back_bytes == 24 * MIB


def test_a_reader_that_fails_changes_nothing():
    class Broken:
        def read(self) -> Available:
            raise OSError("gone")

    spare = Foreign(Broken()).look()
    assert (spare.give_back_bytes, spare.may_take_bytes) == (0, 0)


@given(st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 8192)), min_size=1, max_size=60))
def test_never_both_and_never_more_than_is_short_or_free(steps):
    machine, foreign = watched(2048)
    for seconds, free_mib in steps:
        machine.now += seconds
        machine.free = free_mib * MIB
        spare = foreign.look()
        beyond = spare.available_bytes - spare.reserve_bytes
        assert not (spare.give_back_bytes and spare.may_take_bytes)
        assert 0 <= spare.give_back_bytes <= max(0, -beyond)
        assert 0 <= spare.may_take_bytes <= max(0, beyond)
        assert set(spare.to_json()) >= {"available_bytes", "give_back_bytes", "limited_by"}


HOG = "import sys; block = bytearray(int(sys.argv[1])); print('held', flush=True); sys.stdin.read()"


def free_bytes() -> int:
    line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemFree:"))
    return int(line.split()[1]) * 1024


def test_this_machine_tells_of_memory_that_another_process_takes():
    """The real reader against a real hog: what it takes is missing from what is available, and comes back."""
    size = 384 * MIB
    before, free_before = Host().read(), free_bytes()
    if before.bytes < 4 * size:
        pytest.skip("not enough memory free here")
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hog.stdout.readline() == b"held\n"
    during, free_during = Host().read(), free_bytes()
    hog.communicate(timeout=60)
    time.sleep(0.5)
    after, free_after = Host().read(), free_bytes()
    if min(free_before, free_after) - free_during < size * 3 // 4:
        pytest.skip("others take and give back memory here, as a virtual machine's balloon does")
    assert before.bytes - during.bytes > size // 2
    assert after.bytes - during.bytes > size // 2


def test_memory_groups_of_both_kinds_and_all_their_parents_count(tmp_path):
    meminfo, groups, membership = tmp_path / "meminfo", tmp_path / "groups", tmp_path / "membership"
    meminfo.write_text("MemTotal: 1000 kB\nMemAvailable:    640 kB\n")
    inner = groups / "user" / "job"
    inner.mkdir(parents=True)
    membership.write_text("0::/user/job\n")

    def read() -> tuple[int, str]:
        found = read_available(meminfo, groups, membership)
        return found.bytes, found.limited_by

    assert read() == (640 * 1024, "free memory")
    (groups / "user" / "memory.max").write_text("500000\n")
    (groups / "user" / "memory.current").write_text("300000\n")
    assert read() == (200000, "the memory limit of this container")
    (groups / "user" / "memory.stat").write_text("anon 5\ninactive_file 100000\nactive_file 7\n")
    assert read()[0] == 300000, "the file cache is dropped before anything is refused"
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1\n")
    assert read()[0] == 300000
    (groups / "user" / "memory.max").write_text("100000\n")
    assert read()[0] == 0
    (groups / "user" / "memory.max").write_text("max\n")
    old = groups / "memory" / "box"
    old.mkdir(parents=True)
    membership.write_text("4:memory:/box\n0::/\n")
    (old / "memory.limit_in_bytes").write_text("400000\n")
    (old / "memory.usage_in_bytes").write_text("350000\n")
    (old / "memory.stat").write_text("total_inactive_file 50000\n")
    assert read() == (100000, "the memory limit of this container")
    (old / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read() == (640 * 1024, "free memory")
