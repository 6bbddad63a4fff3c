"""One launch context for every harness, with paths that do not exist: an adapter reads what it is handed, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harnesses.contract import LaunchContext

MakeContext = Callable[..., LaunchContext]


@pytest.fixture
def make_context(tmp_path: Path) -> MakeContext:
    def make(**changes: Any) -> LaunchContext:
        fields: dict[str, Any] = {
            "executable": None,
            "version": None,
            "args": [],
            "cwd": tmp_path / "home" / "project",
            "home": tmp_path / "home",
            "env": {"PATH": "/usr/bin"},
            "session_id": "s-abcdefghij",
            "token": "ft_sess_secret-of-this-launch",
            "base_url": "http://127.0.0.1:1919/s/s-abcdefghij",
            "model": "tiny",
            "window_tokens": 131072,
            "max_output_tokens": 8192,
            "state_dir": tmp_path / "state" / "s-abcdefghij",
        }
        used_before = {str(tmp_path / "home" / ".claude.json"): '{"hasCompletedOnboarding": true}'}
        return LaunchContext(**{**fields, **changes, "files": {**used_before, **changes.get("files", {})}})

    return make
