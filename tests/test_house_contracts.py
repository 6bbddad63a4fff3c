"""Who may import whom: the static graph by import-linter, the deferred imports by looking at `sys.modules`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

HEAVY = {"torch", "triton", "numpy", "fastapi", "textual", "engine", "transformers", "httpx", "pydantic"}


def modules_after(code: str) -> set[str]:
    """Top-level modules in `sys.modules` after running code in a fresh interpreter."""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            f"{code}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_contracts() -> None:
    done = subprocess.run([str(BIN / "lint-imports"), "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_help_loads_nothing_heavy() -> None:
    code = "from ftagent.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not modules_after(code) & HEAVY


@pytest.mark.parametrize(
    "module",
    ["engine.front.server", "engine.api.chat", "engine.memory.planner", "engine.scheduler.loop", "engine.cache.radix"],
)
def test_what_decides_is_torch_free(module: str) -> None:
    assert "torch" not in modules_after(f"import {module}")


def test_help_is_quick() -> None:
    """Median of five: under 150 ms of processor time where Python itself starts in 20 ms, and as much more where it is slower."""
    bare, helped = [], []
    for _ in range(5):
        bare.append(_processor_s(sys.executable, "-c", "pass"))
        helped.append(_processor_s(str(BIN / "ft"), "--help"))
    assert sorted(helped)[2] < 0.15 * max(1.0, sorted(bare)[2] / 0.02)


def _processor_s(*command: str) -> float:
    before = os.times()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def test_lint_and_format() -> None:
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run([str(BIN / "ruff"), *arguments, "."], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
