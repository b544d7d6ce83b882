"""Timeline of each object of a video, frame by frame: its holder (the segment with most of it), changes of the holder,
and the number of segments that share it. The definitions are those of the scores "switches per object" and "slots per
object"."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Integer

from vonet.evaluation import metrics
from vonet.interface import NULL

FRAGMENTED = 1.5
"""An object that is shared by more segments than this counts as fragmented, for example if one segment has four fifths
and another the rest."""


@dataclass(frozen=True)
class Timeline:
    """Which segments hold a true object over time.

    Attributes:
        object_id: The true id.
        holders: Id of the segment that holds most of the object; `NULL` if there is none, or for a tie.
        fragments: Number of segments that share the object; 0 where it is not visible or has no holder.
    """

    object_id: int
    holders: Integer[np.ndarray, " T"]
    fragments: Float[np.ndarray, " T"]

    @property
    def switches(self) -> list[int]:
        """The frames at which the object's holder changes."""
        held = np.flatnonzero(self.holders != NULL)
        return [int(now) for before, now in pairwise(held) if self.holders[before] != self.holders[now]]

    @property
    def fragmented(self) -> list[tuple[int, int]]:
        """First and last frame of each period in which several segments share the object."""
        inside = np.concatenate([[False], self.fragments > FRAGMENTED, [False]])
        edges = np.flatnonzero(inside[1:] != inside[:-1]).tolist()
        return [(first, after - 1) for first, after in zip(edges[::2], edges[1::2], strict=True)]


def timelines(true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"]) -> list[Timeline]:
    """For each true object, the segment that holds it and the number of segments that share it, frame by frame."""
    table = metrics.confusion(true_ids, predicted_ids)
    frames = [table.frame(t) for t in range(len(table.counts))]
    shared = [dict(zip(f.true[f.is_object].tolist(), metrics.fragments(f, NULL).tolist(), strict=True)) for f in frames]
    found = []
    for name, holder in metrics.Switches(NULL).add(table).items():
        holders = np.array([holder.get(t, NULL) for t in range(len(frames))])
        found.append(Timeline(name, holders, np.array([in_frame.get(name, 0.0) for in_frame in shared])))
    return found
