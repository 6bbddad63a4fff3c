"""What can be pinned is found by asking the system, in processes with limits of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.memory.hardware import resident_bytes
from engine.memory.pinning import Pinnable, pinnable

MIB = 1 << 20
CODE = """
import json, os, resource, sys
from engine.memory.pinning import pinnable
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
if os.getuid() == 0:  # for whom no limit holds
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps(pinnable(int(sys.argv[1])).to_json()))
"""


def in_a_process(asked: int, limit: int) -> dict:
    """As somebody without privileges."""
    argv = [sys.executable, "-c", CODE, str(asked), str(limit)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("limit", [1 * MIB, 8 * MIB])
def test_the_limit_is_found_by_trying(limit):
    found = in_a_process(64 * MIB, limit)
    assert found["measured"] and found["limit_bytes"] == limit
    assert limit - 2 * (64 << 10) <= found["bytes"] <= limit
    small = in_a_process(MIB // 2, limit)
    assert small["bytes"] == small["asked_bytes"] == MIB // 2


def test_asking_takes_no_memory_and_leaves_nothing_pinned():
    before = resident_bytes()
    found = pinnable(512 * MIB)
    assert resident_bytes() - before < 64 * MIB
    assert 0 <= found.bytes <= found.asked_bytes
    with open("/proc/self/status") as status:
        (locked,) = [line for line in status if line.startswith("VmLck:")]
    assert int(locked.split()[1]) == 0
    assert pinnable(512 * MIB) == found


def test_it_says_what_that_means():
    assert "all that was asked for" in Pinnable(64 * MIB, 64 * MIB, None, True).sentence
    assert "8.0 MiB can be pinned (ulimit -l)" in Pinnable(8 * MIB, 64 * MIB, 8 * MIB, True).sentence
