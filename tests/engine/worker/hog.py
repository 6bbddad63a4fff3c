"""Another program on a worker's machine, which takes memory and lets it go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOG = """
import mmap, sys
print("calm", flush=True)
held = None
for line in sys.stdin:
    if held is not None:
        held.close()
    size = int(line)
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if size else None
    for at in range(0, size, 4096):
        held[at] = 1
    print("held", size, flush=True)
"""


class Hog:
    """Another program on the worker's machine: a real process, which really takes what it is told to. `shared` are the bytes
    that it and the worker have together; they are set when the worker has told how much it shares out."""

    def __init__(self, description: Path) -> None:
        self.description, self.holds = description, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "calm\n"
        status = Path(f"/proc/{self.process.pid}/status").read_text().split()
        self.calm = int(status[status.index("RssAnon:") + 1]) * 1024
        self.share(1 << 30)

    def share(self, n_bytes: int) -> None:
        told = {"bytes": n_bytes, "pid": self.process.pid, "calm_bytes": self.calm}
        new = self.description.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.description)

    def take(self, n_bytes: int) -> None:
        """Hold so much from now on; 0: nothing."""
        assert n_bytes < 2 << 30
        self.process.stdin.write(f"{n_bytes}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"held {n_bytes}\n"
        self.holds = n_bytes

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
