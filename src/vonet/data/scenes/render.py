"""Renders by ray casting: one ray through the centre of each pixel for the exact ids, and four around it for the
colours.

Each of the four is lit from another point of a small lamp, which gives soft shadows. Light is added up linearly and
gamma-encoded at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np
from jaxtyping import Float, Int, UInt8

from vonet.data.scenes.physics import Motion, World, rotations
from vonet.data.scenes.scene import FOCAL_LENGTH, SENSOR_WIDTH, Paint, Scene
from vonet.data.scenes.textures import Texture

FARTHEST = 300.0
SUBPIXELS = ((-0.25, -0.25), (-0.25, 0.25), (0.25, -0.25), (0.25, 0.25))
LAMP_RADIUS = 1.2
SAMPLES_AT_ONCE = 400_000

AMBIENT, KEY, FILL = 0.42, 0.95, 0.16
FILL_FROM = np.array([-0.6, -0.5, 0.62], np.float32)
HAZE_FROM, HAZE_TO = 18.0, 90.0


def axes_of(camera: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "3 3"]:
    """The axes right, up and forward of a camera that looks at the origin."""
    forward = -camera / np.linalg.norm(camera)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(right, forward), forward])


@cache
def _grid(size: int, offset: tuple[float, float]) -> Float[np.ndarray, "pixels 3"]:
    """Unit vectors through the pixels, row by row, in camera coordinates."""
    reach = SENSOR_WIDTH / FOCAL_LENGTH / size
    down, across = np.mgrid[:size, :size] + 0.5 - size / 2 + np.array(offset)[:, None, None]
    rays = np.stack([reach * across, -reach * down, np.ones((size, size))], axis=-1).reshape(-1, 3)
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)


def directions(
    camera: Float[np.ndarray, " 3"], size: int, offset: tuple[float, float] = (0.0, 0.0)
) -> Float[np.ndarray, "pixels 3"]:
    """Unit vectors through the pixels, row by row, at `offset` (down, right) from the pixel centres, in pixels."""
    return np.einsum("pa,ad->pd", _grid(size, offset), axes_of(camera))


def image_positions(
    points: Float[np.ndarray, "T k 3"], cameras: Float[np.ndarray, "T 3"]
) -> Float[np.ndarray, "T k 2"]:
    """Projects points to the picture: (x, y) from the upper left corner, in units of the picture's side."""
    axes = np.stack([axes_of(camera) for camera in cameras])
    right, up, forward = np.einsum("taj,tkj->atk", axes, points - cameras[:, None])
    scale = FOCAL_LENGTH / SENSOR_WIDTH / np.where(forward > 1e-6, forward, np.nan)
    return np.stack([0.5 + scale * right, 0.5 - scale * up], axis=-1)


@dataclass(frozen=True)
class Hits:
    """Ray intersections: object (−1 floor, −2 none), distance, and the surface normal that faces the ray."""

    objects: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]
    normals: Float[np.ndarray, "n 3"]

    def replace(self, which: Int[np.ndarray, " m"], by: Hits) -> None:
        self.objects[which], self.distances[which], self.normals[which] = by.objects, by.distances, by.normals


def cast(world: World, origin: Float[np.ndarray, " 3"], rays: Float[np.ndarray, "n 3"]) -> Hits:
    """The first intersection of each ray from `origin`: object, distance, normal."""
    n = len(rays)
    geoms, distances, normals = np.empty(n, np.int32), np.empty(n), np.zeros(3 * n)
    if n:
        mujoco.mj_multiRay(
            world.model, world.data, origin, rays.ravel(), None, True, -1, geoms, distances, normals, n, FARTHEST
        )
    facing = normals.reshape(n, 3)
    facing *= np.where(_dot(facing, rays) > 0, -1.0, 1.0)[:, None]
    return Hits(np.where(geoms >= 0, world.object_of[geoms], -2), distances, facing)


def render(world: World, motion: Motion, size: int) -> tuple[UInt8[np.ndarray, "T H W 3"], Int[np.ndarray, "T H W"]]:
    """Frames, and for each pixel the number of the object at its centre, −1 for the background."""
    frames, ids = [], []
    at_once = max(1, SAMPLES_AT_ONCE // (4 * size * size))
    for start in range(0, len(motion.positions), at_once):
        chunk = range(start, min(start + at_once, len(motion.positions)))
        samples, seen = zip(*(_look(world, motion, frame, size) for frame in chunk), strict=True)
        light = _shade(world.scene, motion, _joined(samples))
        frames.append(_on_screen(light.reshape(len(chunk), 4, size, size, 3).mean(axis=1)))
        ids.append(np.stack(seen))
    return np.concatenate(frames), np.concatenate(ids)


@dataclass(frozen=True)
class Samples:
    """Everything that determines the colour of a ray."""

    frame: Int[np.ndarray, " n"]
    objects: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "n 3"]
    rays: Float[np.ndarray, "n 3"]
    normals: Float[np.ndarray, "n 3"]
    to_light: Float[np.ndarray, "n 3"]
    lit: Float[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]


