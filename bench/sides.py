"""The two sides of a comparison, ours and llama.cpp's: processes that answer the same requests, stopped between them.

A side that is not asked something is stopped by a signal, because thread pools spin for a while after work and nothing of that
may run beside a measurement of the other side.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent
BUILT = HERE.parent / "build" / "peer" / "bin" / "python"
NO_PEER = "no llama.cpp here: `make peer` builds one, --peer-python or FT_BENCH_PEER names one"


class Side:
    """One engine with one model and one sequence."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = self._answer()  # what it says about itself once the model is loaded
        self._stop()

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def prefill(self, tokens: Sequence[int]) -> tuple[float, int]:
        """(seconds, the most likely next token) of a new sequence."""
        answer = self.ask({"op": "prefill", "tokens": list(tokens)})
        return answer["seconds"], answer["tokens"][0]

    def decode(self, steps: int) -> tuple[float, list[int]]:
        """(seconds, tokens chosen) of `steps` greedy steps that go on with the sequence."""
        answer = self.ask({"op": "decode", "steps": steps})
        return answer["seconds"], answer["tokens"]

    def feed(self, tokens: Sequence[int]) -> float:
        """Seconds that going on with `tokens`, one step each, took."""
        return float(self.ask({"op": "feed", "tokens": list(tokens)})["seconds"])

    def logits(self, path: Path) -> None:
        """Write the last token's logits to `path`, raw fp32."""
        self.ask({"op": "logits", "path": str(path)})

    def faults(self) -> dict[str, Any]:
        """Page faults of the process so far: {major, minor}."""
        return self.ask({"op": "faults"})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        self._stop()
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)


def llama(python: Path, model: Path, threads: int, context: int, ubatch: int = 512, mmap: bool = False) -> Side:
    """llama.cpp on a GGUF file. `ubatch` is its physical batch; `mmap` leaves the weights in the file and forgoes repacked
    ones, which would be a copy in RAM."""
    command = [str(python), str(HERE / "serve_llama.py"), str(model), "--threads", str(threads)]
    command += ["--context", str(context), "--ubatch", str(ubatch), *(["--mmap"] if mmap else [])]
    return Side(command)


def ours(directory: Path, threads: int, context: int, *more: str) -> Side:
    """Our engine on a model directory; `more` are further flags of serve_ours.py."""
    command = [sys.executable, str(HERE / "serve_ours.py"), str(directory), "--threads", str(threads)]
    return Side([*command, "--context", str(context), *more])


def add_peer_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peer-python",
        type=Path,
        help="a Python with llama-cpp-python; default: FT_BENCH_PEER, then what `make peer` built",
    )


def find_peer(given: Path | None) -> Path | None:
    """The Python that runs llama.cpp, or None when there is none."""
    if given is not None:
        return None if str(given) == "none" else given
    named = os.environ.get("FT_BENCH_PEER")
    if named:
        return Path(named)
    return BUILT if BUILT.exists() else None
