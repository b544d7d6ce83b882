"""The Sprites-MOT score: CLEAR-MOT of object masks, as in Weis et al. (JMLR 2021), and the published table.

The paper, "Benchmarking Unsupervised Object Representations for Video Sequences", scores frames 2 to 9 (counted from 0)
of clips of ten frames at 64x64 pixels. Per frame, true objects and predicted segments are matched by IoU; the package
`motmetrics` keeps matches over time and names the events. Matches, objects and segments never span two clips, so the
events of clips add up (`TrackingCounts`). docs/protocol.md has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer

from vonet.errors import BadInput, missing_package
from vonet.evaluation.metrics import BACKGROUND, confusion
from vonet.interface import NULL

CLIP_FRAMES = 10
FIRST_SCORED = 2
"""The first two frames of a clip are not scored."""
SMALLEST_MASK = 6
"""Pixels; smaller true and predicted masks are dropped."""
BACKGROUND_IOU = 0.2
"""Segments whose IoU with the true background is larger are background, and dropped."""
MATCH_IOU = 0.5
"""Pairs with a smaller IoU cannot match."""
MOSTLY = 0.8
"""Share of its frames in which an object must be detected (tracked) to count in MD (MT)."""

TRACKING_SCORES: dict[str, str] = {
    "mota": "MOTA",
    "motp": "MOTP",
    "md": "MD",
    "mt": "MT",
    "matches": "match",
    "misses": "miss",
    "id_switches": "id switches",
    "false_positives": "false positives",
}
"""Names of the scores, all in percent, and what tables call them."""

_PUBLISHED = {
    "SCALOR": ((94.9, 0.5), (80.2, 0.1), (96.4, 0.1), (93.2, 0.7), (95.9, 0.4), (2.4, 0.0), (1.7, 0.4), (1.0, 0.1)),
    "ViMON": ((92.9, 0.2), (91.8, 0.2), (87.7, 0.8), (87.2, 0.8), (95.0, 0.2), (4.8, 0.2), (0.2, 0.0), (2.1, 0.1)),
    "OP3": ((89.1, 5.1), (78.4, 2.4), (92.4, 4.0), (91.8, 3.8), (95.9, 2.2), (3.7, 2.2), (0.4, 0.0), (6.8, 2.9)),
    "TBA": ((79.7, 15.0), (71.2, 0.3), (83.4, 9.7), (80.0, 13.6), (87.8, 9.0), (9.6, 6.0), (2.6, 3.0), (8.1, 6.0)),
    "MONet": ((70.2, 0.8), (89.6, 1.0), (92.4, 0.6), (50.4, 2.4), (75.3, 1.3), (4.4, 0.4), (20.3, 1.6), (5.1, 0.5)),
}
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    method: dict(zip(TRACKING_SCORES, scores, strict=True)) for method, scores in _PUBLISHED.items()
}
"""The benchmark's table: mean and standard deviation of three trainings, in percent."""


def require_motmetrics() -> ModuleType:
    """The package `motmetrics`, which is an optional dependency."""
    try:
        import motmetrics
    except ImportError:
        raise missing_package("The Sprites-MOT score", "motmetrics") from None
    return motmetrics


@dataclass(frozen=True)
class TrackingCounts:
    """Tracking events of one or more clips. Counts of different clips can be added.

    Attributes:
        object_frames: Pairs of a true object and a scored frame in which its mask is not dropped. Each pair is a match,
            a miss or an id switch.
        matches: Pairs whose segment is the one that the object had before.
        misses: Pairs without a segment.
        id_switches: Pairs whose segment is another one than before.
        false_positives: Predicted segments that match no object, summed over frames.
        iou: Sum of the IoU of matches and id switches.
        objects: True objects with at least one such frame.
        mostly_detected: Objects that are matched in at least 80 % of their frames, id switches included.
        mostly_tracked: The same, but id switches do not count.
    """

    object_frames: int = 0
    matches: int = 0
    misses: int = 0
    id_switches: int = 0
    false_positives: int = 0
    iou: float = 0.0
    objects: int = 0
    mostly_detected: int = 0
    mostly_tracked: int = 0

    def __add__(self, other: TrackingCounts) -> TrackingCounts:
        return TrackingCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def scores(self) -> dict[str, float]:
        """The scores of `TRACKING_SCORES`, in percent. MOTP is 0 where nothing was matched."""
        if not self.object_frames:
            raise BadInput("the clips show no object in frames 2 to 9; tracking scores need at least one")
        detected = self.matches + self.id_switches
        errors = self.misses + self.id_switches + self.false_positives
        shares = {
            "mota": 1 - errors / self.object_frames,
            "motp": self.iou / detected if detected else 0.0,
            "md": self.mostly_detected / self.objects,
            "mt": self.mostly_tracked / self.objects,
            **{
                name: getattr(self, name) / self.object_frames
                for name in ("matches", "misses", "id_switches", "false_positives")
            },
        }
        return {name: 100 * shares[name] for name in TRACKING_SCORES}


