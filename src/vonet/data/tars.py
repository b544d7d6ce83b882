"""Webdataset tars: `0.video.npy` and `0.segmentations.npy` (VideoSAUR, SlotContrast), or the same with `.gz` (OCLF).

Opening a set reads only the headers of the tars. In an uncompressed array, a range of frames is one read. A gzipped
array is decompressed in blocks, never as a whole.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.data import npy
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.tree import SPLITS, Tree, split_and_rest
from vonet.data.video import Video, Videos
from vonet.errors import BadInput

MEMBER = re.compile(r"(?P<key>[^.]+)\.(?P<array>video|segmentations)\.npy(?P<packed>\.gz)?")
SPLIT = re.compile(r"(?:^|[-_.])(train|validation|val|test)(?=[-_.])")
NPY_HEADER = 1 << 14
BLOCK = 1 << 20


@dataclass(frozen=True)
class Member:
    """A file in a tar: the position of its bytes."""

    tar: Path
    name: str
    offset: int
    size: int

    @property
    def where(self) -> str:
        return f"{self.name} in {self.tar}"

    def bytes(self, start: int, count: int) -> bytes:
        """Some bytes of the file; fewer at its end."""
        try:
            with self.tar.open("rb") as file:
                file.seek(self.offset + start)
                return file.read(max(0, min(count, self.size - start)))
        except OSError as error:
            raise BadInput(f"{self.where} cannot be read ({error.strerror})") from None

    def damaged(self) -> BadInput:
        return BadInput(f"{self.where} is damaged or cut short: get the tar again")


class PlainArray:
    """An array in a tar."""

    def __init__(self, member: Member):
        self.member = member
        self.shape, self.dtype, self._start = _header(member.bytes(0, NPY_HEADER), member)
        if self._start + prod(self.shape) * self.dtype.itemsize != member.size:
            raise member.damaged()

    def read(self, start: int, stop: int) -> np.ndarray:
        each = prod(self.shape[1:])
        offset = self.member.offset + self._start + start * each * self.dtype.itemsize
        try:
            numbers = np.fromfile(self.member.tar, self.dtype, (stop - start) * each, offset=offset)
            return numbers.reshape(stop - start, *self.shape[1:])
        except (OSError, ValueError):
            raise self.member.damaged() from None


class Unpacking:
    """The decompressed bytes of a gzipped file in a tar, read in order; memory is limited to the bytes requested at a
    time."""

    def __init__(self, member: Member):
        self._member = member
        self._inflate = zlib.decompressobj(wbits=31)
        self._packed, self._read = b"", 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes; fewer at the end."""
        parts = []
        while count and not self._inflate.eof:
            if not self._packed:
                self._packed = self._member.bytes(self._read, BLOCK)
                self._read += len(self._packed)
                if not self._packed:
                    break
            try:
                part = self._inflate.decompress(self._packed, count)
            except zlib.error:
                raise self._member.damaged() from None
            self._packed = self._inflate.unconsumed_tail
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class PackedArray:
    """A gzipped array in a tar. Reading forwards continues where the last read ended; reading backwards decompresses
    from the start again."""

    def __init__(self, member: Member):
        self.member = member
        self.shape, self.dtype, self._start = _header(Unpacking(member).take(NPY_HEADER), member)
        self._restart()

    def _restart(self) -> None:
        self._unpacking, self._frame = Unpacking(self.member), 0
        self._unpacking.take(self._start)

    def read(self, start: int, stop: int) -> np.ndarray:
        each = prod(self.shape[1:]) * self.dtype.itemsize
        if start < self._frame:
            self._restart()
        to_skip = (start - self._frame) * each
        self._frame = stop
        while to_skip > 0 and (skipped := len(self._unpacking.take(min(to_skip, BLOCK)))):
            to_skip -= skipped
        raw = self._unpacking.take((stop - start) * each)
        if len(raw) != (stop - start) * each:
            raise self.member.damaged()
        return np.frombuffer(raw, self.dtype).reshape(stop - start, *self.shape[1:]).copy()


