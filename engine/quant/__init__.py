"""Weight formats: one file each, found by listing this folder. Every file is the numpy oracle of one kernel layout.

A matrix [n, k] has three forms: fp32 values; codes (a format's arrays, rows first, so that rows can be picked and joined without
touching a value); and the bytes that kernels read. `quantise` and `dequantise` go between the first two, `lay` and `lift` between
the last two. Only `quantise` loses anything.
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
        """[n, k] fp32 -> codes; k a multiple of 32."""

    def dequantise(self, codes: Any) -> Floats:
        """Codes -> [n, k] fp32, exactly the represented values."""

    def fault(self, codes: Any) -> str:
        """What in the codes stands for no number, or is not read by the kernels as `dequantise` reads it; empty when nothing is."""

    def lay(self, codes: Any) -> Bytes:
        """Codes -> kernel layout. Rows are filled up with zeros to a multiple of 16."""

    def lift(self, data: Bytes, n: int, k: int) -> Any:
        """Kernel layout -> codes, with the rows and inputs that fill up the layout."""

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
