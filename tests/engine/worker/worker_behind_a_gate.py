"""Run as a script: the real worker, whose experts come from disk only when a layer needs them until the file named first
exists; what is needed comes so many seconds late."""

import sys
import time
from pathlib import Path

from engine.weights import direct
from engine.worker import main

PIECE = direct.READ_BYTES = 32 << 10
gate, late_s = Path(sys.argv[1]), float(sys.argv[2])
needed: set[tuple[Path, int]] = set()
read, hurry = direct.FileRead._read, direct.FileRead.hurry


def gated(self: direct.FileRead, offset: int) -> int:
    if self.path.name.startswith("experts-"):
        while not gate.exists() and (self.path, offset) not in needed:
            time.sleep(0.005)
        time.sleep(0 if gate.exists() else late_s)
    return read(self, offset)


def noted(self: direct.FileRead, spans: object) -> None:
    spans = list(spans)  # type: ignore[call-overload]
    needed.update(
        (self.path, at // PIECE * PIECE) for start, end in spans for at in (*range(start, end, PIECE), end - 1)
    )
    hurry(self, spans)


direct.FileRead._read, direct.FileRead.hurry = gated, noted  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main(sys.argv[3:]))
