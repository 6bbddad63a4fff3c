"""Whether a disk has room, before anything is written. Torch-free."""

from __future__ import annotations

import shutil
from pathlib import Path

from engine.errors import WeightsError


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raises WeightsError when the disk of `folder` has less free; a folder that is not there yet is on its parent's disk."""
    existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise WeightsError(
            f"{folder} needs {needed_bytes / 1e9:.1f} GB and its disk has {free / 1e9:.1f} GB free.",
            "Free some disk space, or choose another --models-dir.",
        )
