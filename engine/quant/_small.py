"""Floats of a byte and less, by table: E2M1 and E4M3FN. Encoding rounds to nearest, ties to the even code, and saturates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def _thresholds(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` are those of the codes 0, 1, 2, …; a magnitude has the code of the number of thresholds it reaches."""
    middle = (values[:-1] + values[1:]) / np.float32(2)
    upper_is_odd = np.arange(1, len(values)) % 2 == 1
    return np.where(upper_is_odd, np.nextafter(middle, np.float32(np.inf)), middle).astype(np.float32)


def _e4m3_magnitudes() -> NDArray[np.float32]:
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return values.astype(np.float32)


_E2M1_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
_E4M3_MAGNITUDES = _e4m3_magnitudes()
_E2M1_THRESHOLDS, _E4M3_THRESHOLDS = _thresholds(_E2M1_MAGNITUDES), _thresholds(_E4M3_MAGNITUDES)

E2M1 = np.concatenate([_E2M1_MAGNITUDES, -_E2M1_MAGNITUDES])  # value of each 4-bit code
E4M3 = np.concatenate([_E4M3_MAGNITUDES, [np.nan], -_E4M3_MAGNITUDES, [np.nan]]).astype(np.float32)  # of each byte
_E4M3_NAN = np.uint8(0x7F)  # of either sign
E2M1_MAX, E4M3_MAX = np.float32(6), np.float32(448)


def to_e2m1(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Codes 0…15. The sign bit is kept, also that of values which round to zero."""
    codes = np.searchsorted(_E2M1_THRESHOLDS, np.abs(values), side="right").astype(np.uint8)
    return codes | (np.signbit(values).astype(np.uint8) << np.uint8(3))


def to_e4m3(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Codes 0…255, never a NaN for a number. The sign bit is kept, also that of values which round to zero."""
    codes = np.searchsorted(_E4M3_THRESHOLDS, np.abs(values), side="right").astype(np.uint8)
    return codes | (np.signbit(values).astype(np.uint8) << np.uint8(7))


def fault(scales: NDArray[Any]) -> str:
    """For a format's `fault`: what is wrong with scales in floating point."""
    return "" if np.isfinite(scales).all() else "a scale that is no finite number"


def has_nan(codes: NDArray[np.uint8]) -> bool:
    """Of E4M3 bytes."""
    return bool(((codes & _E4M3_NAN) == _E4M3_NAN).any())


def ratio(values: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """values / scale in fp32, and +0 where the scale is zero."""
    return np.divide(
        values, scale, out=np.zeros(np.broadcast_shapes(values.shape, scale.shape), np.float32), where=scale != 0
    )
