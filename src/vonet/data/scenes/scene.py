"""A scene before the simulation: objects with their start positions, the camera's path, the light, the background.

It depends only on random numbers, never on the size of the picture.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vonet.data.scenes import shapes, textures
from vonet.data.scenes.levels import Level
from vonet.data.scenes.textures import Texture

COLOURS = {
    "grey": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
"""CLEVR's eight colours, as on the screen."""

Paint = Texture | Float[np.ndarray, " 3"]
"""A texture, or one colour; linear, not gamma-encoded."""

FOCAL_LENGTH, SENSOR_WIDTH = 35.0, 32.0
THROWN_FROM = ((-5.0, -5.0, 1.0), (5.0, 5.0, 5.0))
DROPPED_FROM = ((-5.0, -5.0, 0.5), (5.0, 5.0, 8.0))
SIDEWAYS = 4.0


@dataclass(frozen=True)
class Material:
    """Density (per cubic unit), friction and restitution."""

    density: float
    friction: float
    restitution: float


MATERIALS = {
    "rubber": Material(1.1, 0.8, 0.7),
    "metal": Material(2.7, 0.4, 0.3),
    "textured": Material(1.0, 0.5, 0.5),
}


@dataclass(frozen=True)
class Object:
    """One body. `size` is the length of the longest side; position, quaternion and velocity are the initial ones."""

    shape: str
    size: float
    material: str
    colour: str
    paint: Paint
    thrown: bool
    position: Float[np.ndarray, " 3"]
    quaternion: Float[np.ndarray, " 4"]
    velocity: Float[np.ndarray, " 3"]


@dataclass(frozen=True)
class Scene:
    """Everything that simulation and rendering need for one video."""

    objects: tuple[Object, ...]
    camera: Float[np.ndarray, "T 3"]
    light: Float[np.ndarray, " 3"]
    light_colour: Float[np.ndarray, " 3"]
    floor: Paint
    dome: Paint


def linear(screen: object) -> Float[np.ndarray, " 3"]:
    """Converts screen colours (gamma-encoded) in [0, 1] to linear light."""
    return np.asarray(screen, float) ** 2.2


def sample_scene(
    rng: np.random.Generator,
    level: Level,
    split: str,
    frames: int,
    objects: tuple[int, int] | None,
    distance: float = 1.0,
) -> Scene:
    """`distance`: Camera distance from the origin, relative to the level's. Start region and sideways speed of the
    objects scale with it, so that as many objects stay in view and appear larger."""
    resting, thrown = (int(rng.integers(*range_, endpoint=True)) for range_ in (level.resting, level.thrown))
    if objects is not None:
        count = int(rng.integers(*objects, endpoint=True))
        thrown = min(thrown, max(1, count - 1)) if level.resting[1] else count
        resting = count - thrown
    unseen = split == "test" and level.textured
    camera = distance * _camera(rng, level, frames)
    bodies: list[Object] = []
    for number in range(thrown + resting):
        bodies.append(_object(rng, level, unseen, number < thrown, camera, bodies, distance))
    floor: Paint
    dome: Paint
    if level.background == "grey":
        floor, dome = linear([rng.uniform(0.42, 0.5)] * 3), linear([0.45] * 3)
    elif level.background == "coloured":
        colour = linear(colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.2, 0.9), rng.uniform(0.35, 0.85)))
        floor, dome = colour, colour
    else:
        floor = _texture(rng, unseen, rng.uniform(0.25, 0.7), pale=True, flat=True)
        dome = _texture(rng, unseen, rng.uniform(1.0, 2.5), pale=True, flat=False)
    return Scene(tuple(bodies), camera, *_light(rng, level), floor=floor, dome=dome)


def _object(
    rng: np.random.Generator,
    level: Level,
    unseen: bool,
    thrown: bool,
    camera: np.ndarray,
    others: list[Object],
    distance: float,
) -> Object:
    known = shapes.UNSEEN if unseen else tuple(s for s in level.shapes if s not in shapes.UNSEEN)
    shape = str(rng.choice(known))
    size = float(rng.choice(level.sizes) if level.two_sizes else rng.uniform(*level.sizes))
    if level.textured:
        paint: Paint = _texture(rng, unseen, rng.uniform(1.5, 3.5), pale=False, flat=False)
        colour, material = "two colours", "textured"
    else:
        colour, shown = _colour(rng, level)
        paint, material = linear(shown), str(rng.choice(("rubber", "metal")))
    position = _free_place(rng, thrown, size, camera, others, distance)
    velocity = distance * np.array([*rng.uniform(-SIDEWAYS, SIDEWAYS, 2), 0.0]) - [*position[:2], 0.0]
    quaternion = rng.normal(size=4)
    return Object(
        shape=shape,
        size=size,
        material=material,
        colour=colour,
        paint=paint,
        thrown=thrown,
        position=position,
        quaternion=quaternion / np.linalg.norm(quaternion),
        velocity=velocity if thrown else np.zeros(3),
    )


