"""Quantities that change during training, as pure functions of the number of the gradient update."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal

from vonet.errors import BadInput, check_choice

Curve = Literal["line", "cosine", "halving"]


@dataclass(frozen=True)
class Schedule:
    """Curves between (update, value) points; constant before the first and after the last.

    "line" interpolates linearly, "cosine" with zero slope at both ends, and "halving" exponentially.
    """

    points: tuple[tuple[int, float], ...]
    curve: Curve = "line"

    def __post_init__(self) -> None:
        check_choice("curve", self.curve, Curve)
        pairs = all(isinstance(point, tuple) and len(point) == 2 for point in self.points)
        if not pairs or not all(isinstance(number, int | float) for point in self.points for number in point):
            raise BadInput(f"a schedule needs points of an update and a value each; given {self.points}")
        updates = [update for update, _ in self.points]
        if not updates or updates != sorted(set(updates)):
            raise BadInput(f"a schedule needs points in order of increasing updates; given {self.points}")
        if self.curve == "halving" and min(value for _, value in self.points) <= 0:
            raise BadInput(f'a "halving" schedule needs values above 0; given {self.points}')

    def __call__(self, update: int) -> float:
        after = bisect_right(self.points, update, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (start, from_value), (stop, to_value) = self.points[after - 1], self.points[after]
        way = (update - start) / (stop - start)
        if self.curve == "halving":
            return from_value * (to_value / from_value) ** way
        if self.curve == "cosine":
            way = (1 - math.cos(math.pi * way)) / 2
        return from_value + (to_value - from_value) * way

    def scaled(self, factor: float) -> Schedule:
        """The schedule with all values multiplied by `factor`."""
        return replace(self, points=tuple((update, value * factor) for update, value in self.points))


@dataclass(frozen=True)
class Product:
    """The product of two schedules, such as a warm-up and a decay."""

    first: Schedule
    second: Schedule

    def __call__(self, update: int) -> float:
        return self.first(update) * self.second(update)


def constant(value: float) -> Schedule:
    """A schedule with one value."""
    return Schedule(((0, value),))