def _joined(samples: tuple[Samples, ...]) -> Samples:
    return Samples(**{name: np.concatenate([getattr(s, name) for s in samples]) for name in Samples.__annotations__})


def _look(world: World, motion: Motion, frame: int, size: int) -> tuple[Samples, Int[np.ndarray, "H W"]]:
    """Samples four rays per pixel. All four are cast only near borders. Elsewhere they are intersected with the tangent
    plane at the pixel's centre and share its shadow."""
    scene = world.scene
    camera = scene.camera[frame]
    world.place(motion.positions[frame], motion.quaternions[frame])
    middle_rays = directions(camera, size)
    middle = cast(world, camera, middle_rays)
    middle_points = camera + middle.distances[:, None] * middle_rays
    borders = _borders(middle, size)
    lit = np.zeros(size * size, np.float32)
    undecided = np.arange(size * size)
    parts: list[Samples] = []
    for offset, lamp in zip(SUBPIXELS, _lamp(scene.light), strict=True):
        rays = directions(camera, size, offset)
        hits = _on_planes(middle, middle_points - camera, rays)
        hits.replace(borders, cast(world, camera, rays[borders]))
        points = camera + hits.distances[:, None] * rays
        to_light = lamp - points
        to_light /= np.sqrt(_dot(to_light, to_light))[:, None]
        lit = lit.copy()
        lit[undecided] = _lit(world, lamp, points[undecided], hits.normals[undecided])
        if len(parts) == 1:
            undecided = _half_lit(parts[0].lit, lit, borders, size)
        parts.append(
            Samples(
                frame=np.full(len(rays), frame, np.int32),
                objects=hits.objects,
                points=points.astype(np.float32),
                rays=rays.astype(np.float32),
                normals=hits.normals.astype(np.float32),
                to_light=to_light.astype(np.float32),
                lit=lit,
                distances=hits.distances.astype(np.float32),
            )
        )
    return _joined(tuple(parts)), np.maximum(middle.objects, -1).reshape(size, size)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", a, b)


def _borders(middle: Hits, size: int) -> Int[np.ndarray, " borders"]:
    """Pixels next to another object, or next to a surface of the same object with another orientation."""
    objects, normals = middle.objects.reshape(size, size), middle.normals.reshape(size, size, 3)
    found = np.zeros((size, size), bool)
    for here, there in _neighbours():
        changed = objects[here] != objects[there]
        changed |= np.einsum("hwd,hwd->hw", normals[here], normals[there]) < 0.9
        found[here] |= changed & (objects[here] > -2)
        found[there] |= changed
    return np.flatnonzero(found)


