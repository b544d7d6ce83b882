"""Protocols: the rules under which a segmentation is scored. Papers differ in these rules, and so scores differ.

docs/protocol.md lists them in a table, with the source of each rule.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

import numpy as np
from jaxtyping import Integer

from vonet.errors import BadInput
from vonet.evaluation import metrics
from vonet.evaluation.metrics import Confusion
from vonet.evaluation.spmot import CLIP_FRAMES, ClipTracking, TrackingCounts, require_motmetrics
from vonet.interface import MIN_PROBABILITY, NULL


@dataclass(frozen=True)
class Protocol:
    """The rules of one paper.

    Attributes:
        window: Videos are cut into windows of this many frames, each started with fresh slots and scored on its own (an
            incomplete last window is left out); None: whole videos.
        min_probability: A pixel belongs to its best slot only if the slot has more than this probability; None: always.
        largest_id: Larger true ids are counted as background in ARI and FG-ARI, and in all scores with `everywhere`.
        background: Whether the true background is one of the segments that mIoU matches and averages over.
        tracking: Whether the CLEAR-MOT scores of evaluation/spmot.py are computed too, which needs motmetrics.
    """

    name: str
    window: int | None = None
    min_probability: float | None = None
    largest_id: int | None = None
    everywhere: bool = False
    background: bool = True
    tracking: bool = False


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("vonet", min_probability=MIN_PROBABILITY, largest_id=24),
        Protocol("savi", largest_id=23, everywhere=True),
        Protocol("steve", window=6),
        Protocol("videosaur", background=False),
        Protocol("spmot", window=CLIP_FRAMES, tracking=True),
    )
}


def get(name: str) -> Protocol:
    """The protocol of this name.

    Raises:
        BadInput: If there is no such protocol, or if it needs motmetrics, which is not installed.
    """
    if name not in PROTOCOLS:
        raise BadInput(f"there is no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    if PROTOCOLS[name].tracking:
        require_motmetrics()
    return PROTOCOLS[name]


SCORES: dict[str, str] = {
    "fg_ari": "FG-ARI",
    "miou": "mIoU",
    "ari": "ARI",
    "mbo": "mBO",
    "image_fg_ari": "image FG-ARI",
    "image_miou": "image mIoU",
    "image_ari": "image ARI",
    "image_mbo": "image mBO",
    "whole_objects": "objects whole",
    "slots_per_object": "slots per object",
    "identity_switches": "switches per object",
    "slots_used": "slots used",
    "null_share": "null pixels",
    "boundary_f": "boundary F",
    "stability": "stability",
    "true_stability": "true stability",
}
"""The scores that are reported, and their names in tables."""
COUNTS = {"slots_per_object", "identity_switches", "slots_used"}
"""Scores that are counts. All others are shares, which tables show in percent."""
LESS_IS_BETTER = {"slots_per_object", "identity_switches", "null_share"}


class Score(Interface):
    """A user-defined score, created anew for each video or window."""

    def add(self, true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"]) -> None:
        """Add the next frames; a predicted id of 0 is null. The stored data should not grow with the length of the
        video."""

    def value(self) -> float:
        """The score of all frames so far."""


_OWN: dict[str, Callable[[], Score]] = {}


def add_score(
    name: str, spoken: str, make: Callable[[], Score], *, count: bool = False, less_is_better: bool = False
) -> None:
    """Add your own score to every evaluation. Adding a score of the same name replaces it.

    Args:
        name: Its name in JSON and CSV files.
        spoken: Its name in tables.
        make: The class that computes it (a `Score`); one object is created for each video or window.
        count: Whether the score is a count; otherwise it is a share, which tables show in percent.
        less_is_better: Whether smaller is better.

    Raises:
        BadInput: If vonet already has a score of that name.
    """
    if name in SCORES and name not in _OWN:
        raise BadInput(f"there is a score {name!r} already: give yours another name")
    _OWN[name], SCORES[name] = make, spoken
    for names, member in ((COUNTS, count), (LESS_IS_BETTER, less_is_better)):
        (names.add if member else names.discard)(name)


class Scorer:
    """Scores one video (or one window of it) from consecutive pieces of true and predicted ids. It stores only sums and
    the last frame, so a video may have any length."""

    def __init__(self, protocol: Protocol):
        self.protocol = protocol
        self._total: Confusion | None = None
        self._images: defaultdict[str, float] = defaultdict(float)
        self._frames = 0
        self._switches = metrics.Switches(NULL)
        self._boundary = np.zeros(4, np.int64)
        self._stability: defaultdict[str, float] = defaultdict(float)
        self._last: dict[str, np.ndarray] = {}
        self._own = {name: make() for name, make in _OWN.items()}
        self._tracking = ClipTracking() if protocol.tracking else None

    def add(self, true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"]) -> None:
        """Add the next frames of the video."""
        raw = metrics.confusion(true_ids, predicted_ids)
        limited, table = self._limited(raw)
        self._total = metrics.added([raw] if self._total is None else [self._total, raw])
        self._frames += len(true_ids)
        for name, metric, which in (
            ("image_fg_ari", metrics.fg_ari_of, limited),
            ("image_ari", metrics.ari_of, limited),
            ("image_miou", self._miou, table),
            ("image_mbo", metrics.mbo_of, table),
        ):
            self._images[name] += sum(metrics.per_image(metric, which))
        self._switches.add(table)
        self._boundary += metrics.boundary_counts(true_ids, predicted_ids)
        for name, ids in (("stability", predicted_ids), ("true_stability", true_ids)):
            total, number = metrics.stability_counts(np.concatenate([self._last.get(name, ids[:0]), ids]))
            self._stability[name] += total
            self._stability[f"{name} number"] += number
            self._last[name] = ids[-1:].copy()
        for own in self._own.values():
            own.add(true_ids, predicted_ids)
        if self._tracking is not None:
            self._tracking.add(true_ids, predicted_ids)

    def _limited(self, raw: Confusion) -> tuple[Confusion, Confusion]:
        """The tables for ARI and for the other scores, with large ids as background if the protocol says so."""
        limit = self.protocol.largest_id
        limited = raw if limit is None else raw.to_background(raw.true > limit)
        return limited, limited if self.protocol.everywhere else raw

    def _miou(self, table: Confusion) -> float:
        return metrics.miou_of(table, self.protocol.background)

    def tracking(self) -> TrackingCounts | None:
        """The tracking events of the window; None if the protocol does not count them."""
        return None if self._tracking is None else self._tracking.counts()

    def scores(self) -> dict[str, float]:
        """A number for each name in `SCORES`, over all frames so far."""
        assert self._total is not None, "nothing was added"
        raw = self._total
        limited, table = self._limited(raw)
        used = raw.predicted != NULL
        found = {
            "fg_ari": metrics.fg_ari_of(limited),
            "miou": self._miou(table),
            "ari": metrics.ari_of(limited),
            "mbo": metrics.mbo_of(table),
            **{name: total / self._frames for name, total in self._images.items()},
            "whole_objects": metrics.whole_objects(table, NULL),
            "slots_per_object": metrics.slots_per_object(table, NULL),
            "identity_switches": self._switches.per_object(),
            "slots_used": float(used.sum()),
            "null_share": float(raw.total[:, ~used].sum() / raw.total.sum()),
            "boundary_f": metrics.boundary_f_of(self._boundary),
        }
        for name in ("stability", "true_stability"):
            number = self._stability[f"{name} number"]
            found[name] = self._stability[name] / number if number else 1.0
        found |= {name: _finite(name, float(own.value())) for name, own in self._own.items()}
        return {name: float(found[name]) for name in SCORES}


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise BadInput(f"the score {name!r} gave {value} for a video; it must be a finite number for every one")
    return value


def score(true_ids: Any, predicted_ids: Any, protocol: str = "vonet") -> dict[str, float]:
    """All scores of one video, for predictions from any program.

    Args:
        true_ids: Integers, `T H W`; 0 is the background.
        predicted_ids: Integers, `T H W`; 0 is null, which means no segment.
        protocol: The protocol, which decides about ids and windows.

    Returns:
        A number for each name in `SCORES`. Shares are between 0 and 1.

    Raises:
        BadInput: If the shapes differ, or the video is shorter than a window.
    """
    rules = get(protocol)
    true_ids, predicted_ids = metrics.pair(true_ids, predicted_ids)
    window = rules.window or len(true_ids)
    if len(true_ids) < window:
        raise BadInput(f"the video has {len(true_ids)} frames; the protocol {rules.name!r} needs at least {window}")
    windows = []
    for start in range(0, len(true_ids) - window + 1, window):
        scorer = Scorer(rules)
        scorer.add(true_ids[start : start + window], predicted_ids[start : start + window])
        windows.append(scorer.scores())
    return {name: float(np.mean([scores[name] for scores in windows])) for name in SCORES}
