"""Shapes of the solids as MuJoCo needs them, in units of the object's size.

A shape is made of parts (geoms): primitives, which are exact and fast for rays and collisions alike, or triangle meshes
(rays meet the triangles, collisions the convex hull). Every shape fits a box whose longest side is about one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Number = int | float
Triple = tuple[Number, Number, Number]
Kind = Literal["sphere", "box", "cylinder", "capsule", "ellipsoid", "mesh"]
Mesh = tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]


@dataclass(frozen=True)
class Part:
    """One geom: `size` holds half-extents in MuJoCo's order (radius first; half-length for cylinders)."""

    kind: Kind
    size: tuple[Number, ...] = ()
    at: Triple = (0, 0, 0)
    axis: Triple = (0, 0, 1)
    mesh: Callable[[], Mesh] | None = None


def _box(size: Triple, at: Triple = (0, 0, 0)) -> Part:
    """A box with the given full side lengths."""
    return Part("box", (size[0] / 2, size[1] / 2, size[2] / 2), at)


def _grid_faces(rows: int, columns: int, around: bool) -> Int[np.ndarray, "faces 3"]:
    """Triangles of a grid of vertices, two per cell; columns always wrap around, rows only with `around`."""
    r, c = np.mgrid[: rows if around else rows - 1, :columns].reshape(2, -1)
    below, right = (r + 1) % rows, (c + 1) % columns
    corners = [r * columns + c, r * columns + right, below * columns + right, below * columns + c]
    return np.concatenate([np.stack([corners[i] for i in face], axis=1) for face in ((0, 1, 2), (0, 2, 3))])


def _turned(profile: list[tuple[Number, Number]], sides: int = 24) -> Callable[[], Mesh]:
    """A solid of revolution from (radius, height) pairs, from the bottom up, with closed ends."""

    def mesh() -> Mesh:
        closed = [(0.0, profile[0][1]), *profile, (0.0, profile[-1][1])]
        angle = np.arange(sides) * 2 * np.pi / sides
        rings = [np.stack([r * np.cos(angle), r * np.sin(angle), np.full(sides, z)], axis=1) for r, z in closed]
        return np.concatenate(rings), _grid_faces(len(closed), sides, around=False)

    return mesh


def _torus(tube: float) -> Callable[[], Mesh]:
    def mesh() -> Mesh:
        u, v = np.meshgrid(np.arange(28) * 2 * np.pi / 28, np.arange(14) * 2 * np.pi / 14, indexing="ij")
        distance = 0.5 - tube + tube * np.cos(v)
        vertices = np.stack([distance * np.cos(u), distance * np.sin(u), tube * np.sin(v)], axis=-1)
        return vertices.reshape(-1, 3), _grid_faces(28, 14, around=True)[:, ::-1]

    return mesh


def _prism(radii: Callable[[np.ndarray], np.ndarray], corners: int, height: float) -> Callable[[], Mesh]:
    """An extruded outline, given as the distance from the axis at each angle."""

    def mesh() -> Mesh:
        angle = np.arange(corners) * 2 * np.pi / corners
        outline = radii(angle)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        rings = [np.column_stack([scale * outline, np.full(corners, z * height)]) for scale, z in _PRISM_RINGS]
        return np.concatenate(rings), _grid_faces(4, corners, around=False)

    return mesh


_PRISM_RINGS = ((0.0, -0.5), (1.0, -0.5), (1.0, 0.5), (0.0, 0.5))


