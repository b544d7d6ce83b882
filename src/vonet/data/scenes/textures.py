"""Solid textures: the colour depends on a point in the object's own coordinates, so a texture moves and rotates with
the object.

Each pattern maps points to a number in [0, 1], which mixes the texture's two colours. No pattern needs an image or a UV
map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Points = Float[np.ndarray, "n 3"]
Mix = Float[np.ndarray, " n"]

_LATTICE = np.random.default_rng(20240507).random((32, 32, 32), np.float32)
_JITTER = np.random.default_rng(20240508).random((32, 32, 32, 3), np.float32)


def noise(points: Points) -> Mix:
    """Smooth random noise, about one hill per unit; the lattice repeats after 32 units."""
    floor = np.floor(points)
    part = points - floor
    part = part * part * (3 - 2 * part)
    low = floor.astype(np.int32) & 31
    high = (low + 1) & 31
    (x0, y0, z0), (x1, y1, z1) = low.T, high.T
    fx, fy, fz = part.T
    flat = _LATTICE.ravel()
    x0, x1, y0, y1 = x0 * 1024, x1 * 1024, y0 * 32, y1 * 32

    def along_x(y: np.ndarray, z: np.ndarray) -> np.ndarray:
        first = flat[x0 + y + z]
        return first + fx * (flat[x1 + y + z] - first)

    front = along_x(y0, z0)
    front += fy * (along_x(y1, z0) - front)
    back = along_x(y0, z1)
    back += fy * (along_x(y1, z1) - back)
    return front + fz * (back - front)


def _cells(points: Points) -> tuple[Mix, Mix]:
    """Distance to the nearest of some randomly placed points (about one per unit), and a random number in [0, 1] of
    that point."""
    corner = np.floor(points - 0.5)
    nearest = np.full(len(points), 9.0, np.float32)
    number = np.zeros(len(points), np.float32)
    for offset in np.ndindex(2, 2, 2):
        cell = corner + np.array(offset, np.float32)
        at = tuple((cell.astype(np.int32) & 31).T)
        away = points - cell - (0.2 + 0.6 * _JITTER[at])
        distance = np.einsum("nd,nd->n", away, away)
        closer = distance < nearest
        nearest = np.where(closer, distance, nearest)
        number = np.where(closer, _LATTICE[at], number)
    return np.sqrt(nearest), number


def _step(values: np.ndarray, edge: float = 0.0, softness: float = 0.08) -> Mix:
    return np.clip((values - edge) / softness + 0.5, 0, 1)


def _wave(values: np.ndarray) -> Mix:
    return 0.5 + 0.5 * np.sin(2 * np.pi * values)


def _radius(points: Points) -> np.ndarray:
    return np.sqrt(points[:, 0] ** 2 + points[:, 1] ** 2)


def _angle(points: Points) -> np.ndarray:
    return np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)


def _checker(points: Points) -> Mix:
    return np.prod(np.sign(np.sin(np.pi * points)), axis=1) * 0.5 + 0.5


def _bricks(points: Points) -> Mix:
    row = np.floor(points[:, 2] * 1.5)
    along = points[:, 0] + points[:, 1] + 0.5 * (row % 2)
    joint = np.minimum(np.abs(along % 1 - 0.5), np.abs((points[:, 2] * 1.5) % 1 - 0.5))
    return _step(0.44 - joint)


def _dots(points: Points) -> Mix:
    return _step(0.33 - np.sqrt((((points % 1) - 0.5) ** 2).sum(axis=1)))


PATTERNS: dict[str, Callable[[Points], Mix]] = {
    "clouds": lambda p: 0.65 * noise(p) + 0.35 * noise(2.1 * p),
    "camouflage": lambda p: np.floor(3.99 * np.clip(1.5 * noise(p) - 0.25, 0, 1)) / 3,
    "marble": lambda p: _wave(0.7 * p[:, 0] + 1.2 * noise(p)),
    "wood": lambda p: (2.2 * _radius(p) + 0.5 * noise(p)) % 1,
    "stripes": lambda p: _step(np.sin(2 * np.pi * p[:, 0]), softness=0.3),
    "bands": lambda p: _wave(p[:, 2]),
    "checker": _checker,
    "bricks": _bricks,
    "dots": _dots,
    "spots": lambda p: _step(0.38 - _cells(p)[0]),
    "patches": lambda p: _cells(p)[1],
    "pebbles": lambda p: np.clip(1.3 * _cells(1.3 * p)[0], 0, 1),
    "zigzag": lambda p: _step(np.sin(2 * np.pi * (p[:, 2] + np.abs(p[:, 0] % 1 - 0.5) + np.abs(p[:, 1] % 1 - 0.5)))),
    "waves": lambda p: _wave(p[:, 2] + 0.25 * np.sin(2 * np.pi * (p[:, 0] + p[:, 1]))),
    "rays": lambda p: _step(np.sin(2 * np.pi * 5 * _angle(p)), softness=0.4),
    "rings": lambda p: _step(np.sin(2 * np.pi * 1.5 * np.sqrt((p**2).sum(axis=1))), softness=0.4),
    "halves": lambda p: _step(p[:, 2] + 0.3 * p[:, 0], softness=0.05),
    "speckles": lambda p: _step(noise(4 * p) - 0.68, softness=0.1),
    "plaid": lambda p: ((np.sin(2 * np.pi * p) > 0) * np.array([0.4, 0.35, 0.25], np.float32)).sum(axis=1),
    "swirl": lambda p: _wave(2 * _angle(p) + 1.3 * _radius(p)),
}

UNSEEN = ("zigzag", "swirl")
"""Reserved for the test split of levels C to E."""


CENTRED = ("wood", "rays", "rings", "halves", "swirl")
"""Patterns that are centred on the object."""


@dataclass(frozen=True)
class Texture:
    """A pattern between two linear (not gamma-encoded) colours, with its repetitions per unit, rotation and shift."""

    pattern: str
    colours: tuple[Float[np.ndarray, " 3"], Float[np.ndarray, " 3"]]
    repetitions: float
    rotation: Float[np.ndarray, "3 3"]
    shift: Float[np.ndarray, " 3"]

    def __call__(self, points: Points) -> Float[np.ndarray, "n 3"]:
        turned = np.einsum("ij,nj->ni", (self.repetitions * self.rotation).astype(np.float32), points)
        mix = PATTERNS[self.pattern](turned + self.shift.astype(np.float32)).astype(np.float32, copy=False)[:, None]
        first, second = (colour.astype(np.float32) for colour in self.colours)
        return first + mix * (second - first)
