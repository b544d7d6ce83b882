"""TFRecord files and the `tf.train.Example` messages in them, read without TensorFlow.

A shard is a sequence of records: length (8 bytes), checksum of the length (4), payload, checksum of the payload (4).
Jumping from header to header finds all records without reading any payload. A payload maps names to lists of bytes,
floats or integers. Only requested fields are decoded, because a record of MOVi holds millions of optical-flow numbers
that few users need.

Every length is compared with the file's size before it is used. Any sequence of bytes is either read or refused with a
`BadInput` that names the place of the damage.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64, UInt64

from vonet.errors import BadInput

HEADER, FOOTER = 12, 4
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10
CHECKED_AT_ONCE = 1 << 18


def masked_crc(data: bytes | memoryview) -> int:
    """The checksum of TFRecord files (masked CRC-32C)."""
    import google_crc32c

    crc = 0
    for at in range(0, len(data), CHECKED_AT_ONCE):
        crc = google_crc32c.extend(crc, bytes(data[at : at + CHECKED_AT_ONCE]))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def map_file(path: Path) -> memoryview:
    """The bytes of a memory-mapped file, read from the disk on access. The records of a shard share one map."""
    try:
        now = path.stat()
        return _mapped(path, now.st_mtime_ns, now.st_size)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None


@lru_cache(maxsize=32)
def _mapped(path: Path, changed: int, size: int) -> memoryview:
    """Caches only a few maps, because every map keeps its file open."""
    if not size:  # an empty file cannot be mapped
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def index_records(shard: memoryview) -> tuple[list[tuple[int, int]], str | None]:
    """Start and end of each payload, and a description of the damage if the rest of the shard could not be read."""
    records: list[tuple[int, int]] = []
    at = 0
    while at < len(shard):
        header = bytes(shard[at : at + HEADER])
        if len(header) < HEADER:
            return records, f"is cut short within record {len(records)}"
        length, checksum = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != checksum:
            return records, f"is damaged at the start of record {len(records)} (byte {at})"
        start, stop = at + HEADER, at + HEADER + length
        if stop + FOOTER > len(shard):
            return records, f"is cut short within record {len(records)}"
        records.append((start, stop))
        at = stop + FOOTER
    return records, None


def check_payload(shard: memoryview, start: int, stop: int, where: str) -> None:
    """Refuse a payload whose checksum is wrong."""
    found = bytes(shard[stop : stop + FOOTER])
    if len(found) < FOOTER or masked_crc(shard[start:stop]) != int.from_bytes(found, "little"):
        raise BadInput(f"{where} is damaged (its checksum is wrong): download the file again")


class Example:
    """The features of one record by name. Only the names are read at first."""

    def __init__(self, payload: memoryview, where: str):
        self._where = where
        self._features: dict[str, memoryview] = {}
        for features in self._parts(payload, 1):
            for entry in self._parts(features, 1):
                name, feature = memoryview(b""), memoryview(b"")
                for number, wire, value in self._fields(entry):
                    if wire == BYTES and number == 1:
                        name = value
                    elif wire == BYTES and number == 2:
                        feature = value
                self._features[bytes(name).decode("utf-8", "replace")] = feature

    def __contains__(self, name: object) -> bool:
        return name in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def kind(self, name: str) -> type | None:
        """Element type of the feature: bytes, float or int; None for an empty feature."""
        kind, _ = self._list(name)
        return kind

    def bytes_list(self, name: str) -> list[memoryview]:
        return list(self._parts(self._list_of(bytes, name), 1))

    def floats(self, name: str) -> Float32[np.ndarray, " n"]:
        chunks = [np.zeros(0, np.float32)]
        for number, wire, value in self._fields(self._list_of(float, name)):
            if number == 1 and wire in (BYTES, FIXED32):
                if len(value) % 4:
                    raise self._malformed()
                chunks.append(np.frombuffer(value, "<f4"))
        return np.concatenate(chunks)

    def integers(self, name: str) -> Int64[np.ndarray, " n"]:
        chunks = [np.zeros(0, np.uint64)]
        for number, wire, value in self._fields(self._list_of(int, name)):
            if number == 1 and wire in (BYTES, VARINT):
                numbers = decode_varints(value)
                if numbers is None:
                    raise self._malformed()
                chunks.append(numbers)
        return np.concatenate(chunks).view(np.int64)

    def _list_of(self, wanted: type, name: str) -> memoryview:
        if name not in self._features:
            have = ", ".join(map(_spoken, sorted(self)[:80]))
            raise BadInput(f"{self._where} has no {name!r}; it has {have or 'nothing'}")
        kind, content = self._list(name)
        if kind not in (wanted, None):
            raise BadInput(f"{name!r} of {self._where} is a list of {kind.__name__}, not of {wanted.__name__}")
        return content

    def _list(self, name: str) -> tuple[type | None, memoryview]:
        kind, content = None, memoryview(b"")
        for number, wire, value in self._fields(self._features[name]):
            if wire == BYTES and number in (1, 2, 3):
                kind, content = (bytes, float, int)[number - 1], value
        return kind, content

    def _parts(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, wire, value in self._fields(message):
            if wire == BYTES and number == wanted:
                yield value

    def _fields(self, message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        """Number, wire type and bytes of each field of a protocol buffer."""
        at, end = 0, len(message)
        while at < end:
            tag, at = self._varint(message, at)
            wire = tag & 7
            if wire == BYTES:
                size, at = self._varint(message, at)
            elif wire == VARINT:
                size = self._varint(message, at)[1] - at
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
            else:
                raise self._malformed()
            if size > end - at:
                raise self._malformed()
            yield tag >> 3, wire, message[at : at + size]
            at += size

    def _varint(self, message: memoryview, at: int) -> tuple[int, int]:
        """A varint (seven bits per byte, lowest first), and the position after it."""
        value = shift = 0
        for byte in message[at : at + LONGEST_VARINT]:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, at + shift // 7
        raise self._malformed()

    def _malformed(self) -> BadInput:
        return BadInput(f"{self._where} is malformed: it is damaged, or no tf.train.Example")


def _spoken(name: str) -> str:
    """A feature's name for an error message; in a damaged record it may be arbitrary bytes."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:60])


def decode_varints(data: memoryview) -> UInt64[np.ndarray, " n"] | None:
    """All numbers of a packed list at once; None if the bytes are not a packed list."""
    codes = np.frombuffer(data, np.uint8)
    if not codes.size:
        return np.zeros(0, np.uint64)
    last = np.flatnonzero(codes < 128)
    if not last.size or last[-1] != codes.size - 1:
        return None
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    if lengths.max() > LONGEST_VARINT:
        return None
    numbers = (codes[first] & 127).astype(np.uint64)
    for place in range(1, lengths.max()):
        longer = np.flatnonzero(lengths > place)
        numbers[longer] |= (codes[first[longer] + place] & 127).astype(np.uint64) << np.uint64(7 * place)
    return numbers
