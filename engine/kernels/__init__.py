"""Kernels behind one interface (contract.py): `get("cpu")` is C++, `get("reference")` is plain torch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Ops

_REINSTALL = "Install them again: pip install --force-reinstall --no-deps ftagent"


def best_activations() -> str:
    """The activation precision this processor is fastest with: "bf16" where it multiplies bf16 pairs itself, else "f32"."""
    from . import _cpu

    return "bf16" if _cpu.has_bf16() else "f32"


@cache
def get(name: str) -> Ops:
    """The backend called `name`: "cpu" or "reference".

    Raises Unsupported for any other name, and when the compiled extension is missing, damaged or of another build.
    """
    if name == "cpu":
        try:
            from .cpu import CpuOps
        except ModuleNotFoundError:
            raise  # another package is missing, which says so itself
        except ImportError as error:
            from engine.errors import Unsupported

            where = f"{error.path}: " if error.path and error.path not in str(error) else ""
            raise Unsupported(f"The compiled kernels cannot be loaded: {where}{error}.", _REINSTALL) from None
        return CpuOps()
    if name == "reference":
        from .reference import ReferenceOps

        return ReferenceOps()
    from engine.errors import Unsupported

    raise Unsupported(f"no kernels called {name!r}", "Use cpu or reference.")
