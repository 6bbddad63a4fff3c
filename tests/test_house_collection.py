"""Two processes that share a run must collect the same tests: a name may hold no time, no random bytes and no set's order."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_another_process_collects_the_same_tests(request: pytest.FixtureRequest) -> None:
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "addopts=",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests",
    ]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    here = {item.nodeid for item in request.session.items}
    assert not here - set(done.stdout.splitlines())
