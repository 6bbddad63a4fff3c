"""Engines on one machine, as processes: disjoint cores, or a warning that says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from engine.device.cores import _siblings

SYSFS = Path("/sys/devices/system/cpu")

CODE = """
import os, sys
from engine.device.cores import claim
found = claim(int(sys.argv[1]), sys.argv[2])
print(sorted(found.own), sorted(found.shared), sorted(os.sched_getaffinity(0)), found.warning, sep="|", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def engines():
    scope, running = uuid.uuid4().hex, []

    def start(threads: int) -> list[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(threads), scope], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process.stdout.readline().strip().split("|")

    yield start
    for process in running:
        process.stdin.close()
        process.wait(120)


every = len({min(_siblings(cpu, SYSFS)) for cpu in os.sched_getaffinity(0)})
needs_two = pytest.mark.skipif(every < 2, reason="one core")


@needs_two
def test_case_51_two_engines_with_a_part_each_run_on_disjoint_cores(engines):
    first, second = engines(1), engines(1)
    assert first[0] != second[0]
    assert first[1] == second[1] == "[]"
    assert not set(json.loads(first[2])) & set(json.loads(second[2])), "each is kept on its own"
    assert first[3] == second[3] == ""


def test_case_51_engines_that_want_the_same_cores_are_told(engines):
    first, second = engines(every), engines(every)
    assert first[1] == "[]" and first[3] == ""
    assert second[0] == "[]"
    assert f"uses {every} of the {every} cores" in second[3] and "--threads" in second[3]
    assert second[2] == first[2], "nobody is pinned to nothing"


def test_cores_of_an_engine_that_ended_are_free_again(engines):
    code = CODE.replace("sys.stdin.read()", "")
    scope = uuid.uuid4().hex
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(every), scope], capture_output=True, text=True)
        assert done.stdout.split("|")[1] == "[]", done.stderr


def test_siblings_are_read_from_the_system(tmp_path):
    for cpu, text in ((0, "0,4\n"), (1, "1-2\n"), (3, "nonsense")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(text)
    assert [_siblings(cpu, tmp_path) for cpu in (0, 1, 3, 9)] == [{0, 4}, {1, 2}, {3}, {9}]
