"""Sprites-MOT: coloured sprites cross a black canvas on straight lines and occlude one another.

The dataset is from He et al., "Tracking by Animation" (CVPR 2019). Weis et al., "Benchmarking Unsupervised Object
Representations for Video Sequences" (JMLR 2021), use it as SpMOT. This module reimplements it from its description;
docs/data.md lists the facts and the comparison with the original generator.

A *stream* is an endless video with three *places*. Each place is empty or holds one sprite, and the places are
independent. A clip is ten consecutive frames of a stream, so a clip usually begins with sprites in mid-flight.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from vonet.data.generate import SPLITS, GeneratedVideo
from vonet.errors import BadInput

VERSION = 1
CANVAS = 128
"""Side of the canvas in pixels, on which everything is drawn before it is subsampled."""
SIZES = (32, 64, 128)
CLIP_FRAMES = 10
PLACES = 3
TEMPLATE = 21
"""Side of the shape templates in pixels."""
MARGIN = TEMPLATE // 2
"""Sprites travel between lines that lie this many pixels inside the canvas."""
SPEED = 5.3
"""Pixels of the canvas per frame."""
WAITING = 5
"""Frames that a place stays empty at the beginning of a stream and after a sprite has disappeared."""
BIRTH_PROBABILITY = 0.5
SCALE_SPREAD, ASPECT_SPREAD = 0.1, 0.2
COLOURS = tuple(tuple(255 * (bits >> shift & 1) for shift in (2, 1, 0)) for bits in range(1, 7))
"""All RGB triples of 0 and 255 except black and white."""
SHAPES = ("disc", "square", "triangle", "diamond")
TRAIN_STREAM_CLIPS = 150
"""Clips per training stream: 64 streams have 9,600 clips. Validation and test have one stream each."""

COUNTS = {"train": 9600, "validation": 384, "test": 1000}
"""Clips per split of the original dataset."""

SPRITE = np.dtype(
    [
        ("drawn", np.bool_),
        ("birth", np.int32),  # frame of the stream; the sprite is drawn from the next frame on
        ("shape", np.uint8),  # index into SHAPES
        ("colour", np.uint8),  # index into COLOURS
        ("height", np.uint8),  # pixels of the canvas, as are all below
        ("width", np.uint8),
        ("row", np.int16),  # of the middle
        ("column", np.int16),
    ]
)
"""The content of one place in one frame. All fields are 0 where no sprite is drawn."""


@dataclass(frozen=True)
class SpritesMotConfig:
    """Everything that determines the clips, except their number.

    Attributes:
        size: Side of frames and masks in pixels, one of 32, 64 and 128. At 64 every second pixel is kept, at 32 every
            fourth.
        seed: Different seeds give independent streams.
    """

    size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise BadInput(f"size is {self.size}; it must be one of {', '.join(map(str, SIZES))} (pixels)")
        if self.seed < 0:
            raise BadInput(f"seed is {self.seed}; it must be 0 or more")

    @property
    def name(self) -> str:
        return "spmot"

    @property
    def made_by(self) -> dict[str, Any]:
        return {"command": "generate", "generator": VERSION, "world": self.name, **asdict(self)}

    def video(self, split: str, index: int) -> GeneratedVideo:
        """One clip. The array `sprites` of the video is `T 3` of dtype `SPRITE`."""
        sprites = clip_sprites(self.seed, split, index)
        about = {"name": f"spmot-{split}-{index:06d}", "split": split, "index": index}
        return GeneratedVideo(*draw(sprites, self.size), about, {"sprites": sprites})


def stream_sprites(seed: int, split: str, stream: int, frames: int) -> Shaped[np.ndarray, "frames 3"]:
    """The sprites (dtype `SPRITE`) of the first `frames` frames of a stream.

    A longer stream begins with the same frames as a shorter one."""
    sprites = np.zeros((frames, PLACES), SPRITE)
    for place in range(PLACES):
        _fill_place(np.random.default_rng([seed, SPLITS.index(split), stream, place]), sprites[:, place])
    return sprites


def _fill_place(rng: np.random.Generator, place: Shaped[np.ndarray, " frames"]) -> None:
    """The sprites of one place, one after the other: each waits, appears, crosses the canvas and disappears."""
    empty_since = 0
    while empty_since < len(place):
        birth = empty_since + WAITING + int(rng.geometric(BIRTH_PROBABILITY)) - 1
        sprite, path = _new_sprite(rng)
        visible = place[birth + 1 : birth + 1 + len(path)]
        for name, value in sprite.items():
            visible[name] = value
        visible["drawn"], visible["birth"] = True, birth
        visible["row"], visible["column"] = path[: len(visible)].T
        empty_since = birth + len(path) + 2  # the frame after the one in which it disappears


def _new_sprite(rng: np.random.Generator) -> tuple[dict[str, int], Shaped[np.ndarray, "steps 2"]]:
    """Appearance of a sprite, and row and column of its centre in each frame in which it is drawn."""
    scale = rng.uniform(1 - SCALE_SPREAD, 1 + SCALE_SPREAD)
    aspect = np.sqrt(rng.uniform(1 - ASPECT_SPREAD, 1 + ASPECT_SPREAD))
    looks = {
        "shape": int(rng.integers(len(SHAPES))),
        "colour": int(rng.integers(len(COLOURS))),
        "height": round(TEMPLATE * scale * aspect),
        "width": round(TEMPLATE * scale / aspect),
    }
    low, high = MARGIN, CANVAS - 1 - MARGIN
    ends = np.stack([[low, high], rng.integers(low, high + 1, size=2)], axis=1).astype(float)  # both ends, across first
    if rng.random() < 0.5:
        ends[:, 0] = ends[::-1, 0]  # from the far side
    if rng.random() < 0.5:
        ends = ends[:, ::-1]  # along the other axis
    start, way = ends[0], ends[1] - ends[0]
    steps = np.arange(CANVAS)[:, None]
    path = np.rint(start + steps * SPEED * way / np.hypot(*way)).astype(np.int16)
    outside = ((path < low) | (path > high)).any(axis=1)
    return looks, path[: int(outside.argmax())]


def clip_sprites(seed: int, split: str, index: int) -> Shaped[np.ndarray, "10 3"]:
    """The sprites of one clip."""
    stream, piece = divmod(index, TRAIN_STREAM_CLIPS) if split == "train" else (0, index)
    clips = TRAIN_STREAM_CLIPS if split == "train" else 1 << piece.bit_length()
    return _stream(seed, split, stream, clips)[CLIP_FRAMES * piece : CLIP_FRAMES * (piece + 1)]


@functools.lru_cache(maxsize=4)
def _stream(seed: int, split: str, stream: int, clips: int) -> Shaped[np.ndarray, "frames 3"]:
    """Cached, because neighbouring clips are usually requested in order; `clips` is doubled for streams of unknown
    length."""
    return stream_sprites(seed, split, stream, CLIP_FRAMES * clips)


def templates() -> UInt8[np.ndarray, "4 21 21"]:
    """The opacity of each of `SHAPES`, 0 or 255."""
    rows, columns = np.mgrid[:TEMPLATE, :TEMPLATE]
    middle, radius = (TEMPLATE - 1) / 2, TEMPLATE / 2
    down, across = rows - middle, columns - middle
    from_side = np.minimum(columns + 1, TEMPLATE - columns)
    inside = {
        "disc": down**2 + across**2 <= radius**2,
        "square": np.ones_like(rows, dtype=bool),
        "triangle": 2 * from_side >= TEMPLATE - rows,
        "diamond": abs(down) + abs(across) <= radius,
    }
    return np.stack([np.where(inside[shape], 255, 0) for shape in SHAPES]).astype(np.uint8)


@functools.cache
def opacity(shape: int, height: int, width: int) -> UInt8[np.ndarray, "height width"]:
    """A template resized by bilinear interpolation without antialiasing; all shapes but squares get soft edges."""
    resized = _interpolation(height) @ templates()[shape].astype(float) @ _interpolation(width).T
    return np.rint(resized).astype(np.uint8)


def _interpolation(length: int) -> np.ndarray:
    """Weights `length TEMPLATE` of linear interpolation between pixel centres."""
    at = np.clip((np.arange(length) + 0.5) * TEMPLATE / length - 0.5, 0, TEMPLATE - 1)
    return np.maximum(0, 1 - abs(at[:, None] - np.arange(TEMPLATE)))


def draw(
    sprites: Shaped[np.ndarray, "T 3"], size: int
) -> tuple[UInt8[np.ndarray, "T size size 3"], UInt8[np.ndarray, "T size size"]]:
    """Frames and true ids. The sprite of place p has the id p + 1 and is drawn over those of lower places.

    A pixel belongs to the topmost sprite whose opacity there is not zero."""
    frames = np.zeros((len(sprites), CANVAS, CANVAS, 3), np.float32)
    ids = np.zeros((len(sprites), CANVAS, CANVAS), np.uint8)
    for t, place in np.argwhere(sprites["drawn"]):
        sprite = sprites[t, place]
        alpha = opacity(int(sprite["shape"]), int(sprite["height"]), int(sprite["width"]))
        rows, in_rows = _span(int(sprite["row"]), len(alpha))
        columns, in_columns = _span(int(sprite["column"]), alpha.shape[1])
        alpha = alpha[in_rows, in_columns]
        frames[t, rows, columns] = _blended(frames[t, rows, columns], alpha, COLOURS[sprite["colour"]])
        ids[t, rows, columns][alpha > 0] = place + 1
    every = CANVAS // size
    return frames[:, ::every, ::every].astype(np.uint8), ids[:, ::every, ::every].copy()


def _span(middle: int, length: int) -> tuple[slice, slice]:
    """The pixels of the canvas that a sprite covers along one axis, and the matching part of the sprite."""
    first = middle - length // 2
    begin, end = max(first, 0), min(first + length, CANVAS)
    return slice(begin, end), slice(begin - first, end - first)


def _blended(
    below: Float32[np.ndarray, "h w 3"], alpha: UInt8[np.ndarray, "h w"], colour: tuple[int, ...]
) -> Float32[np.ndarray, "h w 3"]:
    share = alpha[..., None] / np.float32(255)
    return np.rint(below + share * (np.array(colour, np.float32) - below))
