"""Architectures, one file each: a file with `MODEL = ModelSpec(...)` in this folder is an architecture."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from engine.errors import Unsupported

if TYPE_CHECKING:
    from engine.models.spec import ModelSpec

_NOT_ARCHITECTURES = frozenset({"spec", "common"})


def names() -> list[str]:
    """File names of the architectures, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_ARCHITECTURES)


def get(model_type: str) -> ModelSpec:
    """The architecture that understands `model_type`. Raises Unsupported with the ones there are."""
    known: list[str] = []
    for name in names():
        found: ModelSpec = importlib.import_module(f"{__name__}.{name}").MODEL
        if model_type in found.model_types:
            return found
        known += found.model_types
    raise Unsupported(f"Architecture {model_type!r} is not offered.", f"Known: {', '.join(sorted(known))}.")
