"""CRC-32 of a whole from the CRC-32 of its parts, so that parts can be summed in any order and at the same time. Torch-free."""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0xEDB88320
_Matrix = tuple[int, ...]  # over GF(2), columns as integers


class Combiner:
    """`combine(a, b, n)` is the CRC-32 of A + B from that of A, that of B, and the bytes of B.

    Appending n zero bytes is a linear map of the sum; the map for `usual_bytes` is kept.
    """

    def __init__(self, usual_bytes: int) -> None:
        self._usual_bytes, self._usual = usual_bytes, _zeros(usual_bytes)

    def __call__(self, a: int, b: int, b_bytes: int) -> int:
        matrix = self._usual if b_bytes == self._usual_bytes else _zeros(b_bytes)
        return _apply(matrix, a) ^ b


@cache
def _zeros(n_bytes: int) -> _Matrix:
    """The map of appending `n_bytes` zero bytes."""
    result: _Matrix = tuple(1 << bit for bit in range(32))
    step = _power_of_two(0)
    exponent = 0
    while n_bytes:
        step = _power_of_two(exponent)
        if n_bytes & 1:
            result = tuple(_apply(step, column) for column in result)
        n_bytes >>= 1
        exponent += 1
    return result


@cache
def _power_of_two(exponent: int) -> _Matrix:
    """The map of appending 2**exponent zero bytes."""
    if exponent:
        half = _power_of_two(exponent - 1)
        return tuple(_apply(half, column) for column in half)
    matrix: _Matrix = (_POLYNOMIAL, *(1 << bit for bit in range(31)))  # one zero bit
    for _ in range(3):
        matrix = tuple(_apply(matrix, column) for column in matrix)
    return matrix


def _apply(matrix: _Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
        if not vector:
            break
    return total
