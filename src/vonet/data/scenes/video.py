"""One generated video, determined by its world (level, seed, frame size and so on), its split and its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool

from vonet.data.generate import SPLITS, GeneratedVideo
from vonet.data.scenes.levels import LEVELS
from vonet.data.scenes.physics import Motion, World
from vonet.data.scenes.render import axes_of, cast, directions, image_positions, render
from vonet.data.scenes.scene import FOCAL_LENGTH, MATERIALS, SENSOR_WIDTH, Paint, Scene, sample_scene
from vonet.data.scenes.textures import Texture
from vonet.errors import BadInput

VERSION = 1
ATTEMPTS = 100
PATIENCE = 5
FEWEST_OBJECTS, MOST_OBJECTS = 3, 50
NEAREST, FARTHEST = 0.4, 2.0


@dataclass(frozen=True)
class WorldConfig:
    """Everything that determines the videos of a generated set, except their number."""

    level: str
    size: int = 64
    frames: int = 24
    seed: int = 0
    objects: tuple[int, int] | None = None
    camera_distance: float = 1.0
    """Camera distance from the origin, relative to the level's: below 1 it is a close-up."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise BadInput(f"level {self.level!r} was asked for; there are {', '.join(LEVELS)}")
        if self.size < 16 or self.size % 2:
            raise BadInput(f"the size of the frames is {self.size}; it must be an even number, 16 or more")
        if self.frames < 1:
            raise BadInput(f"videos of {self.frames} frames were asked for; at least 1 is needed")
        if self.seed < 0:
            raise BadInput(f"the seed is {self.seed}; it must be 0 or more")
        if self.objects is not None and not 1 <= self.objects[0] <= self.objects[1] <= MOST_OBJECTS:
            raise BadInput(
                f"{self.objects[0]} to {self.objects[1]} objects were asked for; "
                f"give a range between 1 and {MOST_OBJECTS}, the smaller number first"
            )
        if not NEAREST <= self.camera_distance <= FARTHEST:
            raise BadInput(
                f"a camera distance of {self.camera_distance} was asked for; give a share of the level's "
                f"distance, from {NEAREST} to {FARTHEST}"
            )

    @property
    def name(self) -> str:
        return self.level

    @property
    def made_by(self) -> dict[str, Any]:
        """The default camera distance is left out, so that older worlds without this option stay the same."""
        options = asdict(self)
        if self.camera_distance == 1.0:
            del options["camera_distance"]
        return {"command": "generate", "generator": VERSION, "mujoco": mujoco.__version__, **options}

    def video(self, split: str, index: int) -> GeneratedVideo:
        return generate_video(self, split, index)


def generate_video(config: WorldConfig, split: str, index: int) -> GeneratedVideo:
    """Draw scenes until one is accepted: the physics stays finite, no object ever fills the frame, enough objects
    become visible, and half of them are visible at a time. After some attempts the last two conditions are relaxed."""
    level = LEVELS[config.level]
    for attempt, rng in enumerate(_dice(config, split, index)):
        scene = sample_scene(rng, level, split, config.frames, config.objects, config.camera_distance)
        world = World(scene)
        motion = world.simulate(config.frames)
        if motion is None or _too_close(world, motion):
            continue
        frames, seen = render(world, motion, config.size)
        counts = np.stack([np.bincount(frame.ravel() + 1, minlength=len(scene.objects) + 1)[1:] for frame in seen])
        if _shows_enough(counts > 0, config, patient=attempt < PATIENCE):
            return _annotated(config, split, index, scene, motion, frames, seen, counts)
    raise BadInput(f"no good scene came out of {ATTEMPTS} attempts: ask for other numbers of objects")


def _shows_enough(seen: Bool[np.ndarray, "T k"], config: WorldConfig, patient: bool) -> bool:
    """Whether enough objects are visible; `seen` says which objects are visible in which frame."""
    listed, at_a_time = int(seen.any(axis=0).sum()), seen.sum(axis=1)
    fewest = config.objects[0] if config.objects else FEWEST_OBJECTS
    if patient:
        return bool(listed >= fewest and at_a_time.all() and at_a_time.mean() >= listed / 2)
    return listed >= min(fewest, FEWEST_OBJECTS)


