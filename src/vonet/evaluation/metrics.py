"""Metrics of segmentation, as pure functions of two maps of integer ids, true and predicted.

Renaming segments never changes a score, except that 0 is the background among the true ids. A `T H W` map is one
clustering of all pixels of a video, so an object whose segment changes its id loses score.

All overlap metrics are computed from one table: the number of pixels with each pair of true and predicted id, for each
frame (`Confusion`). Counts are exact integers, because sums of squares over a video exceed float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer
from scipy.optimize import linear_sum_assignment

from vonet.errors import BadInput

BACKGROUND = 0
LARGEST_TABLE, LARGEST_LOOKED_UP = 1 << 20, 1 << 16


@dataclass(frozen=True)
class Confusion:
    """Number of pixels with each pair of true and predicted id, for each frame. Only ids that occur are listed.

    Attributes:
        true: The true ids, `n`.
        predicted: The predicted ids, `m`.
        counts: Pixels of frame t with true id `true[i]` and predicted id `predicted[j]`, `T n m`.
    """

    true: Integer[np.ndarray, " n"]
    predicted: Integer[np.ndarray, " m"]
    counts: Int64[np.ndarray, "T n m"]

    @property
    def total(self) -> Int64[np.ndarray, "n m"]:
        """The table summed over the whole video."""
        return self.counts.sum(axis=0)

    @property
    def is_object(self) -> Bool[np.ndarray, " n"]:
        """Which of the true ids are objects, not background."""
        return self.true != BACKGROUND

    def frame(self, t: int) -> Confusion:
        """One frame as a separate video."""
        counts = self.counts[t]
        rows, columns = counts.any(axis=1), counts.any(axis=0)
        return Confusion(self.true[rows], self.predicted[columns], counts[rows][:, columns][None])

    def to_background(self, ids: Bool[np.ndarray, " n"]) -> Confusion:
        """The same table with some true ids counted as background."""
        if not ids.any():
            return self
        renamed = np.where(ids, BACKGROUND, self.true)
        kept = np.unique(renamed)
        return Confusion(
            kept, self.predicted, np.stack([self.counts[:, renamed == i].sum(axis=1) for i in kept], axis=1)
        )


def pair(true_ids: Any, predicted_ids: Any) -> tuple[Integer[np.ndarray, "T H W"], Integer[np.ndarray, "T H W"]]:
    """Both maps as integers `T H W`; a single frame may be `H W`, and a last dimension of one channel is dropped."""
    true, predicted = _ids(true_ids, "true ids"), _ids(predicted_ids, "predicted ids")
    if true.shape != predicted.shape:
        raise BadInput(
            f"the true ids have the shape {true.shape} and the predicted {predicted.shape}: they must be the same; "
            "bring the masks to the size of the true ids first"
        )
    if not true.size:
        raise BadInput(f"the ids have the shape {true.shape}, which holds no pixel")
    return true, predicted


def confusion(true_ids: Any, predicted_ids: Any) -> Confusion:
    """The table from which all overlap metrics are computed, in one pass over the pixels.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Raises:
        BadInput: If the shapes differ, the ids are not whole numbers, or there are too many of them.
    """
    true, predicted = pair(true_ids, predicted_ids)
    frames = len(true)
    true, true_names = _codes(true.reshape(frames, -1))
    predicted, predicted_names = _codes(predicted.reshape(frames, -1))
    n, m = len(true_names), len(predicted_names)
    if n * m > LARGEST_TABLE:
        raise BadInput(f"{n} true and {m} predicted ids were given; are these ids of segments?")
    codes = true * np.int32(m) + predicted
    counts = np.stack([np.bincount(frame, minlength=n * m) for frame in codes]).reshape(frames, n, m)
    rows, columns = counts.any(axis=(0, 2)), counts.any(axis=(0, 1))
    return Confusion(true_names[rows], predicted_names[columns], counts[:, rows][:, :, columns].astype(np.int64))


def added(parts: Sequence[Confusion]) -> Confusion:
    """The table of a whole video, as a single frame, from the tables of its pieces."""
    true = np.unique(np.concatenate([part.true for part in parts]))
    predicted = np.unique(np.concatenate([part.predicted for part in parts]))
    counts = np.zeros((1, len(true), len(predicted)), np.int64)
    for part in parts:
        rows, columns = np.searchsorted(true, part.true), np.searchsorted(predicted, part.predicted)
        counts[0, rows[:, None], columns] += part.total
    return Confusion(true, predicted, counts)


def _ids(given: Any, what: str) -> Integer[np.ndarray, "T H W"]:
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() else given
    try:
        ids = np.asarray(given)
    except (ValueError, TypeError):
        raise BadInput(f"the {what} are not an array of numbers") from None
    if isinstance(given, np.ma.MaskedArray):
        raise BadInput(f"the {what} are a masked array; give an id to every pixel")
    ids = ids[..., 0] if ids.ndim == 4 and ids.shape[-1] == 1 else ids
    ids = ids[None] if ids.ndim == 2 else ids
    if ids.ndim != 3:
        raise BadInput(f"the {what} have the shape {ids.shape}; expected T H W (one video), or H W (one frame)")
    if ids.dtype == bool:
        return ids.astype(np.uint8)
    if np.issubdtype(ids.dtype, np.integer):
        return ids
    if np.issubdtype(ids.dtype, np.floating):
        with np.errstate(invalid="ignore"):
            whole = ids.astype(np.int64)
        if (whole == ids).all():
            return whole
    raise BadInput(f"the {what} are {ids.dtype} and not whole numbers; give integer ids (of soft masks, the argmax)")


def _codes(ids: Integer[np.ndarray, "T pixels"]) -> tuple[np.ndarray, np.ndarray]:
    """Ids renumbered from 0, and the original id of each number. Small ids are not renumbered."""
    low, high = int(ids.min()), int(ids.max())
    if low >= 0 and high < 256:
        return ids.astype(np.int32), np.arange(high + 1)
    if low >= 0 and high < LARGEST_LOOKED_UP:
        names = np.flatnonzero(np.bincount(ids.ravel(), minlength=high + 1))
        places = np.zeros(high + 1, np.int32)
        places[names] = np.arange(len(names), dtype=np.int32)
        return places[ids], names
    names, codes = np.unique(ids, return_inverse=True)
    return codes.reshape(ids.shape).astype(np.int32), names


# Agreement of regions


def rand_index(counts: Int64[np.ndarray, "n m"]) -> float:
    """Adjusted Rand index of a table, in exact integers up to the last division; 1 where it is undefined (no pixel, or
    only one possible clustering), as in SAVi's and VONet's code."""
    together = sum(n * (n - 1) for n in counts.ravel().tolist())
    true = sum(n * (n - 1) for n in counts.sum(axis=1).tolist())
    predicted = sum(n * (n - 1) for n in counts.sum(axis=0).tolist())
    pixels = int(counts.sum())
    pairs = pixels * (pixels - 1)
    above_chance = 2 * (together * pairs - true * predicted)
    best = (true + predicted) * pairs - 2 * true * predicted
    return above_chance / best if best else 1.0


def overlaps(counts: Int64[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    """Intersection over union of each true with each predicted segment."""
    union = counts.sum(axis=1, keepdims=True) + counts.sum(axis=0, keepdims=True) - counts
    return counts / np.maximum(union, 1)


def ari_of(table: Confusion) -> float:
    """`ari` of a table."""
    return rand_index(table.total)


def fg_ari_of(table: Confusion) -> float:
    """`fg_ari` of a table."""
    return rand_index(table.total[table.is_object])


def miou_of(table: Confusion, background: bool = True) -> float:
    """Hungarian matching of true with predicted segments: the sum of IoUs divided by the number of true segments.
    Without `background`, only objects are matched."""
    overlap = overlaps(table.total)[slice(None) if background else table.is_object]
    if not len(overlap):
        return 1.0
    return float(overlap[linear_sum_assignment(overlap, maximize=True)].sum() / len(overlap))


def mbo_of(table: Confusion) -> float:
    """Mean best overlap: the largest IoU of each object with any predicted segment, averaged over objects."""
    overlap = overlaps(table.total)[table.is_object]
    return float(overlap.max(axis=1).mean()) if len(overlap) else 1.0


def ari(true_ids: Any, predicted_ids: Any) -> float:
    """Adjusted Rand index over all pixels (Hubert and Arabie, 1985).

    A video is one clustering of all its pixels, so an object whose segment changes its id loses score.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        1 is perfect, 0 is chance; less than 0 is worse than chance.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return ari_of(confusion(true_ids, predicted_ids))


