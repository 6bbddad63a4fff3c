"""Tool-call and thinking syntaxes, one file each; a new file is a new dialect."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from engine.errors import FtError
from engine.prompt.dialects.contract import Dialect


@cache
def dialects() -> dict[str, Dialect]:
    """Every dialect in this folder, by name."""
    found: dict[str, Dialect] = {}
    for module in pkgutil.iter_modules(__path__):
        dialect = getattr(importlib.import_module(f"{__name__}.{module.name}"), "DIALECT", None)
        if dialect is not None:
            found[dialect.name] = dialect
    return found


def find(name: str) -> Dialect:
    """Raises FtError for an unknown name."""
    try:
        return dialects()[name]
    except KeyError:
        raise FtError(
            f"The model wants the output syntax {name!r}; this build knows {', '.join(sorted(dialects()))}.",
            "Set `dialect` in the model's ftw.json to one of these.",
        ) from None