def _too_close(world: World, motion: Motion) -> bool:
    """Whether an object ever fills more than half of the picture, checked with a few rays."""
    for frame, camera in enumerate(world.scene.camera):
        world.place(motion.positions[frame], motion.quaternions[frame])
        seen = cast(world, camera, directions(camera, 12)).objects
        if np.bincount(seen + 2)[2:].max(initial=0) > len(seen) / 2:
            return True
    return False


def _dice(config: WorldConfig, split: str, index: int) -> Iterator[np.random.Generator]:
    for attempt in range(ATTEMPTS):
        yield np.random.default_rng([config.seed, ord(config.level), SPLITS.index(split), index, attempt])


def _annotated(
    config: WorldConfig,
    split: str,
    index: int,
    scene: Scene,
    motion: Motion,
    frames: np.ndarray,
    seen: np.ndarray,
    counts: np.ndarray,
) -> GeneratedVideo:
    """Drops objects that are never visible, and sorts the others by visible area: id 1 has the most."""
    total = counts.sum(axis=0)
    kept = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
    new = np.zeros(len(scene.objects) + 1, np.uint8)
    new[np.array(kept) + 1] = np.arange(1, len(kept) + 1)
    ids = new[seen + 1]
    counts = counts[:, kept]
    arrays = {
        "objects_positions": motion.positions[:, kept],
        "objects_quaternions": motion.quaternions[:, kept],
        "objects_velocities": motion.velocities[:, kept],
        "objects_angular_velocities": motion.angular_velocities[:, kept],
        "objects_image_positions": image_positions(motion.positions[:, kept], scene.camera),
        "objects_boxes": _boxes(ids, len(kept)),
        "objects_visible_pixels": counts.astype(np.int32),
        "camera_positions": scene.camera,
        "camera_axes": np.stack([axes_of(camera) for camera in scene.camera]),
    }
    about = {
        "name": f"{config.level}-{split}-{index:06d}",
        "level": config.level,
        "split": split,
        "index": index,
        "seed": config.seed,
        "generator": VERSION,
        "objects": [_described(scene, motion, i) for i in kept],
        "background": {"floor": _painted(scene.floor), "dome": _painted(scene.dome)},
        "camera": {"focal_length": FOCAL_LENGTH, "sensor_width": SENSOR_WIDTH, "looks_at": [0, 0, 0]},
        "light": np.round(scene.light, 4).tolist(),
        "collisions": _collisions(motion, kept),
    }
    floats = {name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in arrays.items()}
    return GeneratedVideo(frames, ids, about, floats)


def _described(scene: Scene, motion: Motion, number: int) -> dict[str, Any]:
    thing = scene.objects[number]
    material = MATERIALS[thing.material]
    return {
        "shape": thing.shape,
        "size": round(thing.size, 4),
        "material": thing.material,
        "colour": thing.colour,
        **_painted(thing.paint),
        "thrown": thing.thrown,
        "mass": round(float(motion.masses[number]), 4),
        "friction": material.friction,
        "restitution": material.restitution,
    }


def _painted(paint: Paint) -> dict[str, Any]:
    """The pattern's name and its two colours as on the screen."""
    colours = paint.colours if isinstance(paint, Texture) else (paint,)
    return {
        "pattern": paint.pattern if isinstance(paint, Texture) else "plain",
        "rgb": [np.round(colour ** (1 / 2.2), 4).tolist() for colour in colours],
    }


def _collisions(motion: Motion, kept: list[int]) -> list[dict[str, Any]]:
    """Collisions with ids instead of object numbers; 0 is the floor. Collisions of objects that are never visible are
    left out."""
    ids = {-1: 0, **{old: new for new, old in enumerate(kept, start=1)}}
    known = [c for c in motion.collisions if all(o in ids for o in c.objects)]
    return [{**asdict(c), "objects": sorted(ids[o] for o in c.objects)} for c in known]


def _boxes(ids: np.ndarray, count: int) -> np.ndarray:
    """Boxes as top, left, bottom, right, in units of the picture's side; NaN where the object is not visible."""
    boxes = np.full((len(ids), count, 4), np.nan)
    size = ids.shape[-1]
    for axis, (low, high) in ((2, (0, 2)), (1, (1, 3))):
        for number in range(count):
            along = (ids == number + 1).any(axis=axis)
            present = along.any(axis=1)
            boxes[present, number, low] = along[present].argmax(axis=1) / size
            boxes[present, number, high] = (size - along[present, ::-1].argmax(axis=1)) / size
    return boxes
