"""The five levels, as constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vonet.data.scenes.shapes import SHAPES

Camera = Literal["fixed", "dome", "moving"]


@dataclass(frozen=True)
class Level:
    """The content of a level's videos.

    Attributes:
        name: One of A to E.
        resting: Smallest and largest number of objects that lie on the floor when the video begins.
        thrown: Smallest and largest number of objects that are thrown in.
        shapes: Names of the possible shapes.
        sizes: Length of an object's longest side, as a choice of two or as a range.
        two_sizes: Whether `sizes` is a choice of two.
        textured: Whether objects have textures.
        background: Look of the background.
        camera: Whether the camera stands still at one place, stands anywhere on a dome, or moves.
    """

    name: str
    resting: tuple[int, int]
    thrown: tuple[int, int]
    shapes: tuple[str, ...]
    sizes: tuple[float, float]
    two_sizes: bool
    textured: bool
    background: Literal["grey", "coloured", "textured"]
    camera: Camera


_ALL = tuple(SHAPES)

LEVELS = {
    "A": Level("A", (0, 0), (3, 10), _ALL[:3], (0.7, 1.4), True, False, "grey", "fixed"),
    "B": Level("B", (0, 0), (3, 10), _ALL[:11], (0.7, 1.4), False, False, "coloured", "dome"),
    "C": Level("C", (0, 0), (3, 10), _ALL, (0.75, 3.0), False, True, "textured", "dome"),
    "D": Level("D", (10, 20), (1, 3), _ALL, (0.75, 3.0), False, True, "textured", "dome"),
    "E": Level("E", (10, 20), (1, 3), _ALL, (0.75, 3.0), False, True, "textured", "moving"),
}
