"""What `make` shows of a long installation: each package as it comes, in few lines, and pip's failure."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = """\
Looking in links: /wheels
Collecting torch==2.13.0 (from -c constraints.txt (line 1))
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (28 kB)
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (192.4 MB)
Requirement already satisfied: numpy
Collecting uvicorn[standard]>=0.34 (from ftagent==0.1.0)
  Using cached uvicorn-0.34-py3-none-any.whl (60 kB)
Processing /wheels/click-8.5.1-py3-none-any.whl (from uvicorn)
  Building editable for ftagent (pyproject.toml): started
  Building editable for ftagent (pyproject.toml): finished with status 'done'
Installing collected packages: torch, uvicorn, ftagent
Successfully installed torch-2.13.0 uvicorn-0.34
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def shown(code: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "pip").write_text(PIP)
    rule = f"try:; @(cat {tmp_path}/pip; exit {code}) | $(PIP_SHOWN)"
    return subprocess.run(
        ["make", "-s", f"--eval={rule}", "try"], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_line_a_step(tmp_path: Path) -> None:
    done = shown(0, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines == ["torch (192.4 MB) uvicorn click", "building for ftagent", "unpacking"]


def test_a_failure_of_pip_stops_make(tmp_path: Path) -> None:
    assert shown(1, tmp_path).returncode != 0
