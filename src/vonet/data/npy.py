"""Reads headers of numpy arrays in files, and checks them before memory is allocated for the shapes that they claim."""

from __future__ import annotations

from io import BufferedIOBase
from math import prod
from typing import IO

import numpy as np

LARGEST = 1 << 48
"""Limit in bytes: no file is larger, and 64-bit arithmetic on such numbers is exact."""
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class BadHeader(ValueError):
    """The bytes are not the header of an array."""


def read_header(file: IO[bytes] | BufferedIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order (yes or no) and dtype of the array. Afterwards the file position is at the first element.

    Raises `BadHeader` for anything else, including shapes that are negative or larger than any file.
    """
    try:
        shape, fortran, dtype = _READERS[np.lib.format.read_magic(file)](file)
    except Exception:  # the header is a Python expression, and a damaged one fails in many ways
        raise BadHeader from None
    if len(shape) > 32 or not all(type(side) is int and 0 <= side <= LARGEST for side in shape):
        raise BadHeader
    if prod(shape) * dtype.itemsize > LARGEST:
        raise BadHeader
    return shape, bool(fortran), dtype


def read_array(file: IO[bytes] | BufferedIOBase, size: int) -> np.ndarray:
    """The array in a file of exactly `size` bytes. Arrays of Python objects are refused, because they are pickles."""
    shape, fortran, dtype = read_header(file)
    count = prod(shape)
    if dtype.hasobject or file.tell() + count * dtype.itemsize != size:
        raise BadHeader
    data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise BadHeader
    if not dtype.itemsize:
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").copy()
