"""The band in which the loss of a training stays, to tell checkpoints from before a divergence from those after it.

The band ends at median + 10 * max(|median|, q90 - q10) of the last 100 losses that were inside it; these are weighted
sums, as the optimiser sees them. A loss above that end, or one that is not finite, is outside and does not move the
band, so a diverged training never becomes the rule. The first 10 losses have a wider band, up to 1,000 times the
largest of them (and at least 1,000), because a training may begin anywhere. Lower losses are always inside.

The band only watches: it changes no number of the training.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

WINDOW, FIRST = 100, 10
"""Losses that the band remembers, and those after which it is known."""
WIDTH, FIRST_WIDTH = 10.0, 1_000.0


class LossBand:
    """`calm_since`: the update since which every loss was inside; `left_at`: the update whose loss ended that, as long
    as losses stay outside. None where there is none."""

    def __init__(self) -> None:
        self._inside: deque[float] = deque(maxlen=WINDOW)
        self.calm_since: int | None = None
        self.left_at: int | None = None

    @property
    def end(self) -> float:
        """Losses above this one are outside."""
        if len(self._inside) < FIRST:
            return FIRST_WIDTH * max([1.0, *map(abs, self._inside)])
        median = statistics.median(self._inside)
        tenths = statistics.quantiles(self._inside, n=10)
        return median + WIDTH * max(abs(median), tenths[-1] - tenths[0])

    def note(self, update: int, loss: float) -> None:
        """The loss of the parameters after this many updates."""
        if not math.isfinite(loss) or (self._inside and loss > self.end):
            self.left_at = update if self.left_at is None else self.left_at
            return
        self._inside.append(loss)
        if self.calm_since is None or self.left_at is not None:
            self.calm_since, self.left_at = update, None

    def confirms(self, update: int) -> bool:
        """Whether the parameters after this many updates are good: their loss was inside, and every later one too, up
        to now or until losses left the band."""
        if self.calm_since is None or update < self.calm_since:
            return False
        return self.left_at is None or update < self.left_at

    def remember(self) -> dict[str, Any]:
        return {"inside": list(self._inside), "calm_since": self.calm_since, "left_at": self.left_at}

    def recall(self, facts: dict[str, Any]) -> None:
        self._inside = deque(facts["inside"], maxlen=WINDOW)
        self.calm_since, self.left_at = facts["calm_since"], facts["left_at"]
