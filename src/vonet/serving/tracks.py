"""Tracks: position and history of each object. Only sums are kept, so a video may be of any length."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import hypot
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer
from scipy.ndimage import find_objects


@dataclass(frozen=True)
class Track:
    """An object in the frame where it was last seen. Frames are numbered as in the video, from 0."""

    id: int
    box: tuple[int, int, int, int]  # left, top, width and height, in pixels
    area: int  # pixels
    confidence: float  # the mean probability of its slot where it is the best
    first: int  # the frame where it was first seen
    last: int  # the frame that this is about
    frames: int  # in how many it was seen, this one included


@dataclass(frozen=True)
class Row:
    """An object over the whole video: a line of the table. Areas and lengths are shares of the picture and of its
    diagonal, so that videos of all sizes compare."""

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
    middle: tuple[float, float] | None = None


class Tracks:
    """Grows with the number of slots, not of frames."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sums] = {}

    def add(
        self,
        number: int,
        seconds: float | None,
        ids: Integer[np.ndarray, "H W"],
        confidences: Float[np.ndarray, " K"],
    ) -> list[Track]:
        """Those seen in this frame, by id."""
        areas = _areas(ids)
        borders = np.bincount(np.concatenate([ids[0], ids[-1], ids[1:-1, 0], ids[1:-1, -1]]), minlength=len(areas))
        found = []
        for one, place in enumerate(find_objects(ids), start=1):
            if place is None:
                continue
            down, across = place
            box = (across.start, down.start, across.stop - across.start, down.stop - down.start)
            sums = self._sums.setdefault(one, _Sums(number, seconds))
            share = borders[one] / borders.sum()
            confidence = float(confidences[one - 1])
            _count(sums, number, seconds, ids.shape, box, int(areas[one]), confidence, float(share))
            found.append(Track(one, box, int(areas[one]), confidence, sums.first, number, sums.frames))
        return found

    def table(self) -> list[Row]:
        """All that were ever seen, by id."""
        return [_row(one, sums) for one, sums in sorted(self._sums.items())]


def _areas(ids: Integer[np.ndarray, "H W"]) -> Integer[np.ndarray, " ids"]:
    """How many pixels each id has. Row by row or so: numpy counts in eight bytes per pixel."""
    rows = max(1, 100_000 // ids.shape[1])
    largest = int(ids.max())
    strips = (ids[top : top + rows].ravel() for top in range(0, len(ids), rows))
    return np.sum([np.bincount(strip, minlength=largest + 1) for strip in strips], axis=0)


def _count(
    sums: _Sums,
    number: int,
    seconds: float | None,
    size: tuple[int, ...],
    box: tuple[int, int, int, int],
    area: int,
    confidence: float,
    border: float,
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
    sums.border += border


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
    )


def spoken(rows: Sequence[Row]) -> str:
    """The table for people."""
    lines: list[tuple[str, ...]] = [("id", "frames", "from", "to", "mean area", "confidence", "path", "at border")]
    for row in rows:
        shares = [f"{100 * share:.1f} %" for share in (row.mean_area, row.mean_confidence)]
        ways = [f"{row.path_length:.2f}", f"{100 * row.at_border:.0f} %"]
        lines.append((f"{row.id}", f"{row.frames}", f"{row.first}", f"{row.last}", *shares, *ways))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) for line in lines)


def write_table(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        for row in rows:
            told = asdict(row).items()
            writer.writerow({name: f"{value:.4f}" if isinstance(value, float) else value for name, value in told})
