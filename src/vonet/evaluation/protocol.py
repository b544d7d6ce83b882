"""The rules under which a segmentation is scored. They differ between papers, and scores with them: so they are data.

docs/protocol.md has them as a table, with where each rule comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Integer

from vonet.errors import BadInput
from vonet.evaluation import metrics
from vonet.evaluation.metrics import Confusion

NULL = 0
"""The predicted id of pixels of which no slot is sure; slot k has the id k + 1."""


@dataclass(frozen=True)
class Protocol:
    """window: videos are cut into pieces of so many frames, each begun with fresh slots and scored on its own (an
    incomplete last one is left out); None takes them whole.
    sure_above: a pixel belongs to its best slot only if that has more than this probability; None: always.
    largest_id: true ids above are counted as background, in ARI and FG-ARI, and elsewhere if `everywhere`.
    background: whether the true background is one of the segments that mIoU matches and averages over.
    """

    name: str
    window: int | None = None
    sure_above: float | None = None
    largest_id: int | None = None
    everywhere: bool = False
    background: bool = True


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("vonet", sure_above=0.3, largest_id=24),
        Protocol("savi", largest_id=23, everywhere=True),
        Protocol("steve", window=6),
        Protocol("videosaur", background=False),
    )
}


def get(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise BadInput(f"there is no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


SCORES: dict[str, str] = {
    "fg_ari": "FG-ARI",
    "miou": "mIoU",
    "ari": "ARI",
    "mbo": "mBO",
    "image_fg_ari": "image FG-ARI",
    "image_miou": "image mIoU",
    "whole_objects": "objects whole",
    "slots_per_object": "slots per object",
    "identity_switches": "switches per object",
    "slots_used": "slots used",
    "null_share": "null pixels",
    "boundary_f": "boundary F",
    "stability": "stability",
    "true_stability": "true stability",
}
"""What is reported, and what it is called in tables."""


@dataclass
class Scorer:
    """Scores one video (or one window of it) from consecutive pieces of true and predicted ids, remembering only
    counts."""

    protocol: Protocol
    _tables: list[Confusion] = field(default_factory=list)
    _boundary: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))
    _stability: dict[str, tuple[float, int]] = field(default_factory=dict)
    _last: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"]) -> None:
        self._tables.append(metrics.confusion(true_ids, predicted_ids))
        self._boundary = self._boundary + metrics.boundary_counts(true_ids, predicted_ids)
        for name, ids in (("stability", predicted_ids), ("true_stability", true_ids)):
            before = self._last.get(name, ids[:0])
            total, number = metrics.stability_counts(np.concatenate([before, ids]))
            so_far = self._stability.get(name, (0.0, 0))
            self._stability[name] = so_far[0] + total, so_far[1] + number
            self._last[name] = ids[-1:]

    def scores(self) -> dict[str, float]:
        raw = metrics.joined(self._tables)
        limit = self.protocol.largest_id
        limited = raw if limit is None else raw.to_background(raw.true > limit)
        table = limited if self.protocol.everywhere else raw
        used = raw.predicted != NULL

        def miou(one: Confusion) -> float:
            return metrics.miou_of(one, self.protocol.background)

        found = {
            "fg_ari": metrics.fg_ari_of(limited),
            "miou": miou(table),
            "ari": metrics.ari_of(limited),
            "mbo": metrics.mbo_of(table),
            "image_fg_ari": metrics.per_image(metrics.fg_ari_of, limited),
            "image_miou": metrics.per_image(miou, table),
            "whole_objects": metrics.whole_objects(table),
            "slots_per_object": metrics.slots_per_object(table),
            "identity_switches": metrics.identity_switches(table),
            "slots_used": float(used.sum()),
            "null_share": float(raw.total[:, ~used].sum() / raw.total.sum()),
            "boundary_f": metrics.boundary_f_of(self._boundary),
            **{name: total / number if number else 1.0 for name, (total, number) in self._stability.items()},
        }
        return {name: found[name] for name in SCORES}


def score(
    true_ids: Integer[np.ndarray, "T H W"], predicted_ids: Integer[np.ndarray, "T H W"], protocol: str = "vonet"
) -> dict[str, float]:
    """All scores of one video under the rules for ids and windows of a protocol (which pixels are null was decided when
    the ids were made)."""
    rules = get(protocol)
    window = rules.window or len(true_ids)
    if len(true_ids) < window:
        raise BadInput(f"the video has {len(true_ids)} frames; the protocol {rules.name!r} needs at least {window}")
    windows = []
    for start in range(0, len(true_ids) - window + 1, window):
        scorer = Scorer(rules)
        scorer.add(true_ids[start : start + window], predicted_ids[start : start + window])
        windows.append(scorer.scores())
    return {name: float(np.mean([scores[name] for scores in windows])) for name in SCORES}
