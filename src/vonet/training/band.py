"""The usual range ("band") of a training's loss, which separates checkpoints before a divergence from those after it.

The upper end of the band is median + 10 * max(|median|, q90 - q10) of the last 100 losses inside it. Losses are the
weighted sums that the optimiser minimises. A loss above that end, or one that is not finite, is outside and does not
change the band, so the losses of a diverged training never become normal. The first 10 losses have a wider band, up to
1,000 times the largest of them (and at least 1,000), because initial losses can have any size. Lower losses are always
inside.

The band only observes: it does not affect the training.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

WINDOW, FIRST = 100, 10
"""Number of losses that the band remembers, and number of losses after which it is known."""
WIDTH, FIRST_WIDTH = 10.0, 1_000.0


class LossBand:
    """`calm_since`: Update since which every loss was inside; `left_at`: update at which losses left the band, while
    they stay outside. None if there is no such update."""

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
        """Adds the loss of the parameters after this many updates."""
        if not math.isfinite(loss) or (self._inside and loss > self.end):
            self.left_at = update if self.left_at is None else self.left_at
            return
        self._inside.append(loss)
        if self.calm_since is None or self.left_at is not None:
            self.calm_since, self.left_at = update, None

    def confirms(self, update: int) -> bool:
        """Whether the parameters after this many updates are good: their loss was inside the band, and so were all
        later losses until now or until losses left the band."""
        if self.calm_since is None or update < self.calm_since:
            return False
        return self.left_at is None or update < self.left_at

    def remember(self) -> dict[str, Any]:
        """The state, for a checkpoint."""
        return {"inside": list(self._inside), "calm_since": self.calm_since, "left_at": self.left_at}

    def recall(self, facts: dict[str, Any]) -> None:
        """Restore the state that `remember` returned."""
        self._inside = deque(facts["inside"], maxlen=WINDOW)
        self.calm_since, self.left_at = facts["calm_since"], facts["left_at"]