def _header(data: bytes, member: Member) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape and dtype of an array, and the position of its first element."""
    file = io.BytesIO(data)
    try:
        shape, fortran, dtype = npy.read_header(file)
    except npy.BadHeader:
        raise member.damaged() from None
    if fortran or dtype.kind not in "ui":
        order = "Fortran" if fortran else "C"
        raise BadInput(f"{member.where} holds {dtype} in {order} order; expected integers in C order")
    return shape, dtype, file.tell()


def _array(member: Member) -> PlainArray | PackedArray:
    return PackedArray(member) if member.name.endswith(".gz") else PlainArray(member)


class TarVideo(Video):
    """Arrays in a webdataset tar, read in place."""

    def __init__(self, name: str, split: str, members: Mapping[str, Member], limits: Limits = DEFAULT_LIMITS):
        super().__init__(name, split)
        self._members, self._limits = dict(members), limits

    @cached_property
    def _video(self) -> PlainArray | PackedArray:
        video = _array(self._members["video"])
        if len(video.shape) != 4 or video.shape[3] != 3 or video.dtype != np.uint8:
            raise BadInput(f"{video.member.where} is {video.dtype} {video.shape} instead of bytes, T H W 3")
        if not prod(video.shape):
            raise BadInput(f"{video.member.where} has no frames; a video needs at least one")
        self._limits.check_size(video.shape[1], video.shape[2], video.member.where)
        return video

    @cached_property
    def _segmentations(self) -> PlainArray | PackedArray:
        ids, shape = _array(self._members["segmentations"]), self._video.shape[:3]
        if ids.shape not in (shape, (*shape, 1)):
            raise BadInput(f"{ids.member.where} has the shape {ids.shape}; the frames have {shape}")
        return ids

    def __len__(self) -> int:
        return self._video.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        return self._video.shape[1], self._video.shape[2]

    @property
    def has_ids(self) -> bool:
        return "segmentations" in self._members

    @property
    def files(self) -> Sequence[Path]:
        return sorted({member.tar for member in self._members.values()})

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return self._video.read(start, stop)

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        return self._segmentations.read(start, stop).reshape(stop - start, *self.size)


def find(tree: Tree) -> Videos | None:
    """Webdataset tars below a path; None if there are none."""
    found: list[tuple[Path, str, Mapping[str, Member]]] = []
    problems: list[str] = []
    for path in tree.files():
        if path.suffix.lower() == ".tar":
            members, wrong = _index(path)
            videos, lacking = _videos_in(members)
            found += [(path, key, arrays) for key, arrays in videos.items()]
            problems += [f"{path} {wrong}: get the tar again"] if wrong else []
            problems += [f"{path} has ids but no frames for {', '.join(lacking)}"] if lacking else []
    if not found and not problems:
        return None
    keys = [key for _, key, _ in found]
    names = keys if len(set(keys)) == len(keys) else [f"{tree.place(path)}/{key}" for path, key, _ in found]
    made = [
        TarVideo(name, _split(tree, path), arrays, tree.limits)
        for name, (path, _, arrays) in zip(names, found, strict=True)
    ]
    return Videos(made, "webdataset tars", tree.root, problems)


def _index(path: Path) -> tuple[list[Member], str | None]:
    """The undamaged files in a tar, and a sentence about damage, if any."""
    members: list[Member] = []
    try:
        size = path.stat().st_size
        with tarfile.open(path, "r:") as tar:
            for info in tar:
                if info.size < 0 or info.offset_data + info.size > size:
                    return members, f"is cut short or damaged; the {len(members)} files before are used"
                if info.isreg() and not info.issparse():
                    members.append(Member(path, info.name, info.offset_data, info.size))
        with path.open("rb") as file:
            file.seek(tar.offset)
            end = file.read(tarfile.BLOCKSIZE)
    except Exception:  # tarfile and the disc fail in many ways
        return members, f"is cut short or damaged; the {len(members)} files before are used"
    if len(end) < tarfile.BLOCKSIZE or any(end):
        return members, f"has no proper end, so files may be lacking; the {len(members)} files before are used"
    return members, None


def _videos_in(members: Sequence[Member]) -> tuple[dict[str, dict[str, Member]], list[str]]:
    """The members of each video by key, and the keys without frames."""
    videos: dict[str, dict[str, Member]] = defaultdict(dict)
    for member in members:
        path = PurePosixPath(member.name)
        if match := MEMBER.fullmatch(path.name):
            videos[(path.parent / match["key"]).as_posix()][match["array"]] = member
    lacking = [key for key, arrays in videos.items() if "video" not in arrays]
    return {key: arrays for key, arrays in videos.items() if key not in lacking}, lacking


def _split(tree: Tree, path: Path) -> str:
    told = SPLIT.search(path.name)
    return SPLITS[told[1]] if told else split_and_rest(tree.below(path.parent))[0] or "train"