def fg_ari(true_ids: Any, predicted_ids: Any) -> float:
    """Adjusted Rand index over the pixels of objects, FG-ARI (true id not 0).

    Predictions on the background do not matter: masks may spill over it, and it may be split.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        1 is perfect, 0 is chance; 1 where there is no object.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return fg_ari_of(confusion(true_ids, predicted_ids))


def miou(true_ids: Any, predicted_ids: Any, background: bool = True) -> float:
    """Mean intersection over union under the best one-to-one matching.

    Segments are matched by the Hungarian algorithm. A true segment without a partner counts 0.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.
        background: Whether the true background is one of the segments, as in the VONet paper.

    Returns:
        From 0 to 1: the sum of the IoUs divided by the number of true segments.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return miou_of(confusion(true_ids, predicted_ids), background)


def mbo(true_ids: Any, predicted_ids: Any) -> float:
    """Mean best overlap of the objects, without the background.

    Several objects may have the same best segment.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        From 0 to 1: the mean over objects of the largest IoU with any predicted segment.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return mbo_of(confusion(true_ids, predicted_ids))


def per_image(metric: Callable[[Confusion], float], table: Confusion) -> list[float]:
    """A metric computed for each frame on its own, which ignores changes of id over time."""
    return [metric(table.frame(t)) for t in range(len(table.counts))]


def image_ari(true_ids: Any, predicted_ids: Any) -> float:
    """ARI of each frame on its own, averaged; it ignores changes of id over time.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        1 is perfect, 0 is chance.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return float(np.mean(per_image(ari_of, confusion(true_ids, predicted_ids))))


