"""The folder of models: names to directories. Torch-free."""

from __future__ import annotations

import re
from pathlib import Path

from engine.errors import BadRequest, NotFound
from engine.weights.manifest import MANIFEST_FILE

PULLABLE = ("smollm2-moe",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def model_names(models_dir: Path) -> list[str]:
    """Names of the model directories in `models_dir`, sorted; half-written ones (hidden names) are not models."""
    if not models_dir.is_dir():
        return []
    return sorted(p.parent.name for p in models_dir.glob(f"*/{MANIFEST_FILE}") if not p.parent.name.startswith("."))


def find_model(models_dir: Path | str, name_or_dir: str) -> Path:
    """The directory of a model given by name or by path. Raises NotFound with the names there are."""
    models_dir = Path(models_dir)
    if _NAME.fullmatch(name_or_dir) and (models_dir / name_or_dir / MANIFEST_FILE).is_file():
        return models_dir / name_or_dir
    path = Path(name_or_dir).expanduser()
    if ("/" in name_or_dir or path.is_absolute()) and path.is_dir():
        return path.resolve()
    names = model_names(models_dir)
    known = f"Available: {', '.join(names)}." if names else f"No model is here yet: ft models pull {PULLABLE[0]}"
    raise NotFound(f"There is no model {name_or_dir!r} in {models_dir}.", known)


def check_name(name: str) -> str:
    """`name` when it can name a model directory. Raises BadRequest otherwise."""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name!r} cannot name a model.", "Use letters, digits, '.', '_' and '-'.")
    return name
