"""VONet's own files: `video_<name>.pkl`, a pickled dictionary of arrays.

A pickle is a program that can call any function, so it is never run. Our restricted unpickler knows only the opcodes
that dictionaries of arrays need, and replaces the few numpy functions that they call by its own checked functions. It
extends the unpickler that is written in Python, because the C version trusts any size that a pickle claims.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.tree import Tree, read_bytes, split_and_rest
from vonet.data.video import Video, Videos
from vonet.errors import BadInput

FILE = re.compile(r"video_(.+)\.pkl")
DTYPE = re.compile(r"[<>|=]?([biufc]\d{1,2}|[SU][1-9]\d{0,3})")
INSTRUCTIONS = """
    PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
    NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
"""
CODES = [getattr(pickle, name)[0] for name in INSTRUCTIONS.split()]
PlainUnpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]


class _Malformed(Exception):
    """The pickle does not have the expected structure."""


def _empty_array(kind: object, shape: object, code: object) -> np.ndarray:
    """An empty array that a later BUILD opcode fills; the pickle's shape for it is always (0,)."""
    return np.ndarray((0,), np.uint8)


def _array_of(data: bytes | bytearray, dtype: np.dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    _require(type(data) in (bytes, bytearray) and isinstance(dtype, np.dtype) and _is_shape(shape))
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def _dtype(code: str, align: object = False, copied: object = True) -> np.dtype:
    """Returns a new dtype each time, because a later BUILD opcode modifies it."""
    _require(type(code) is str and DTYPE.fullmatch(code) is not None)
    return np.dtype(np.dtype(code), copy=True)  # type: ignore[call-overload]


def _scalar(dtype: np.dtype, data: bytes) -> np.generic:
    _require(isinstance(dtype, np.dtype) and type(data) is bytes and len(data) == dtype.itemsize)
    return np.frombuffer(data, dtype)[0]


def _latin1(text: str, encoding: str) -> bytes:
    """Pickle protocol 2 writes bytes in this form."""
    _require(type(text) is str and encoding == "latin1")
    return text.encode("latin1")


class _Known:
    """Stands for a function or class that a pickle may refer to. It cannot be modified, and calling it runs only our
    own function."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None = None):
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        _require(self._call is not None)
        return self._call(*arguments)  # type: ignore[misc]


KNOWN = {
    ("numpy", "ndarray"): _Known(),
    ("numpy", "dtype"): _Known(_dtype),
    ("_codecs", "encode"): _Known(_latin1),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Known(_empty_array) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Known(_scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Known(_array_of) for core in ("core", "_core")},
}


class _Unpickler(PlainUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise BadInput(f"calls {module}.{name}, which is not allowed: pickles of arrays never need it")
        return KNOWN[module, name]

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) is np.ndarray:
            _fill(target, *state)
        elif isinstance(target, np.dtype):
            _set_byte_order(target, *state)
        else:
            raise _Malformed

    def load_bytearray8(self) -> None:
        """Reads the bytes before memory is reserved for them."""
        (length,) = struct.unpack("<Q", self.read(8))
        data = self.read(length)
        _require(len(data) == length)
        self.append(bytearray(data))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _require(type(key) is str)
        self.stack[-1][key] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _require(all(type(key) is str for key in items[::2]))
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    dispatch = {code: PlainUnpickler.dispatch[code] for code in CODES} | {
        pickle.BUILD[0]: load_build,
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }


def _fill(array: np.ndarray, version: int, shape: tuple[int, ...], dtype: np.dtype, fortran: bool, data: bytes) -> None:
    """The BUILD opcode for an array."""
    _require(_is_shape(shape) and isinstance(dtype, np.dtype) and type(data) is bytes)
    count = 1
    for side in shape:
        count *= side
    _require(len(data) == count * dtype.itemsize)
    array.__setstate__((1, shape, dtype, bool(fortran), data))  # type: ignore[arg-type]


def _set_byte_order(dtype: np.dtype, version: int, order: str, *rest: object) -> None:
    """The BUILD opcode for a dtype; fields of structured dtypes are refused."""
    _require(order in ("<", ">", "|", "=") and rest[:3] == (None, None, None))
    flexible = dtype.kind in "SU"
    size, alignment = (dtype.itemsize, dtype.alignment) if flexible else (-1, -1)
    dtype.__setstate__((3, order, None, None, None, size, alignment, 0))  # type: ignore[attr-defined]


def _is_shape(shape: object) -> bool:
    return type(shape) is tuple and len(shape) <= 32 and all(type(side) is int and side >= 0 for side in shape)


def _require(condition: bool) -> None:
    if not condition:
        raise _Malformed


def load(path: Path, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """The dictionary in a pickle, read by the restricted unpickler."""
    data = read_bytes(path, limits)
    try:
        content = _Unpickler(io.BytesIO(data)).load()
    except BadInput as forbidden:
        raise BadInput(f"{path} {forbidden}") from None
    except Exception:  # a damaged pickle raises anything
        raise BadInput(f"{path} is damaged, cut short, or not a pickle of arrays") from None
    if type(content) is not dict:
        raise BadInput(f"{path} holds a {type(content).__name__} instead of a dictionary with 'video'")
    return content


class PickledVideo(Video):
    """A pickle of VONet's toy data; the unpickler refuses everything but arrays."""

    def __init__(self, path: Path, name: str, split: str, limits: Limits = DEFAULT_LIMITS):
        super().__init__(name, split)
        self.path = path
        self._limits = limits

    @cached_property
    def _content(self) -> dict[str, Any]:
        content = load(self.path, self._limits)
        video = content.get("video")
        if not isinstance(video, np.ndarray) or video.dtype != np.uint8 or video.ndim != 4 or video.shape[3] != 3:
            raise BadInput(f"{self.path} has no 'video' of bytes with frames, rows, columns and 3 channels")
        if not video.size:
            raise BadInput(f"{self.path} has no frames; a video needs at least one")
        self._limits.check_size(video.shape[1], video.shape[2], str(self.path))
        if "segmentations" in content:
            content["segmentations"] = self._squeezed(content["segmentations"], video.shape[:3])
        return content

    def _squeezed(self, ids: object, shape: tuple[int, ...]) -> np.ndarray:
        if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "ui" or ids.shape not in (shape, (*shape, 1)):
            raise BadInput(f"'segmentations' of {self.path} are not integers for the {shape} pixels of its frames")
        return ids.reshape(shape)

    def __len__(self) -> int:
        return len(self._content["video"])

    @property
    def size(self) -> tuple[int, int]:
        height, width = self._content["video"].shape[1:3]
        return height, width

    @property
    def has_ids(self) -> bool:
        return "segmentations" in self._content

    @property
    def files(self) -> Sequence[Path]:
        return [self.path]

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return self._content["video"][start:stop].copy()

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        return self._content["segmentations"][start:stop].copy()

    @property
    def annotations(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._content.items() if name not in ("video", "segmentations")}


def find(tree: Tree) -> Videos | None:
    """VONet's pickles below a path; None if there are none."""
    found = [(path, match[1]) for path in tree.files() if (match := FILE.fullmatch(path.name))]
    if not found:
        return None
    told = [(split_and_rest(tree.below(path.parent))[0] or "train", name) for path, name in found]
    names = [name for _, name in told] if len(set(told)) == len(told) else [tree.place(path) for path, _ in found]
    videos = [
        PickledVideo(path, name, split, tree.limits)
        for (path, _), name, (split, _) in zip(found, names, told, strict=True)
    ]
    return Videos(videos, "VONet's pickles", tree.root)
