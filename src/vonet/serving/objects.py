"""Which segments are objects: not the background, not thin, not too small, not too brief.

The decision is made once for a whole video, so that all outputs agree. Where a video has true ids, the decision is
scored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Integer
from scipy.optimize import linear_sum_assignment

from vonet.errors import BadInput, check_choice
from vonet.serving.tracks import Row, Tracks

Background = Literal["drop", "keep"]
Reason = Literal["background", "thin", "small", "brief"]
"""Why a segment is not an object."""

MIN_CORE = 0.1
"""A segment with a smaller share of its pixels inside is thin, such as a rim of mixed colours around an object, or a
highlight."""
MIN_OVERLAP = 0.5
"""Smallest intersection over union, over the video, with which a segment matches a true object."""


@dataclass(frozen=True, kw_only=True)
class ObjectRule:
    """What counts as an object.

    Attributes:
        background: "drop" leaves out background (`interface/background.py`) and thin segments; "keep" counts them as
            objects.
        min_area: Smallest mean area of an object where it is visible, in pixels ("200") or as a share of the frame
            ("0.1%").
        min_frames: Smallest number of frames in which an object is visible; shorter videos need all frames.
    """

    background: str = "drop"
    min_area: str = "0.1%"
    min_frames: int = 2

    def __post_init__(self) -> None:
        check_choice("background", self.background, Background)
        self._min_share((1, 1))
        if self.min_frames < 1:
            raise BadInput(f"min-frames is {self.min_frames}; it must be 1 (no limit) or more")

    def _min_share(self, size: tuple[int, int]) -> float:
        told = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(%?)", str(self.min_area).strip())
        if told is None or (told[2] and float(told[1]) > 100):
            raise BadInput(f"min-area is {self.min_area!r}; give pixels (200) or a share of the frame (0.1%)")
        return float(told[1]) / (100 if told[2] else size[0] * size[1])

    def left_out(self, tracks: Tracks, size: tuple[int, int]) -> dict[int, Reason]:
        """The segments that are not objects, with the reason. `size`: height and width of the frames."""
        behind = tracks.background() if self.background == "drop" else frozenset()
        found: dict[int, Reason] = {}
        for row in tracks.table():
            if row.id in behind:
                found[row.id] = "background"
            elif row.mean_area < self._min_share(size):
                found[row.id] = "small"
            elif row.frames < min(self.min_frames, tracks.frames):
                found[row.id] = "brief"
            elif self.background == "drop" and row.core < MIN_CORE:
                found[row.id] = "thin"
        return found


@dataclass(frozen=True)
class RuleScore:
    """Quality of the rule on a video with true ids. A segment and a true object match one to one, with an intersection
    over union of at least 0.5 over the video."""

    true_objects: int
    segments: int
    matched: int  # true objects that some segment matches, objects or not
    objects: int  # segments that the rule calls objects
    right: int  # of these, how many match a true object

    @property
    def precision(self) -> float:
        """Of the segments that the rule calls objects, the share that match a true object."""
        return self.right / self.objects if self.objects else 1.0

    @property
    def recall(self) -> float:
        """Of the true objects that the model found, the share that the rule keeps."""
        return self.right / self.matched if self.matched else 1.0

    def as_json(self) -> dict[str, Any]:
        """For `segment.json`."""
        return asdict(self) | {"precision": round(self.precision, 4), "recall": round(self.recall, 4)}

    def __str__(self) -> str:
        before = 100 * self.matched / max(1, self.segments)
        return (
            f"the rule for objects has a precision of {100 * self.precision:.1f} % ({self.right} of {self.objects}; "
            f"{before:.1f} % of all {self.segments} segments) and a recall of {100 * self.recall:.1f} % ({self.right} "
            f"of the {self.matched} found; there are {self.true_objects} true objects)"
        )


def joined(scores: Sequence[RuleScore]) -> RuleScore:
    """The total over several videos."""
    parts = ("true_objects", "segments", "matched", "objects", "right")
    return RuleScore(*(sum(getattr(score, part) for score in scores) for part in parts))


class Truth:
    """Counts, frame by frame, how segments and true objects overlap."""

    def __init__(self) -> None:
        self._both: Counter[tuple[int, int]] = Counter()

    def add(self, ids: Integer[np.ndarray, "H W"], true_ids: Integer[np.ndarray, "H W"]) -> None:
        """Add the ids and the true ids of the next frame."""
        pairs = ids.astype(np.int64) << 32 | true_ids.astype(np.int64)
        for pair, count in zip(*np.unique(pairs, return_counts=True), strict=True):
            self._both[int(pair) >> 32, int(pair) & 0xFFFFFFFF] += int(count)

    def score(self, left_out: Mapping[int, Reason], rows: Sequence[Row]) -> RuleScore:
        """Precision and recall of the rule, after all frames were added."""
        ids = [row.id for row in rows]
        true = sorted({true for _, true in self._both} - {0})
        both = np.array([[self._both[one, other] for other in true] for one in ids]).reshape(len(ids), len(true))
        of_ids = np.array([sum(n for (i, _), n in self._both.items() if i == one) for one in ids])
        of_true = np.array([sum(n for (_, t), n in self._both.items() if t == other) for other in true])
        overlap = both / np.maximum(of_ids[:, None] + of_true[None, :] - both, 1)
        places = zip(*linear_sum_assignment(overlap, maximize=True), strict=True) if overlap.size else []
        matched = [ids[i] for i, j in places if overlap[i, j] >= MIN_OVERLAP]
        right = [one for one in matched if one not in left_out]
        return RuleScore(len(true), len(ids), len(matched), len(ids) - len(left_out), len(right))
