"""An engine whose worker is the fake one, and the file that tells it how to behave."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.serving import Engine, engine_server

SERVE_FAKE = (sys.executable, str(Path(__file__).parent / "fake_serve.py"))


class Control:
    """How the fake worker treats the requests that come from now on; see fake_worker.py."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, **rules: Any) -> None:
        self._file.write_text(json.dumps(rules))

    def go(self) -> None:
        """Let a worker in mode `wait` become ready."""
        (self._file.parent / "go").touch()


@contextlib.contextmanager
def fake_engine(
    models_dir: Path, flags: Sequence[str] = (), ready: bool = True, patient: bool = True, **rules: Any
) -> Iterator[tuple[Engine, Control]]:
    """An engine serving tiny-hybrid's language with the fake worker; impatient, the first loss of it is one too many."""
    with tempfile.TemporaryDirectory(prefix="ft-fake-") as folder:
        control = Control(Path(folder) / "control.json")
        control.set(**rules)
        environ = {"FT_FAKE_WORKER": str(Path(folder) / "control.json")}
        if not patient:
            environ["FT_FAKE_PATIENCE"] = "none"
        with engine_server(
            "tiny-hybrid", models_dir, flags=flags, environ=environ, command=SERVE_FAKE, ready=ready
        ) as engine:
            yield engine, control
