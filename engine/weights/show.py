"""How the `models` commands print: data on stdout, progress on stderr. Torch-free."""

from __future__ import annotations

import json
import sys
from typing import Any

from engine.weights.manifest import Manifest, Progress


def summary(manifest: Manifest) -> dict[str, Any]:
    """The fields of `ls`, `show` and of what was just made."""
    return {
        "name": manifest.name,
        "directory": str(manifest.directory),
        "arch": manifest.arch,
        "source": manifest.source,
        "created_by": manifest.created_by,
        "bytes": manifest.total_bytes,
        "window_tokens": manifest.window_tokens,
        "experts": manifest.geometry.experts,
        "top_k": manifest.geometry.top_k,
        "formats": sorted(
            {bank.format for bank in manifest.banks} or {e.format for e in manifest.dense.values() if e.format}
        ),
        "kv_dtype": manifest.kv_dtype,
        "dialect": manifest.dialect,
        "thinking": manifest.thinking,
        "quality": manifest.quality,
    }


def progress_line(label: str) -> Progress:
    """A progress line on a terminal, and a line per quarter elsewhere."""
    shown = -1
    live = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent == shown or (not live and percent // 25 == shown // 25):
            return
        shown = percent
        end = "\r" if live and done < total else "\n"
        print(f"{label} {percent:3d} %", end=end, file=sys.stderr, flush=True)

    return show


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def file_size_text(n_bytes: int) -> str:
    """For people, in powers of ten as disks are sold: "17.30 GB". Memory is told in powers of two (memory.plan.size_text)."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
