"""Resizing of frames and ids, aligned with each other."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Integer, UInt8
from PIL import Image

Fit = Literal["crop", "stretch"]
"""What to do where the shape differs: cut off what is too much on both sides, or distort."""


def _box(size: tuple[int, int], target: tuple[int, int], fit: Fit) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the part that is kept."""
    (h, w), (new_h, new_w) = size, target
    if fit == "stretch":
        return 0.0, 0.0, float(w), float(h)
    scale = min(h / new_h, w / new_w)
    across, down = scale * new_w, scale * new_h
    return (w - across) / 2, (h - down) / 2, (w + across) / 2, (h + down) / 2


def resized(frames: UInt8[np.ndarray, "T h w 3"], size: tuple[int, int], fit: Fit) -> UInt8[np.ndarray, "T H W 3"]:
    """Each new pixel is the mean of those it covers: exactly where they are whole, as MOVi's own smaller version is."""
    box = _box(frames.shape[1:3], size, fit)
    across, down = (box[2] - box[0]) / size[1], (box[3] - box[1]) / size[0]
    whole = all(x == round(x) for x in (*box, across, down))
    images = [Image.fromarray(frame) for frame in frames]
    if whole:
        left, top, right, bottom = map(round, box)
        small = [image.reduce((round(across), round(down)), (left, top, right, bottom)) for image in images]
    else:
        small = [image.resize(size[::-1], Image.Resampling.BILINEAR, box) for image in images]
    return np.stack([np.asarray(image) for image in small])


def resized_ids(ids: Integer[np.ndarray, "T h w"], size: tuple[int, int], fit: Fit) -> Integer[np.ndarray, "T H W"]:
    """The id in the middle of each new pixel."""
    left, top, right, bottom = _box(ids.shape[1:3], size, fit)
    rows = np.floor(top + (np.arange(size[0]) + 0.5) * (bottom - top) / size[0]).astype(int)
    columns = np.floor(left + (np.arange(size[1]) + 0.5) * (right - left) / size[1]).astype(int)
    return ids[:, rows[:, None], columns[None, :]]