def image_fg_ari(true_ids: Any, predicted_ids: Any) -> float:
    """FG-ARI of each frame on its own, averaged; it ignores changes of id over time.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        1 is perfect, 0 is chance. A frame without objects counts as 1.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return float(np.mean(per_image(fg_ari_of, confusion(true_ids, predicted_ids))))


def image_miou(true_ids: Any, predicted_ids: Any) -> float:
    """The mIoU of each frame on its own, averaged; it ignores changes of id over time.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        From 0 to 1.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return float(np.mean(per_image(miou_of, confusion(true_ids, predicted_ids))))


def image_mbo(true_ids: Any, predicted_ids: Any) -> float:
    """The mBO of each frame on its own, averaged; it ignores changes of id over time.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        From 0 to 1.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return float(np.mean(per_image(mbo_of, confusion(true_ids, predicted_ids))))


# What these hide


def fragments(table: Confusion, null: int | None = None) -> Float[np.ndarray, " objects"]:
    """Number of predicted segments that share each object: 1 / Σ share², the inverse Simpson index. 1 if one segment
    covers it, n for n equal parts, 0 if no segment covers it. Null is not a segment."""
    shares = table.total[table.is_object][:, table.predicted != null].astype(float)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    concentration = (shares**2).sum(axis=1)
    return np.divide(1, concentration, out=np.zeros_like(concentration), where=concentration > 0)


def slots_per_object(table: Confusion, null: int | None = None) -> float:
    """Number of predicted segments that share an object: 1 / Σ share², the inverse Simpson index.

    Args:
        table: Confusion table of the video.
        null: The predicted id that does not count as a segment; None: all ids count.

    Returns:
        The mean over the objects that a segment covers: 1 if one segment covers each, n for n equal parts.
    """
    found = fragments(table, null)
    return float(found[found > 0].mean()) if found.any() else 1.0


def whole_objects(table: Confusion, null: int | None = None, at_least: float = 0.5) -> float:
    """Share of objects that one predicted segment covers well.

    Args:
        table: Confusion table of the video.
        null: The predicted id that does not count as a segment; None: all ids count.
        at_least: The smallest IoU that counts as covered.

    Returns:
        From 0 to 1; 1 where there is no object.
    """
    overlap = overlaps(table.total)[table.is_object][:, table.predicted != null]
    return float((overlap.max(axis=1, initial=0) >= at_least).mean()) if len(overlap) else 1.0


@dataclass
class Switches:
    """Counts identity switches frame by frame: a switch is a frame where an object's holder differs from its previous
    one.

    The holder is the segment, other than null, with most of the object's pixels. Frames with a tie or without a holder
    are skipped, so the result does not depend on ids.
    """

    null: int | None = None
    _holder: dict[int, int] = field(default_factory=dict)
    _count: dict[int, int] = field(default_factory=dict)

    def add(self, table: Confusion) -> dict[int, dict[int, int]]:
        """For each object its holder in each frame of the table that is not skipped."""
        segments = np.flatnonzero(table.predicted != self.null)
        found: dict[int, dict[int, int]] = {}
        for row in np.flatnonzero(table.is_object):
            name = int(table.true[row])
            found[name] = {}
            self._count.setdefault(name, 0)
            for t, counts in enumerate(table.counts[:, row][:, segments]):
                most = segments[counts == counts.max(initial=1)]
                if len(most) == 1:
                    holder = found[name][t] = int(table.predicted[most[0]])
                    self._count[name] += self._holder.get(name, holder) != holder
                    self._holder[name] = holder
        return found

    def per_object(self) -> float:
        """Identity switches so far, a mean over objects."""
        return sum(self._count.values()) / len(self._count) if self._count else 0.0


def identity_switches(table: Confusion, null: int | None = None) -> float:
    """How often the segment with most of an object changes.

    Args:
        table: Confusion table of the video, with one entry per frame.
        null: The predicted id that does not count as a segment; None: all ids count.

    Returns:
        Switches per object, a mean over objects. Frames with a tie or without a segment are skipped.
    """
    switches = Switches(null)
    switches.add(table)
    return switches.per_object()


def boundaries(ids: Integer[np.ndarray, "T H W"]) -> Bool[np.ndarray, "T H W"]:
    """Pixels whose right or lower neighbour has another id."""
    found = np.zeros(ids.shape, bool)
    found[:, :-1] |= ids[:, :-1] != ids[:, 1:]
    found[:, :, :-1] |= ids[:, :, :-1] != ids[:, :, 1:]
    return found


def _near(found: Bool[np.ndarray, "T H W"], distance: int) -> Bool[np.ndarray, "T H W"]:
    """Pixels within `distance` of a marked pixel, along both axes."""
    for axis in (1, 2):
        grown = found.copy()
        for step in range(1, distance + 1):
            ahead, behind = [slice(None)] * 3, [slice(None)] * 3
            ahead[axis], behind[axis] = slice(step, None), slice(None, -step)
            grown[tuple(ahead)] |= found[tuple(behind)]
            grown[tuple(behind)] |= found[tuple(ahead)]
        found = grown
    return found


def boundary_counts(true_ids: np.ndarray, predicted_ids: np.ndarray) -> Int64[np.ndarray, " 4"]:
    """Numbers of pixels for precision and recall: predicted boundary pixels near a true one, all predicted ones, true
    ones near a predicted one, all true ones. Near means within 0.8 % of the picture's diagonal, rounded up."""
    distance = math.ceil(0.008 * math.hypot(*true_ids.shape[1:]))
    true, predicted = boundaries(true_ids), boundaries(predicted_ids)
    right, found = (predicted & _near(true, distance)).sum(), (true & _near(predicted, distance)).sum()
    return np.array([right, predicted.sum(), found, true.sum()], np.int64)


