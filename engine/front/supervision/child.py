"""The worker as an operating-system process: how it is started, whether it moves, and what its end means."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import WorkerGone

# Everything else stays out of the worker, above all PYTHON* variables of the user's project and provider keys.
_KEPT = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME"}
_KEPT_PREFIXES = ("LC_", "FT_", "OMP_", "MKL_", "KMP_", "CUDA_", "NVIDIA_", "TORCH", "PYTORCH_", "TRITON_", "MALLOC_")
WORKER_COMMAND = (sys.executable, "-P", "-m", "engine", "worker")
_OOM_SCORE = "500"  # the kernel takes the worker before the front, which can then say what happened
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of `environ` that a worker may see."""
    return {k: v for k, v in environ.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}


@dataclass(frozen=True, slots=True)
class Movement:
    """A look at a process: its kernel state letter and the CPU ticks it has used."""

    state: str
    ticks: int


class Child:
    """One started worker, in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._oom_kills = _oom_kills()

    @property
    def pid(self) -> int:
        return self._process.pid

    @staticmethod
    async def start(arguments: Sequence[str], log: Path | None, environ: Mapping[str, str]) -> Child:
        """Run WORKER_COMMAND with `arguments`; output goes to `log`, or to our standard error without one."""
        output = log.open("ab") if log else None
        try:
            process = await asyncio.create_subprocess_exec(
                *WORKER_COMMAND,
                *arguments,
                stdin=subprocess.DEVNULL,
                stdout=output or sys.stderr.fileno(),
                stderr=output or sys.stderr.fileno(),
                env=worker_environment(environ),
                start_new_session=True,
            )
        finally:
            if output:
                output.close()
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(_OOM_SCORE)
        return Child(process)

    async def wait(self) -> int:
        """The exit code; negative: minus the signal."""
        return await self._process.wait()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the whole process group; a group that is gone is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def movement(self) -> Movement | None:
        """None where /proc does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return Movement(state=fields[0], ticks=int(fields[11]) + int(fields[12]))

    def explain(self, exit_code: int) -> WorkerGone:
        """What the end of this process means, in one sentence and one next step."""
        if exit_code >= 0:
            return WorkerGone(f"The worker ended with exit code {exit_code}.", "The log has its last words.")
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        if name == "SIGKILL" and _oom_kills() > self._oom_kills:
            return OutOfMemory("The worker was ended by the kernel's out-of-memory killer (SIGKILL).", _SHRINK)
        if name == "SIGKILL":
            return WorkerGone("The worker was killed by SIGKILL.", f"If nobody did that, memory ran out: {_SHRINK}")
        return WorkerGone(f"The worker was killed by {name}.", "The log has its last words.")


class OutOfMemory(WorkerGone):
    """The kernel took the worker for want of memory; starting it again with the same sizes is pointless."""

    code = "FT-E0514 out-of-memory"


_SHRINK = "Serve with a smaller --kv, or a smaller model."


def _oom_kills() -> int:
    """How often the kernel killed something in our memory group; 0 when it does not say."""
    try:
        lines = _CGROUP_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