def _free_place(
    rng: np.random.Generator, thrown: bool, size: float, camera: np.ndarray, others: list[Object], distance: float
) -> Float[np.ndarray, " 3"]:
    """A start position that touches no other object (higher up if the region is crowded) and does not end right before
    the camera."""
    region = distance * np.array(THROWN_FROM if thrown else DROPPED_FROM)
    for attempt in range(1000):
        place = rng.uniform(*region) + np.array([0, 0, attempt // 50 + 0.3 * size])
        landing = place * [1, 1, 0]
        free = all(np.linalg.norm(place - o.position) > 0.62 * (size + o.size) for o in others)
        if free and (thrown or np.linalg.norm(camera - landing, axis=1).min() > 2.5 * distance + size):
            break
    return place


def _colour(rng: np.random.Generator, level: Level) -> tuple[str, np.ndarray]:
    if level.two_sizes:
        name = str(rng.choice(list(COLOURS)))
        return name, np.array(COLOURS[name]) / 255
    hue = rng.random()
    return f"hue {hue:.2f}", np.array(colorsys.hsv_to_rgb(hue, rng.uniform(0.6, 1), rng.uniform(0.5, 1)))


def _texture(rng: np.random.Generator, unseen: bool, repetitions: float, pale: bool, flat: bool) -> Texture:
    """`pale`: For backgrounds, with less saturated colours that are close to each other. `flat`: Rotated about the
    vertical axis only."""
    known = textures.UNSEEN if unseen else tuple(p for p in textures.PATTERNS if p not in textures.UNSEEN)
    pattern = str(rng.choice(known))
    hue = rng.random()
    apart = rng.uniform(0.02, 0.15) if pale else rng.uniform(0.1, 0.6)
    saturation = rng.uniform(0.05, 0.45, 2) if pale else rng.uniform(0.35, 1, 2)
    value = rng.uniform(0.3, 0.8) + (np.array([-0.1, 0.1]) if pale else rng.choice([-0.25, 0.25]) * np.array([1, -1]))
    shown = [
        colorsys.hsv_to_rgb((hue + i * apart) % 1, saturation[i], float(np.clip(value[i], 0.1, 1))) for i in (0, 1)
    ]
    axes = rng.normal(size=(3, 3))
    if flat:
        angle = rng.uniform(0, 2 * np.pi)
        rotation = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    else:
        rotation = np.linalg.qr(axes)[0]
    shift = rng.uniform(0, 32, 3) * (pattern not in textures.CENTRED)
    return Texture(pattern, (linear(shown[0]), linear(shown[1])), float(repetitions), rotation, shift)


def _camera(rng: np.random.Generator, level: Level, frames: int) -> Float[np.ndarray, "T 3"]:
    """Camera position in each frame; the camera always looks at the origin."""
    if level.camera == "fixed":
        return np.tile(np.array([7.48, -6.51, 5.34]) + rng.uniform(0, 1, 3), (frames, 1))
    if level.camera == "dome":
        return np.tile(_on_dome(rng, 7.0, 9.0), (frames, 1))
    for _ in range(1000):
        start = _on_dome(rng, 8.0, 12.0)
        direction = rng.normal(size=3)
        end = start + direction / np.linalg.norm(direction) * rng.uniform(1, 4)
        if 8 <= np.linalg.norm(end) <= 12 and end[2] >= LOWEST * np.linalg.norm(end):
            break
    return np.linspace(start, end, frames)


LOWEST = 0.2
"""Sine of the lowest camera elevation; from floor level, one object would hide all others."""


def _on_dome(rng: np.random.Generator, nearest: float, farthest: float) -> np.ndarray:
    """A position distributed uniformly over the sphere (and so uniformly over height) above the lowest elevation."""
    height, angle = rng.uniform(LOWEST, 0.95), rng.uniform(0, 2 * np.pi)
    around = np.sqrt(1 - height**2)
    return rng.uniform(nearest, farthest) * np.array([around * np.cos(angle), around * np.sin(angle), height])


def _light(rng: np.random.Generator, level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Position and colour of the light."""
    if not level.textured:
        return np.array([11.6, -6.6, 25.8]) + rng.uniform(-1, 1, 3), np.ones(3)
    height, angle = rng.uniform(0.5, 0.95), rng.uniform(0, 2 * np.pi)
    around = np.sqrt(1 - height**2)
    warmth = rng.uniform(-0.12, 0.12)
    direction = np.array([around * np.cos(angle), around * np.sin(angle), height])
    return 28 * direction, np.array([1 + warmth, 1.0, 1 - warmth])