class ClipTracking:
    """Counts the events of one clip from consecutive pieces of its true and predicted ids."""

    def __init__(self) -> None:
        self._frames = 0
        self._events = require_motmetrics().MOTAccumulator()

    def add(self, true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"]) -> None:
        """The next frames of the clip. A true id of 0 is the background; a predicted id of 0 means no segment."""
        for true, predicted in zip(true_ids, predicted_ids, strict=True):
            if self._frames >= FIRST_SCORED:
                objects, segments, iou = frame_overlaps(true, predicted)
                distances = np.where(iou < MATCH_IOU, np.nan, 1 - iou)
                self._events.update(objects, segments, distances, frameid=self._frames)
            self._frames += 1

    def counts(self) -> TrackingCounts:
        """Events so far."""
        events = self._events.mot_events
        kinds = events["Type"].to_numpy(str)
        names, frames = np.unique(events["OId"][np.isin(kinds, ["MATCH", "SWITCH", "MISS"])], return_counts=True)
        matched, switched, missed = (
            np.array([(events["OId"][kinds == kind] == name).sum() for name in names], np.int64)
            for kind in ("MATCH", "SWITCH", "MISS")
        )
        return TrackingCounts(
            object_frames=int(frames.sum()),
            matches=int(matched.sum()),
            misses=int(missed.sum()),
            id_switches=int(switched.sum()),
            false_positives=int((kinds == "FP").sum()),
            iou=float((1 - events["D"][np.isin(kinds, ["MATCH", "SWITCH"])]).sum()),
            objects=len(names),
            mostly_detected=int(((matched + switched) / frames >= MOSTLY).sum()),
            mostly_tracked=int((matched / frames >= MOSTLY).sum()),
        )


def frame_overlaps(
    true_ids: Integer[np.ndarray, "H W"], predicted_ids: Integer[np.ndarray, "H W"]
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " m"], Float[np.ndarray, "n m"]]:
    """The objects and segments of one frame that are scored, and the IoU of each pair.

    Masks of 5 pixels or fewer are dropped. Segments that overlap with the true background by an IoU above 0.2 are
    dropped, and the background is not an object."""
    table = confusion(true_ids, predicted_ids)
    shared = table.counts[0]
    true_area, predicted_area = shared.sum(axis=1), shared.sum(axis=0)
    iou = shared / (true_area[:, None] + predicted_area - shared)
    is_background = table.true == BACKGROUND
    on_background: Bool[np.ndarray, " m"] = (iou[is_background] > BACKGROUND_IOU).any(axis=0)
    rows = ~is_background & (true_area >= SMALLEST_MASK)
    columns = (table.predicted != NULL) & (predicted_area >= SMALLEST_MASK) & ~on_background
    return table.true[rows].astype(np.int64), table.predicted[columns].astype(np.int64), iou[rows][:, columns]


def count_events(true_ids: Any, predicted_ids: Any) -> TrackingCounts:
    """The events of one clip, ids `10 H W`. Predicted ids are slots or labels; 0 means no segment."""
    true_ids, predicted_ids = np.asarray(true_ids), np.asarray(predicted_ids)
    if true_ids.shape != predicted_ids.shape or true_ids.ndim != 3 or len(true_ids) != CLIP_FRAMES:
        raise BadInput(
            f"true and predicted ids have the shapes {true_ids.shape} and {predicted_ids.shape}; both must have the "
            f"same shape {CLIP_FRAMES} H W"
        )
    clip = ClipTracking()
    clip.add(true_ids, predicted_ids)
    return clip.counts()


def tracking_scores(clips: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """The tracking scores of the benchmark Sprites-MOT, for predictions from any program (Weis et al., JMLR 2021).

    Args:
        clips: True and predicted ids of each clip, integers `10 H W`. A predicted 0 means no segment.

    Returns:
        The scores of `TRACKING_SCORES` over all clips, in percent.

    Raises:
        BadInput: If ids have another shape, or no clip shows an object in the scored frames.
    """
    return sum((count_events(*clip) for clip in clips), TrackingCounts()).scores()


def mean_and_std(seeds: Sequence[TrackingCounts]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each score over seeds; the latter is NaN for a single seed."""
    scores = [counts.scores() for counts in seeds]
    found = {}
    for name in TRACKING_SCORES:
        values = [of_seed[name] for of_seed in scores]
        found[name] = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return found


def tracking_table(ours: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Mean and standard deviation of each of our methods in percent, and the published ones below, as Markdown."""
    published = {f"{method} (published)": scores for method, scores in PUBLISHED.items()}
    rows = [["tracking, in percent", *TRACKING_SCORES.values()]]
    for method, scores in {**ours, **published}.items():
        rows.append([method, *(_cell(*scores[name]) for name in TRACKING_SCORES)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |" for row in rows]
    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _cell(mean: float, std: float) -> str:
    return f"{mean:.1f}" if math.isnan(std) else f"{mean:.1f} ± {std:.1f}"
