"""Numbers for colouring segments: an object and the segment that matches it share a number, and background has its
own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer, UInt8
from scipy.optimize import linear_sum_assignment

from vonet.evaluation import metrics
from vonet.figures.sheet import GREY, colours
from vonet.interface import NULL, background_ids, extents

BACKGROUND, FIRST_OBJECT = 1, 2
"""Numbers for colours; 0 means that no slot is probable enough."""


def paints(largest: int) -> UInt8[np.ndarray, "numbers 3"]:
    """The colour of each number: black for 0, grey for background, then distinct colours."""
    grey = np.full((1, 3), GREY, np.uint8)
    return np.concatenate([np.zeros((1, 3), np.uint8), grey, colours(max(0, largest - BACKGROUND))])


@dataclass(frozen=True)
class Matching:
    """The numbers of predicted and true ids. Background comes first.

    Attributes:
        of_slots: The number of each predicted id.
        of_objects: The number of each true id.
    """

    of_slots: dict[int, int]
    of_objects: dict[int, int]

    def numbered(self, ids: Integer[np.ndarray, "*any"]) -> Integer[np.ndarray, "*any"]:
        """Predicted ids as numbers."""
        return _renumbered(ids, self.of_slots)

    def tint(self) -> UInt8[np.ndarray, "ids 3"]:
        """The colour of each predicted id. Several ids may be background: they share one colour but stay separate
        segments."""
        colour = paints(max(self.of_slots.values()))
        found = np.zeros((max(self.of_slots) + 1, 3), np.uint8)
        for one, number in self.of_slots.items():
            found[one] = colour[number]
        return found

    def true_numbered(self, ids: Integer[np.ndarray, "*any"]) -> Integer[np.ndarray, "*any"]:
        """True ids as numbers."""
        return _renumbered(ids, self.of_objects)


def matched(ids: Integer[np.ndarray, "T H W"], true_ids: Integer[np.ndarray, "T H W"] | None) -> Matching:
    """Segments that lie mostly on true background are background; the others go to true objects one to one, by
    intersection over union. Without true ids, background is determined by `interface.background_ids`. Remaining
    segments get their own colours."""
    if true_ids is None:
        found = dict.fromkeys(sorted(background_ids(extents(ids))), BACKGROUND)
        return Matching(_with_rest(found, ids, FIRST_OBJECT), {})
    table = metrics.confusion(true_ids, ids)
    objects = {int(one): FIRST_OBJECT + place for place, one in enumerate(table.true[table.is_object])}
    total = table.total
    on_objects = total[table.is_object].sum(axis=0) / np.maximum(total.sum(axis=0), 1)
    segments = table.predicted != NULL
    found = {int(one): BACKGROUND for one in table.predicted[segments & (on_objects < 0.5)]}
    columns = np.flatnonzero(segments & (on_objects >= 0.5))
    overlap = metrics.overlaps(total)[table.is_object][:, columns]
    for row, column in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
        if overlap[row, column] > 0:
            found[int(table.predicted[columns[column]])] = FIRST_OBJECT + int(row)
    return Matching(_with_rest(found, ids, FIRST_OBJECT + len(objects)), {metrics.BACKGROUND: BACKGROUND, **objects})


def _with_rest(found: dict[int, int], ids: np.ndarray, number: int) -> dict[int, int]:
    rest = [one for one in np.unique(ids).tolist() if one != NULL and one not in found]
    return {NULL: NULL, **found, **{one: number + place for place, one in enumerate(rest)}}


def _renumbered(ids: np.ndarray, numbers: dict[int, int]) -> np.ndarray:
    names, places = np.unique(ids, return_inverse=True)
    return np.array([numbers[int(name)] for name in names])[places].reshape(ids.shape)
