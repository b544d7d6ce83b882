"""Decides which segments are background, without labels; used by figures and serving.

A segment is background if it covers much of the video and surrounds the objects: it holds a large share of the frame's
border, or reaches from one side to the opposite one. A background that is split, such as a wall and a table, may have
several such segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from vonet.interface.segmentation import NULL

MIN_AREA = 0.03
"""Smallest share of the video's pixels that a background segment covers."""
MIN_BORDER = 0.2
"""Share of the frame's border, over the video, that makes a segment background."""
MIN_SIDES = 0.1
"""Share of each of two opposite sides of the frame that also makes a segment background."""


@dataclass(frozen=True)
class Extent:
    """A segment's share of the video's pixels, of its border, and of the top, bottom, left and right side."""

    area: float
    border: float
    sides: tuple[float, float, float, float]

    @property
    def is_background(self) -> bool:
        """Whether it covers enough of the video and of its border."""
        top, bottom, left, right = self.sides
        spans = max(min(top, bottom), min(left, right)) >= MIN_SIDES
        return self.area >= MIN_AREA and (self.border >= MIN_BORDER or spans)


def background_ids(extents: Mapping[int, Extent]) -> frozenset[int]:
    """The ids of the segments that are background."""
    return frozenset(one for one, extent in extents.items() if extent.is_background)


def border_counts(ids: Integer[np.ndarray, "H W"], largest: int) -> Integer[np.ndarray, "4 ids"]:
    """Number of pixels of each id on the top, bottom, left and right side, up to the largest id. Corners count
    twice."""
    return np.stack([np.bincount(side, minlength=largest + 1) for side in (ids[0], ids[-1], ids[:, 0], ids[:, -1])])


def extents(ids: Integer[np.ndarray, "T H W"]) -> dict[int, Extent]:
    """The shares of every segment of a video."""
    largest = int(ids.max())
    areas = np.bincount(ids.ravel(), minlength=largest + 1) / ids.size
    sides = np.sum([border_counts(frame, largest) for frame in ids], axis=0)
    lengths = len(ids) * np.array([ids.shape[2], ids.shape[2], ids.shape[1], ids.shape[1]])
    borders, shares = sides.sum(axis=0) / lengths.sum(), sides / lengths[:, None]
    found = [one for one in range(largest + 1) if one != NULL and areas[one]]
    return {one: Extent(float(areas[one]), float(borders[one]), tuple(shares[:, one].tolist())) for one in found}
