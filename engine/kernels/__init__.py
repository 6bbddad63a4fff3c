"""Kernels behind one interface (contract.py): `get("cpu")` is C++, `get("reference")` is plain torch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Ops


@cache
def get(name: str) -> Ops:
    """The backend called `name`: "cpu" or "reference". Raises Unsupported for any other name."""
    if name == "cpu":
        from .cpu import CpuOps

        return CpuOps()
    if name == "reference":
        from .reference import ReferenceOps

        return ReferenceOps()
    from engine.errors import Unsupported

    raise Unsupported(f"no kernels called {name!r}", "Use cpu or reference.")
