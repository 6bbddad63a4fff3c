"""Weight formats: one file each, found by listing this folder. Every file is the numpy oracle of one kernel layout.

A format module has `FORMAT` (its name), `quantise(w)` and `dequantise(q)` (numpy, [n, k] fp32 to codes and back), `pack(w)`
(kernel layout bytes) and `unpack(bytes, n, k)` (the exact fp32 values the kernels multiply with).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class Format(Protocol):
    """What a module of this folder provides."""

    FORMAT: str

    def quantise(self, w: Floats) -> Any:
        """[n, k] fp32 -> the format's codes, k a multiple of 32."""

    def dequantise(self, codes: Any) -> Floats:
        """Codes -> [n, k] fp32, exactly the represented values."""

    def pack(self, w: Floats) -> Bytes:
        """[n, k] fp32 -> kernel layout."""

    def unpack(self, data: Bytes, n: int, k: int) -> Floats:
        """Kernel layout -> [n, k] fp32."""


@cache
def formats() -> Mapping[str, Format]:
    """Format modules by name."""
    modules = [
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
        if not info.name.startswith("_")
    ]
    return MappingProxyType({module.FORMAT: module for module in modules})
