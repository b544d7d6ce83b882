"""Toy videos: coloured discs, squares and triangles drift over a plain background, bounce off the walls and occlude
each other. Needs only numpy, and gives exact ids."""

from __future__ import annotations

import colorsys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vonet.data.generate import SPLITS, GeneratedVideo
from vonet.errors import BadInput

VERSION = 1
SMALLEST = 16
"""Side of the smallest frames, in pixels."""


@dataclass(frozen=True)
class SpritesConfig:
    """Everything that determines the videos of a set, except their number."""

    size: int = 32
    """Side of the frames, in pixels."""
    frames: int = 12
    objects: tuple[int, int] = (2, 3)
    """Smallest and largest number of objects."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < SMALLEST or self.frames < 1 or self.seed < 0:
            raise BadInput(
                f"size {self.size}, {self.frames} frames and seed {self.seed} were asked for; give a size of "
                f"{SMALLEST} or more, at least 1 frame and a seed of 0 or more"
            )
        if not 1 <= self.objects[0] <= self.objects[1] <= 255:
            raise BadInput(
                f"{self.objects[0]} to {self.objects[1]} objects were asked for; give a range between 1 and 255, "
                "the smaller number first"
            )

    @property
    def name(self) -> str:
        return "sprites"

    @property
    def made_by(self) -> dict[str, Any]:
        return {"command": "generate", "generator": VERSION, "world": self.name, **asdict(self)}

    def video(self, split: str, index: int) -> GeneratedVideo:
        rng = np.random.default_rng((self.seed, SPLITS.index(split), index))
        frames, ids = _video(rng, self.frames, self.size, self.objects)
        return GeneratedVideo(frames, ids, {"name": f"sprites-{split}-{index:06d}", "split": split, "index": index}, {})


def sprite_videos(
    videos: int, frames: int = 12, size: int = 32, objects: tuple[int, int] = (2, 3), seed: int = 0
) -> tuple[UInt8[np.ndarray, "videos T H W 3"], UInt8[np.ndarray, "videos T H W"]]:
    """Toy videos in memory. Each video depends only on the options and its number.

    Args:
        videos: Number of videos.
        frames: Frames of each video, T.
        size: Side of the frames, in pixels.
        objects: Smallest and largest number of objects.
        seed: Different seeds give different videos.

    Returns:
        Frames, bytes, and object ids, in which 0 is the background.
    """
    made = [_video(np.random.default_rng((seed, number)), frames, size, objects) for number in range(videos)]
    return np.stack([pixels for pixels, _ in made]), np.stack([ids for _, ids in made])


def _video(rng: np.random.Generator, frames: int, size: int, objects: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.mgrid[:size, :size] + 0.5
    shade = 1 + 0.15 * (rows / size - 0.5)
    pixels = np.broadcast_to(rng.uniform(0.3, 0.6) * shade[None, :, :, None], (frames, size, size, 3)).copy()
    ids = np.zeros((frames, size, size), np.uint8)
    for number in range(1, rng.integers(objects[0], objects[1] + 1) + 1):
        colour = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.7, 1.0), rng.uniform(0.7, 1.0))
        shape, radius = rng.choice(["disc", "square", "triangle"]), rng.uniform(0.12, 0.2) * size
        position, velocity = rng.uniform(radius, size - radius, 2), rng.normal(0, 0.03 * size, 2)
        for t in range(frames):
            y, x = rows - position[0], columns - position[1]
            inside = {
                "disc": y**2 + x**2 < radius**2,
                "square": np.maximum(abs(y), abs(x)) < 0.85 * radius,
                "triangle": (y < 0.8 * radius) & (y > 2.2 * abs(x) - radius),
            }[str(shape)]
            pixels[t][inside] = colour
            ids[t][inside] = number
            position = position + velocity
            outside = (position < radius) | (position > size - radius)
            velocity = np.where(outside, -velocity, velocity)
            position = np.clip(position, radius, size - radius)
    return np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8), ids
