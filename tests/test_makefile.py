"""What `make` shows of a long installation: each large step as it comes, nothing of the rest, and pip's failure."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = """\
Collecting torch==2.13.0 (from -c constraints.txt (line 1))
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (28 kB)
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (192.4 MB)
Requirement already satisfied: numpy
  Building editable for ftagent (pyproject.toml): started
Installing collected packages: torch, ftagent
Successfully installed torch-2.13.0
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def shown(code: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "pip").write_text(PIP)
    rule = f"try:; @(cat {tmp_path}/pip; exit {code}) | $(PIP_SHOWN)"
    return subprocess.run(
        ["make", "-s", f"--eval={rule}", "try"], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_large_steps_are_shown(tmp_path: Path) -> None:
    done = shown(0, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["Downloading", "Building", "Installing"]
    assert "192.4 MB" in done.stdout


def test_a_failure_of_pip_stops_make(tmp_path: Path) -> None:
    assert shown(1, tmp_path).returncode != 0
