"""Quantities that change during training, as pure functions of the number of the gradient update."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from vonet.errors import BadInput


@dataclass(frozen=True)
class Schedule:
    """Straight lines between (update, value) points; constant before the first and after the last."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        pairs = all(isinstance(point, tuple) and len(point) == 2 for point in self.points)
        if not pairs or not all(isinstance(number, int | float) for point in self.points for number in point):
            raise BadInput(f"a schedule needs points of an update and a value each; given {self.points}")
        updates = [update for update, _ in self.points]
        if not updates or updates != sorted(set(updates)):
            raise BadInput(f"a schedule needs points in order of increasing updates; given {self.points}")

    def __call__(self, update: int) -> float:
        after = bisect_right(self.points, update, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        if after == len(self.points):
            return self.points[-1][1]
        (start, from_value), (stop, to_value) = self.points[after - 1], self.points[after]
        return from_value + (to_value - from_value) * (update - start) / (stop - start)

    def scaled(self, factor: float) -> Schedule:
        return Schedule(tuple((update, value * factor) for update, value in self.points))


def constant(value: float) -> Schedule:
    return Schedule(((0, value),))
