"""Models shared by every test, made once per machine by the real command."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parent.parent
_SHARING = ("tests/engine/api/", "tests/engine/models/")
_MAKE = "import sys; from engine.weights.commands import main; sys.exit(main(sys.argv[1:]))"


def pytest_configure() -> None:
    """A shell's background jobs ignore Ctrl-C and Ctrl-\\, and so would every program that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which tests stay together when several processes share them: those of a file; and of a folder whose files share what is
    slow to make, which each file would make anew when others ran between them."""
    from xdist.scheduler import LoadFileScheduling

    class Rooms(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((folder for folder in _SHARING if file.startswith(folder)), file)

    return Rooms(config, log)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """A folder with the models `smollm2-moe` and `tiny-hybrid`. Read-only: tests that damage one copy it first.

    It is kept in the user's cache, under a key that changes when the writer or a map does.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ft" / "test-models" / _key()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".tests.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = all((cache / name / "ftw.json").exists() for name in ("tiny-hybrid", "smollm2-moe"))
        if not there or not lock.seek(0, os.SEEK_END):
            for command in (["tiny-hybrid"], ["pull", "smollm2-moe"]):
                _make([*command, "--models-dir", str(cache)])
            lock.write("made\n")
    return cache


def _key() -> str:
    """The writer's version, the fields of a manifest and the tensor names the architectures map to: what decides whether a kept model still fits."""
    from engine.weights.builtin import YARN_ATTENTION_FACTOR, YARN_FACTOR
    from engine.weights.convert import CREATED_BY, weight_map_of
    from engine.weights.manifest import Bank, DenseEntry, Manifest
    from engine.weights.seeded import tiny_hybrid_config

    mixtral = {
        "model_type": "mixtral",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 65536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }
    digest = hashlib.sha256(CREATED_BY.encode())
    digest.update(repr([field.name for kind in (Manifest, DenseEntry, Bank) for field in fields(kind)]).encode())
    digest.update(repr((YARN_FACTOR, YARN_ATTENTION_FACTOR)).encode())
    for config in (mixtral, tiny_hybrid_config(49158, 2)):
        weight_map = weight_map_of(config)
        for name, tensor in weight_map.dense.items():
            digest.update(repr((name, tensor.sources, tensor.packed, tensor.format, tensor.build is None)).encode())
        digest.update(repr((weight_map.experts, weight_map.geometry)).encode())
    return digest.hexdigest()[:12]


def _make(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, *command], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
