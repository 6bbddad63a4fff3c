"""The models that benchmarks run: random weights at the shapes of bench/peer_models.py, as GGUF for llama.cpp and imported for us."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import peer_models
from peer_models import SHAPES, Shape

WORK = Path(__file__).parent.parent / "build" / "bench"


@dataclass(frozen=True, slots=True)
class Pair:
    """The same weights twice: `gguf` for llama.cpp, `directory` for us. `name` is how rows call the shape."""

    name: str
    shape: Shape
    format: str
    gguf: Path
    directory: Path

    @property
    def token_bytes(self) -> int:
        """Bytes of weights that decoding one token reads, as they lie in the file."""
        return peer_models.token_bytes(self.shape, self.format)

    @property
    def resident_bytes(self) -> int:
        """Of both, when both engines hold them at once."""
        ours = sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())
        return self.gguf.stat().st_size + ours


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), help="default: a b")
    parser.add_argument("--formats", nargs="+", choices=peer_models.FORMATS, help="default: all")
    parser.add_argument(
        "--work", type=Path, default=WORK, help="folder for the models, up to 27 GB; default: build/bench"
    )
    parser.add_argument("--keep-models", action="store_true", help="leave the models in --work for the next run")


def chosen(args: argparse.Namespace) -> list[tuple[str, Shape, str]]:
    """(name of the rows, shape, format) of every comparison asked for; quick ones are cut to two layers of shape A."""
    if args.quick and not args.shapes:
        return [("a2", SHAPES["a"].cut(2), format) for format in args.formats or ("mxfp4",)]
    formats = args.formats or peer_models.FORMATS
    return [(name, SHAPES[name], format) for name in args.shapes or ("a", "b") for format in formats]


@contextmanager
def pair(name: str, shape: Shape, format: str, work: Path, keep: bool) -> Iterator[Pair]:
    """Both models, made where they are missing and deleted afterwards unless `keep`."""
    work.mkdir(parents=True, exist_ok=True)
    model = f"{name}-{format}"
    made = Pair(name, shape, format, work / f"{model}.gguf", work / model)
    try:
        if not made.gguf.exists():
            part = made.gguf.with_suffix(".part")
            peer_models.write(part, shape, format)
            shutil.rmtree(made.directory, ignore_errors=True)  # imported from another file
            part.rename(made.gguf)
        if not made.directory.exists():
            _import(made.gguf, work, model, format)
        yield made
    finally:
        if not keep:
            made.gguf.unlink(missing_ok=True)
            shutil.rmtree(made.directory, ignore_errors=True)


def _import(source: Path, models_dir: Path, name: str, format: str) -> None:
    """In the formats the file has, so that every matrix keeps its values."""
    command = [sys.executable, "-P", "-m", "engine", "models", "import", str(source), "--name", name]
    command += ["--models-dir", str(models_dir), "--format", format, "--dense-format", peer_models.dense_format(format)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