def _neighbours() -> list[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """All pairs of neighbouring pixels, diagonals included, as pairs of shifted views of a picture."""
    cut, rest, whole = slice(None, -1), slice(1, None), slice(None)
    return [
        ((cut, whole), (rest, whole)),
        ((whole, cut), (whole, rest)),
        ((cut, cut), (rest, rest)),
        ((cut, rest), (rest, cut)),
    ]


def _half_lit(
    first: Float[np.ndarray, " pixels"], second: Float[np.ndarray, " pixels"], borders: np.ndarray, size: int
) -> Int[np.ndarray, " found"]:
    """Pixels at the border of a shadow, where visibility differs between opposite points of the lamp or between
    neighbouring pixels."""
    found = (first != second).reshape(size, size)
    for lit in (first.reshape(size, size), second.reshape(size, size)):
        for here, there in _neighbours():
            changed = lit[here] != lit[there]
            found[here] |= changed
            found[there] |= changed
    found.ravel()[borders] = True
    return np.flatnonzero(found)


def _on_planes(middle: Hits, away: Float[np.ndarray, "n 3"], rays: Float[np.ndarray, "n 3"]) -> Hits:
    """Approximate hits of the rays within a pixel: each is intersected with the tangent plane at the point that the ray
    through the middle of the pixel hits."""
    steepness = _dot(rays, middle.normals)
    distances = _dot(away, middle.normals) / np.where(np.abs(steepness) > 1e-9, steepness, 1)
    return Hits(middle.objects.copy(), np.where(middle.objects > -2, distances, -1.0), middle.normals.copy())


def _lamp(light: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "4 3"]:
    """Four points on the lamp's disc; the first two are opposite each other."""
    right, up, _ = axes_of(light)
    turns = np.pi / 4 + np.array([0, 2, 1, 3]) * np.pi / 2
    return light + LAMP_RADIUS * (np.cos(turns)[:, None] * right + np.sin(turns)[:, None] * up)


def _lit(
    world: World, lamp: Float[np.ndarray, " 3"], points: Float[np.ndarray, "n 3"], normals: Float[np.ndarray, "n 3"]
) -> Float[np.ndarray, " n"]:
    """Which points are lit: they face the lamp, and no other surface lies between."""
    rays = points - lamp
    facing = np.flatnonzero(_dot(normals, rays) < 0)
    far = np.sqrt(_dot(rays, rays))[facing]
    first = cast(world, lamp, rays[facing] / far[:, None]).distances
    lit = np.zeros(len(points), np.float32)
    lit[facing] = (first < 0) | (first > far - 0.01)
    return lit


def _shade(scene: Scene, motion: Motion, s: Samples) -> Float[np.ndarray, "n 3"]:
    """The light that each ray carries to the camera."""
    albedo, haze = _albedo(scene, motion, s), _mean_colour(scene.dome)
    facing = np.maximum(np.einsum("nd,nd->n", s.normals, s.to_light), 0) * s.lit
    filled = np.maximum(np.einsum("nd,d->n", s.normals, FILL_FROM), 0)
    ambient = AMBIENT * (0.65 + 0.35 * s.normals[:, 2])
    key = scene.light_colour.astype(np.float32)
    light = albedo * (KEY * facing[:, None] * key + (ambient + FILL * filled)[:, None])
    _add_gloss(scene, s, albedo, light)
    nothing = s.objects == -2
    share = np.clip((s.distances - HAZE_FROM) / (HAZE_TO - HAZE_FROM), 0, 1)
    share[nothing | (s.objects >= 0)] = 0
    light += share[:, None] * (haze - light)
    if nothing.any():
        rays = s.rays[nothing]
        sky = _colour_at(scene.dome, rays)
        light[nothing] = haze + np.clip(4 * rays[:, 2:], 0, 1) * (sky - haze)
    return light


def _albedo(scene: Scene, motion: Motion, s: Samples) -> Float[np.ndarray, "n 3"]:
    """The surface's own colour (albedo); textures are evaluated in the object's coordinates, in units of its size."""
    albedo = np.zeros((len(s.objects), 3), np.float32)
    order = np.argsort(s.objects, kind="stable")
    numbers, starts = np.unique(s.objects[order], return_index=True)
    turned = rotations(motion.quaternions).astype(np.float32)
    for number, mine in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        if number == -1:
            albedo[mine] = _colour_at(scene.floor, s.points[mine])
        elif number >= 0:
            thing, frame = scene.objects[number], s.frame[mine]
            if isinstance(thing.paint, Texture):
                away = s.points[mine] - motion.positions[frame, number].astype(np.float32)
                own = np.einsum("nij,ni->nj", turned[frame, number], away) / np.float32(thing.size)
                albedo[mine] = thing.paint(own)
            else:
                albedo[mine] = thing.paint
    return albedo


def _add_gloss(scene: Scene, s: Samples, albedo: np.ndarray, light: np.ndarray) -> None:
    """Adds highlights; metal also reflects a bright sky and a dark floor in its own colour, and scatters less light."""
    materials = np.array([{"rubber": 0, "textured": 0, "metal": 1}[o.material] for o in scene.objects], bool)
    solid = np.flatnonzero(s.objects >= 0)
    metal = materials[s.objects[solid]]
    rays, normals = s.rays[solid], s.normals[solid]
    mirrored = rays - 2 * np.einsum("nd,nd->n", rays, normals)[:, None] * normals
    glance = np.maximum(np.einsum("nd,nd->n", mirrored, s.to_light[solid]), 0) * (s.lit[solid] > 0)
    highlight = np.where(metal, 0.9 * glance**60, 0.12 * glance**14)
    sky = np.clip(0.25 + 0.9 * mirrored[:, 2], 0.03, 0.9)[:, None]
    own = albedo[solid]
    tinted = (0.25 + 0.75 * own) * sky
    scattered = light[solid]
    light[solid] = np.where(metal[:, None], 0.55 * scattered + 0.35 * tinted, scattered) + highlight[:, None]


def _colour_at(paint: Paint, points: Float[np.ndarray, "n 3"]) -> np.ndarray:
    return paint(points) if isinstance(paint, Texture) else paint.astype(np.float32)


def _mean_colour(paint: Paint) -> Float[np.ndarray, " 3"]:
    both = np.mean(paint.colours, axis=0) if isinstance(paint, Texture) else paint
    return np.asarray(both).astype(np.float32)


_CODED = np.round(255 * (np.arange(4096) / 4095) ** (1 / 2.2)).astype(np.uint8)


def _on_screen(light: Float[np.ndarray, "*any 3"]) -> UInt8[np.ndarray, "*any 3"]:
    return _CODED[(np.clip(light, 0, 1) * 4095 + 0.5).astype(np.int32)]
