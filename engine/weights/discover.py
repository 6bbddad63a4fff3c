"""Models that other programs have on this machine: Ollama, LM Studio and the Hugging Face cache. Only looks. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.weights.config import is_plain

_MODEL_LAYER = "application/vnd.ollama.image.model"
_OLLAMA_HUB, _OLLAMA_LIBRARY = "registry.ollama.ai", "library"


@dataclass(frozen=True, slots=True)
class Found:
    """`id` names it in `ft models import`; `path` is a GGUF file or a folder of safetensors."""

    id: str
    kind: str  # gguf | safetensors
    path: Path
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def discover(env: Mapping[str, str], home: Path) -> list[Found]:
    """Everything found, by id. Folders that are missing, unreadable or damaged are passed over."""
    found = [*_ollama(env, home), *_lmstudio(home), *_hf_cache(env, home)]
    return sorted(found, key=lambda model: model.id)


def find(wanted: str, env: Mapping[str, str], home: Path) -> Found | None:
    """The model with that id."""
    return next((model for model in discover(env, home) if model.id == wanted), None)


def _ollama(env: Mapping[str, str], home: Path) -> Iterator[Found]:
    """manifests/<host>/<namespace>/<model>/<tag> is JSON whose model layer is blobs/sha256-<digest>, a GGUF file."""
    roots = [Path(env["OLLAMA_MODELS"])] if env.get("OLLAMA_MODELS") else []
    roots += [home / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    for root in roots:
        for file in _files(root / "manifests"):
            parts = file.relative_to(root / "manifests").parts
            digest = _ollama_digest(file)
            blob = root / "blobs" / digest.replace(":", "-")
            if len(parts) < 3 or not digest or not _is_file(blob):
                continue
            host, *names, tag = parts
            names = names[1:] if names[0] == _OLLAMA_LIBRARY else names
            prefix = () if host == _OLLAMA_HUB else (host,)
            yield Found(f"ollama:{'/'.join((*prefix, *names))}:{tag}", "gguf", blob, blob.stat().st_size)


def _ollama_digest(file: Path) -> str:
    try:
        layers = json.loads(file.read_bytes())["layers"]
        found = [layer["digest"] for layer in layers if layer["mediaType"] == _MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    # Several layers are the parts of one file that only Ollama puts together.
    return found[0] if len(found) == 1 and isinstance(found[0], str) and "/" not in found[0] else ""


def _lmstudio(home: Path) -> Iterator[Found]:
    """<publisher>/<repository>/*.gguf, or a folder of safetensors."""
    for root in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):
        for folder in _folders(root, depth=2):
            yield from _gguf_files(folder, f"lmstudio:{folder.parent.name}/{folder.name}")
            if _is_checkpoint(folder):
                yield Found(f"lmstudio:{folder.parent.name}/{folder.name}", "safetensors", folder, _size(folder))


def _hf_cache(env: Mapping[str, str], home: Path) -> Iterator[Found]:
    """models--<org>--<name>/snapshots/<commit>/; the newest snapshot that is whole."""
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hf_home = Path(env.get("HF_HOME") or cache / "huggingface")
    for folder in _folders(Path(env.get("HF_HUB_CACHE") or hf_home / "hub"), depth=1):
        if not folder.name.startswith("models--"):
            continue
        name = "/".join(folder.name.split("--")[1:])
        snapshots = sorted(_folders(folder / "snapshots", depth=1), key=lambda s: s.stat().st_mtime, reverse=True)
        for snapshot in snapshots:
            models = list(_gguf_files(snapshot, f"hf:{name}"))
            if _is_checkpoint(snapshot):
                models.append(Found(f"hf:{name}", "safetensors", snapshot, _size(snapshot)))
            if models:
                yield from models
                break


def _gguf_files(folder: Path, id: str) -> Iterator[Found]:
    """One for every GGUF file; of a split one, its first part stands for all."""
    files = [file for file in _files(folder) if file.suffix == ".gguf" and not file.name.startswith("mmproj")]
    for file in files:
        stem, of, count = file.stem.rpartition("-of-")
        if of and not stem.endswith("-00001"):
            continue
        parts = [file]
        if of:
            parts = [f for f in files if f.stem.startswith(stem[: -len("00001")]) and f.stem.endswith(f"-of-{count}")]
        yield Found(f"{id}/{file.name}", "gguf", file, sum(part.stat().st_size for part in parts))


def _is_checkpoint(folder: Path) -> bool:
    """Whether every file that its index names is there."""
    if not _is_file(folder / "config.json"):
        return False
    index = folder / "model.safetensors.index.json"
    if not _is_file(index):
        return _is_file(folder / "model.safetensors")
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        return all(is_plain(name) and _is_file(folder / name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _folders(root: Path, depth: int) -> Iterator[Path]:
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in inside:
        if depth == 1:
            yield folder
        else:
            yield from _folders(folder, depth - 1)


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            if _is_file(file := Path(folder) / name):
                yield file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
