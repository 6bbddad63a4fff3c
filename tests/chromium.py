"""The Chromium that tests of the web console run in: one on PATH, else the one that npm has for servers, in the tests' own cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.browser import find

PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
TIMEOUT_S = 600
_UNPACK = (
    "const z=require('zlib'),f=require('fs'),[from,to]=process.argv.slice(1);"
    "f.writeFileSync(to,z.brotliDecompressSync(f.readFileSync(from)),{mode:0o755})"
)


class Missing(Exception):
    """There is none, and none can be had; says why."""


def executable() -> str:
    """A program to start. Raises Missing."""
    return find() or str(_installed())


def _installed() -> Path:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise Missing("no Chromium on PATH, and npm is not installed")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("FT_TEST_AGENTS") or base / "ft" / "test-agents") / f"chromium-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    started = folder / "chromium.sh"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not started.exists():
            _fetch(folder, npm, node)
            started.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{folder}/lib" exec "{folder}/chromium" "$@"\n')
            started.chmod(0o755)
    return started


def _fetch(folder: Path, npm: str, node: str) -> None:
    fetch = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", f"{PACKAGE}@{VERSION}"]
    packed = folder / "node_modules" / PACKAGE / "bin"
    commands = [
        fetch,
        *([node, "-e", _UNPACK, str(packed / f"{name}.br"), str(folder / name)] for name in ("chromium", "al2023.tar")),
    ]
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise Missing(f"no Chromium on PATH, and {PACKAGE} cannot be installed: {done.stderr.strip()[-300:]}")
    with tarfile.open(folder / "al2023.tar") as libraries:  # those that it needs and a bare system lacks
        libraries.extractall(folder, filter="data")
