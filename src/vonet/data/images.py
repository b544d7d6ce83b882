"""Decodes single pictures to pixels or ids, without loss. Errors name the picture."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Integer, UInt8, UInt16
from PIL import Image

from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.errors import BadInput

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")


@contextmanager
def opened(
    source: Path | memoryview, where: str, size: tuple[int, int] | None = None, limits: Limits | None = None
) -> Iterator[Image.Image]:
    """Opens a picture and reads only its header. Refuses a picture that does not have the expected size (height, width)
    or exceeds the limits."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limits are ours
            found = Image.open(source if isinstance(source, Path) else io.BytesIO(source), formats=FORMATS)
        with found as image:
            if limits is not None:
                limits.check_size(image.height, image.width, where)
            if size is not None and image.size[::-1] != size:
                height, width = image.height, image.width
                raise BadInput(
                    f"{where} has {height}x{width} pixels where {size[0]}x{size[1]} are expected: "
                    "all pictures of a video need the same size"
                )
            yield image
    except BadInput:
        raise
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise BadInput(f"{where} has more than {most} million pixels, which Pillow does not read: reduce it") from None
    except Exception:  # for a damaged picture Pillow raises nearly anything
        raise BadInput(f"{where} cannot be decoded: it is missing, damaged, cut short or no picture") from None


def size_of(source: Path | memoryview, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int]:
    """Height and width of a picture, from its header."""
    with opened(source, where, limits=limits) as image:
        return image.height, image.width


def read_rgb(source: Path | memoryview, where: str, size: tuple[int, int]) -> UInt8[np.ndarray, "H W 3"]:
    """The pixels of a picture as RGB bytes: alpha is dropped, and 16-bit values keep their high byte."""
    with opened(source, where, size) as image:
        if image.mode in DEEP:
            levels = np.asarray(image)
            if levels.min() < 0 or levels.max() > 65535:
                raise BadInput(
                    f"{where} has grey levels from {levels.min()} to {levels.max()}; frames have 8 or 16 bits"
                )
            return np.repeat((levels >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        if image.mode == "F":
            raise BadInput(f"{where} holds floats; frames are pictures of 8 or 16 bits")
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def read_ids(source: Path | memoryview, where: str, size: tuple[int, int]) -> Integer[np.ndarray, "H W"]:
    """The id of each pixel: its grey level (also if stored in three equal channels) or its palette index."""
    with opened(source, where, size) as image:
        pixels = np.asarray(image)
        if image.mode in DEEP:
            return pixels.astype(np.uint16 if pixels.min() >= 0 and pixels.max() <= 65535 else np.int64)
        if image.mode in ("P", "L", "1"):
            return pixels.astype(np.uint8)
        if image.mode == "RGB" and (pixels == pixels[:, :, :1]).all():
            return pixels[:, :, 0].copy()
        raise BadInput(f"{where} is a picture of kind {image.mode}; ids need a grey picture or one with a palette")


def read_binary(source: Path | memoryview, where: str, size: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """Which pixels of a mask are set."""
    with opened(source, where, size) as image:
        return np.asarray(image if image.mode in ("P", "L", "1") else image.convert("L")) > 0


def read_rgb16(png: memoryview, where: str, size: tuple[int, int]) -> UInt16[np.ndarray, "H W 3"]:
    """A colour PNG with 16 bits per channel, at full precision: Pillow would keep only 8 bits."""
    height, width = size
    header, packed = _chunks(png, where)
    if header != struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0):
        raise BadInput(f"{where} is not a PNG of {height}x{width} pixels with three channels of 16 bits")
    row = 1 + width * 6
    try:
        raw = zlib.decompressobj().decompress(packed, height * row)
    except zlib.error:
        raw = b""
    if len(raw) != height * row:
        raise BadInput(f"{where} cannot be decoded: it is damaged or cut short")
    pixels = _unfilter(np.frombuffer(raw, np.uint8).reshape(height, row), where)
    return pixels.view(">u2").astype(np.uint16).reshape(height, width, 3)


def _chunks(png: memoryview, where: str) -> tuple[bytes, bytes]:
    """The header of a PNG and its compressed pixels, still packed."""
    header, packed = b"", []
    at = 8
    while at + 12 <= len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + length]
        checksum = bytes(png[at + 8 + length : at + 12 + length])
        if zlib.crc32(png[at + 4 : at + 8 + length]) != int.from_bytes(checksum, "big"):
            raise BadInput(f"{where} cannot be decoded: it is damaged or cut short")
        if kind == b"IHDR":
            header = bytes(content)
        elif kind == b"IDAT":
            packed.append(content)
        at += 12 + length
    return header, b"".join(packed)


def _unfilter(rows: UInt8[np.ndarray, "H row"], where: str, step: int = 6) -> UInt8[np.ndarray, "H bytes"]:
    """Undoes PNG's filters: each byte is stored as the difference from a prediction by its neighbours, and the first
    byte of a row names the filter."""
    above = np.zeros(rows.shape[1] - 1, np.uint8)
    done = np.empty((len(rows), len(above)), np.uint8)
    for y, kind in enumerate(rows[:, 0].tolist()):
        stored = rows[y, 1:]
        if kind == 0:
            above = stored
        elif kind == 1:
            above = np.cumsum(stored.reshape(-1, step), axis=0, dtype=np.uint8).ravel()
        elif kind == 2:
            above = stored + above
        elif kind in (3, 4):
            undo = _undo_average if kind == 3 else _undo_paeth
            above = np.array(undo(stored.tolist(), above.tolist(), step), np.uint8)
        else:
            raise BadInput(f"{where} cannot be decoded: it is damaged or cut short")
        done[y] = above
    return done


def _undo_average(stored: list[int], above: list[int], step: int) -> list[int]:
    row = [0] * step
    for difference, up in zip(stored, above, strict=True):
        row.append((difference + (row[-step] + up) // 2) & 255)
    return row[step:]


def _undo_paeth(stored: list[int], above: list[int], step: int) -> list[int]:
    row = [0] * step
    for difference, up, corner in zip(stored, above, [0] * step + above[:-step], strict=True):
        left = row[-step]
        to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        nearest = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        row.append((difference + nearest) & 255)
    return row[step:]
