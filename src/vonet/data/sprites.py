"""A toy world: coloured discs, squares and triangles drift over a plain background, bounce off the walls and pass in
front of each other. It needs nothing but numpy, and every pixel's object is known."""

from __future__ import annotations

import colorsys

import numpy as np
from jaxtyping import UInt8


def sprite_videos(
    videos: int, frames: int = 12, size: int = 32, objects: tuple[int, int] = (2, 3), seed: int = 0
) -> tuple[UInt8[np.ndarray, "videos T H W 3"], UInt8[np.ndarray, "videos T H W"]]:
    """Frames and object ids (0 is the background). Each video depends only on the seed and its number."""
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
