"""The five levels, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vonet.data.scenes.shapes import SHAPES

Camera = Literal["fixed", "dome", "moving"]


@dataclass(frozen=True)
class Level:
    """What a world is made of.

    objects: how many there are, thrown ones included.
    resting: whether most of them lie on the floor when the video begins and a few are thrown in.
    sizes: a choice of two, or a range; the longest side of an object.
    """

    name: str
    objects: tuple[int, int]
    resting: bool
    shapes: tuple[str, ...]
    sizes: tuple[float, float]
    two_sizes: bool
    textured: bool
    background: Literal["grey", "coloured", "textured"]
    camera: Camera


_ALL = tuple(SHAPES)

LEVELS = {
    "A": Level("A", (3, 10), False, _ALL[:3], (0.7, 1.4), True, False, "grey", "fixed"),
    "B": Level("B", (3, 10), False, _ALL[:11], (0.7, 1.4), False, False, "coloured", "dome"),
    "C": Level("C", (3, 10), False, _ALL, (0.75, 3.0), False, True, "textured", "dome"),
    "D": Level("D", (11, 23), True, _ALL, (0.75, 3.0), False, True, "textured", "dome"),
    "E": Level("E", (11, 23), True, _ALL, (0.75, 3.0), False, True, "textured", "moving"),
}