def _alternating(inner: float, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """A star (width 1) or gear (width 2): the outline alternates between two distances."""
    return lambda angle: np.where(np.arange(len(angle)) // width % 2, 0.5 * inner, 0.5)


def _heart(angle: np.ndarray) -> np.ndarray:
    x, y = np.cos(angle), np.sin(angle)
    notch = np.where(y > 0, 0.45 * np.exp(-8 * x**2), 0)
    return 0.5 * (0.62 + 0.38 * np.abs(x)) * (1 - notch) * np.where(y < -0.9, 1.25, 1)


def _polyhedron(vertices: Sequence[Triple]) -> Callable[[], Mesh]:
    """The convex hull of the corners: every plane through three of them that has all others on one side."""

    def mesh() -> Mesh:
        points = np.array(vertices, float)
        points *= 0.5 / np.linalg.norm(points, axis=1).max()
        faces = []
        for i in range(len(points)):
            for j in range(i + 1, len(points)):
                for k in range(j + 1, len(points)):
                    normal = np.cross(points[j] - points[i], points[k] - points[i])
                    side = (points - points[i]) @ normal
                    if (side < 1e-9).all():
                        faces.append((i, j, k))
                    elif (side > -1e-9).all():
                        faces.append((i, k, j))
        return points, np.array(faces)

    return mesh


_GOLDEN = (1 + 5**0.5) / 2
_ICOSAHEDRON = [p for a in (-1, 1) for b in (-_GOLDEN, _GOLDEN) for p in ((0, a, b), (a, b, 0), (b, 0, a))]
_OCTAHEDRON = [(s * (a == 0), s * (a == 1), s * (a == 2)) for a in range(3) for s in (-1, 1)]


def _mesh(mesh: Callable[[], Mesh]) -> tuple[Part, ...]:
    """Removes triangles without area and duplicate vertices."""

    def clean() -> Mesh:
        vertices, faces = mesh()
        corners = vertices[faces]
        area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        _, first, again = np.unique(np.round(vertices, 9), axis=0, return_index=True, return_inverse=True)
        return vertices[first], again.reshape(-1)[faces[area > 1e-9]]

    return (Part("mesh", mesh=cache(clean)),)


SHAPES: dict[str, tuple[Part, ...]] = {
    "sphere": (Part("sphere", (0.5,)),),
    "cube": (_box((1, 1, 1)),),
    "cylinder": (Part("cylinder", (0.5, 0.5)),),
    "cone": _mesh(_turned([(0.5, -0.5), (0.02, 0.5)])),
    "torus": _mesh(_torus(0.16)),
    "pyramid": _mesh(_turned([(0.55, -0.42), (0.01, 0.42)], sides=4)),
    "capsule": (Part("capsule", (0.27, 0.23)),),
    "ellipsoid": (Part("ellipsoid", (0.5, 0.35, 0.25)),),
    "corner": (_box((0.9, 0.3, 0.4), (0, -0.3, 0)), _box((0.3, 0.6, 0.4), (-0.3, 0.15, 0))),
    "star": _mesh(_prism(_alternating(0.45, 1), 10, 0.35)),
    "gear": _mesh(_prism(_alternating(0.72, 2), 32, 0.35)),
    "wedge": _mesh(_prism(lambda angle: np.full(len(angle), 0.55), 3, 0.7)),
    "nut": _mesh(_prism(lambda angle: np.full(len(angle), 0.5), 6, 0.5)),
    "octahedron": _mesh(_polyhedron(_OCTAHEDRON)),
    "icosahedron": _mesh(_polyhedron(_ICOSAHEDRON)),
    "cross": (_box((1, 0.3, 0.3)), _box((0.3, 1, 0.3))),
    "tee": (_box((1, 0.3, 0.4), (0, 0.3, 0)), _box((0.3, 0.6, 0.4), (0, -0.15, 0))),
    "channel": (
        _box((0.9, 0.25, 0.5), (0, -0.3, 0)),
        _box((0.25, 0.6, 0.5), (-0.325, 0.12, 0)),
        _box((0.25, 0.6, 0.5), (0.325, 0.12, 0)),
    ),
    "jack": tuple(Part("capsule", (0.12, 0.38), axis=axis) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1))),
    "table": (
        _box((1, 0.8, 0.14), (0, 0, 0.3)),
        *(_box((0.14, 0.14, 0.6), (x, y, -0.07)) for x in (-0.41, 0.41) for y in (-0.31, 0.31)),
    ),
    "barrel": _mesh(_turned([(0.3, -0.5), (0.39, -0.25), (0.42, 0), (0.39, 0.25), (0.3, 0.5)])),
    "hourglass": _mesh(_turned([(0.4, -0.5), (0.36, -0.35), (0.1, 0), (0.36, 0.35), (0.4, 0.5)])),
    "vase": _mesh(_turned([(0.2, -0.5), (0.36, -0.25), (0.34, -0.05), (0.14, 0.25), (0.14, 0.36), (0.24, 0.5)])),
    "pin": _mesh(
        _turned([(0.12, -0.5), (0.22, -0.2), (0.2, -0.05), (0.08, 0.2), (0.12, 0.34), (0.1, 0.46), (0.03, 0.5)])
    ),
    "mushroom": (Part("cylinder", (0.16, 0.3), (0, 0, -0.2)), Part("ellipsoid", (0.48, 0.48, 0.25), (0, 0, 0.15))),
    "frustum": _mesh(_turned([(0.5, -0.35), (0.25, 0.35)])),
    "ring": _mesh(_torus(0.09)),
    "heart": _mesh(_prism(_heart, 40, 0.3)),
    "dumbbell": (
        Part("sphere", (0.24,), (0, 0, -0.28)),
        Part("sphere", (0.24,), (0, 0, 0.28)),
        Part("cylinder", (0.1, 0.28)),
    ),
    "stairs": tuple(_box((0.3, 0.7, 0.3 * (i + 1)), (0.3 * (i - 1), 0, 0.15 * (i - 2))) for i in range(3)),
}
"""Thirty shapes; level A uses the first three, level B the first eleven."""

UNSEEN = ("heart", "dumbbell", "stairs")
"""Reserved for the test split of levels C to E."""