def boundary_f_of(counts: Int64[np.ndarray, " 4"]) -> float:
    """The harmonic mean of precision and recall of boundary pixels; 1 if there are no boundary pixels."""
    right, predicted, found, true = counts.tolist()
    if not predicted or not true:
        return float(predicted == true)
    precision, recall = right / predicted, found / true
    return 2 * precision * recall / (precision + recall) if right and found else 0.0


def boundary_f(true_ids: Any, predicted_ids: Any) -> float:
    """F-score of the boundaries between segments.

    A boundary pixel is correct if a boundary pixel of the other map lies within 0.8 % of the diagonal, rounded up.

    Args:
        true_ids: Integers, `T H W` or `H W`, numpy or torch; 0 is the background.
        predicted_ids: Integers of the same shape.

    Returns:
        From 0 to 1: the harmonic mean of precision and recall; 1 if there are no boundary pixels.

    Raises:
        BadInput: If the shapes differ or the ids are not whole numbers.
    """
    return boundary_f_of(boundary_counts(*pair(true_ids, predicted_ids)))


def stability_counts(ids: Integer[np.ndarray, "T H W"]) -> tuple[float, int]:
    """The sum of the IoUs of each segment with itself in the next frame, and the number of such pairs; a segment that
    is visible in only one of two frames has none."""
    total, number = 0.0, 0
    for now, then in pairwise(ids):
        table = confusion(now[None], then[None])
        overlap = overlaps(table.total)
        same = table.true[:, None] == table.predicted[None, :]
        total += float(overlap[same].sum())
        number += len(np.union1d(table.true, table.predicted))
    return total, number


def stability(ids: Any) -> float:
    """Mean IoU of each segment with itself in the next frame.

    Moving objects have less than 1, so compare with the stability of the true ids; flickering masks score lower.

    Args:
        ids: Integers, `T H W`, numpy or torch.

    Returns:
        From 0 to 1; 1 for a single frame.
    """
    total, number = stability_counts(_ids(ids, "ids"))
    return total / number if number else 1.0
