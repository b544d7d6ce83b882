"""Tracks: position and history of each object. Only sums are stored, so a video may have any length."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import hypot
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer
from scipy.ndimage import find_objects

from vonet.interface import Extent, background_ids, border_counts


@dataclass(frozen=True)
class Track:
    """An object in the last frame where it was visible. Frames are numbered as in the video, from 0."""

    id: int
    box: tuple[int, int, int, int]  # left, top, width and height, in pixels
    area: int  # pixels
    confidence: float  # the mean probability of its slot where it is the best
    first: int  # the frame where it was first seen
    last: int  # the frame that this is about
    frames: int  # in how many it was seen, this one included


@dataclass(frozen=True)
class Row:
    """A segment over the whole video: one line of the table. Areas and lengths are relative to the picture's area and
    diagonal, so that videos of all sizes can be compared."""

    id: int
    first: int
    last: int
    frames: int
    first_second: float | None
    last_second: float | None
    mean_area: float
    largest_area: float
    mean_confidence: float
    path_length: float  # of the middle of its box
    at_border: float  # the mean share of the picture's border that is its: large for backgrounds
    core: float  # the share of its pixels that lie inside: small for rims


@dataclass
class _Sums:
    first: int
    first_second: float | None
    last: int = 0
    last_second: float | None = None
    frames: int = 0
    area: float = 0.0
    largest: float = 0.0
    confidence: float = 0.0
    path: float = 0.0
    border: float = 0.0
    sides: np.ndarray = field(default_factory=lambda: np.zeros(4))
    pixels: int = 0
    inside: int = 0
    middle: tuple[float, float] | None = None


GRID = 64
"""Largest number of rows and columns of the grid on which the thickness of a segment is measured."""


class Tracks:
    """Statistics of all tracks; memory grows with the number of slots, not of frames."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sums] = {}
        self.frames = 0

    def add(
        self,
        number: int,
        seconds: float | None,
        ids: Integer[np.ndarray, "H W"],
        confidences: Float[np.ndarray, " K"],
        seen: tuple[slice, slice] = (slice(None), slice(None)),
    ) -> list[Track]:
        """The tracks that are visible in this frame, by id. `seen`: Rows and columns that the model saw; their border
        counts as the frame's border."""
        self.frames += 1
        areas = _areas(ids)
        sides = border_counts(ids[seen], len(areas) - 1)
        pixels, inside = _cores(ids[seen], len(areas) - 1)
        found = []
        for one, place in enumerate(find_objects(ids), start=1):
            if place is None:
                continue
            down, across = place
            box = (across.start, down.start, across.stop - across.start, down.stop - down.start)
            sums = self._sums.setdefault(one, _Sums(number, seconds))
            confidence = float(confidences[one - 1])
            _count(sums, number, seconds, ids.shape, box, int(areas[one]), confidence)
            sums.border += float(sides[:, one].sum() / sides.sum())
            sums.sides += sides[:, one] / sides.sum(axis=1)
            sums.pixels, sums.inside = sums.pixels + int(pixels[one]), sums.inside + int(inside[one])
            found.append(Track(one, box, int(areas[one]), confidence, sums.first, number, sums.frames))
        return found

    def table(self) -> list[Row]:
        """All tracks that were ever visible, by id."""
        return [_row(one, sums) for one, sums in sorted(self._sums.items())]

    def background(self) -> frozenset[int]:
        """The ids that are background, judged by the frames so far."""
        frames = max(1, self.frames)
        extents = {}
        for one, sums in self._sums.items():
            top, bottom, left, right = (sums.sides / frames).tolist()
            extents[one] = Extent(sums.area / frames, sums.border / frames, (top, bottom, left, right))
        return background_ids(extents)


def without(ids: Integer[np.ndarray, "H W"], left_out: Collection[int]) -> Integer[np.ndarray, "H W"]:
    """The ids with 0 in place of those that are left out."""
    if not left_out:
        return ids
    kept = np.arange(int(ids.max(initial=0)) + 1, dtype=ids.dtype)
    kept[[one for one in left_out if one < len(kept)]] = 0
    return kept[ids]


def _areas(ids: Integer[np.ndarray, "H W"]) -> Integer[np.ndarray, " ids"]:
    """Number of pixels of each id. Counted in blocks of rows, because numpy needs eight bytes per pixel."""
    rows = max(1, 100_000 // ids.shape[1])
    largest = int(ids.max())
    strips = (ids[top : top + rows].ravel() for top in range(0, len(ids), rows))
    return np.sum([np.bincount(strip, minlength=largest + 1) for strip in strips], axis=0)


def _cores(ids: Integer[np.ndarray, "H W"], largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of points of a coarse grid for each id, and how many of them lie inside, which means that all eight
    neighbours have the same id. Neighbours outside the frame count as having the same id."""
    rows, columns = (np.linspace(0, n - 1, min(n, GRID)).round().astype(int) for n in ids.shape)
    coarse = ids[rows[:, None], columns]
    around = np.pad(coarse, 1, mode="edge")
    inside = np.ones(coarse.shape, bool)
    for down in range(3):
        for across in range(3):
            inside &= around[down : down + coarse.shape[0], across : across + coarse.shape[1]] == coarse
    return np.bincount(coarse.ravel(), minlength=largest + 1), np.bincount(coarse[inside], minlength=largest + 1)


def _count(
    sums: _Sums,
    number: int,
    seconds: float | None,
    size: tuple[int, ...],
    box: tuple[int, int, int, int],
    area: int,
    confidence: float,
) -> None:
    height, width = size
    left, top, across, down = box
    middle = (left + across / 2, top + down / 2)
    if sums.middle is not None:
        way = hypot(middle[0] - sums.middle[0], middle[1] - sums.middle[1])
        sums.path += way / hypot(height, width)
    sums.middle = middle
    sums.last, sums.last_second = number, seconds
    sums.frames += 1
    sums.area += area / (height * width)
    sums.largest = max(sums.largest, area / (height * width))
    sums.confidence += confidence


def _row(one: int, sums: _Sums) -> Row:
    n = sums.frames
    return Row(
        id=one,
        first=sums.first,
        last=sums.last,
        frames=n,
        first_second=sums.first_second,
        last_second=sums.last_second,
        mean_area=sums.area / n,
        largest_area=sums.largest,
        mean_confidence=sums.confidence / n,
        path_length=sums.path,
        at_border=sums.border / n,
        core=sums.inside / max(1, sums.pixels),
    )


def spoken(rows: Sequence[Row]) -> str:
    """The tracks as a table for people."""
    lines: list[tuple[str, ...]] = [("id", "frames", "from", "to", "mean area", "confidence", "path", "at border")]
    for row in rows:
        shares = [f"{100 * share:.1f} %" for share in (row.mean_area, row.mean_confidence)]
        ways = [f"{row.path_length:.2f}", f"{100 * row.at_border:.0f} %"]
        lines.append((f"{row.id}", f"{row.frames}", f"{row.first}", f"{row.last}", *shares, *ways))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) for line in lines)


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write `tracks.csv`, a line for each row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        for row in rows:
            told = asdict(row).items()
            writer.writerow({name: f"{value:.4f}" if isinstance(value, float) else value for name, value in told})
