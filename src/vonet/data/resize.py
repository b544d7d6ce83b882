"""Resizes frames and their ids consistently, with one rule for preparing, training and segmenting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Integer, UInt8
from PIL import Image

Fit = Literal["stretch", "crop", "letterbox"]
"""For frames of another shape: distort them, cut off two sides, or add grey bars on two sides."""
DEFAULT_FIT: Fit = "stretch"
"""It keeps the whole frame and adds no bars, which a model could take for objects."""
GREY = 128
"""Grey level of the bars."""


@dataclass(frozen=True)
class Fitting:
    """Maps a part of a frame to a part of a picture of another size.

    Attributes:
        frame: Height and width of the frame.
        picture: Height and width of the picture.
        kept: Left, top, right and bottom of the frame's part, in pixels of the frame; may be fractions.
        box: Top, left, bottom and right of the part of the picture that it fills.
    """

    frame: tuple[int, int]
    picture: tuple[int, int]
    kept: tuple[float, float, float, float]
    box: tuple[int, int, int, int]

    @property
    def seen(self) -> tuple[slice, slice]:
        """The rows and columns of the frame whose centres lie in the picture."""
        left, top, right, bottom = self.kept
        return _middles(top, bottom), _middles(left, right)

    @property
    def seen_share(self) -> float:
        left, top, right, bottom = self.kept
        return (right - left) * (bottom - top) / (self.frame[0] * self.frame[1])


def fitting(frame: tuple[int, int], picture: tuple[int, int], fit: Fit) -> Fitting:
    """How a frame of one size (height, width) is resized to a picture of another size."""
    (h, w), (H, W) = frame, picture
    kept, box = (0.0, 0.0, float(w), float(h)), (0, 0, H, W)
    if fit == "crop":
        scale = min(h / H, w / W)
        across, down = scale * W, scale * H
        kept = (w - across) / 2, (h - down) / 2, (w + across) / 2, (h + down) / 2
    if fit == "letterbox":
        scale = min(H / h, W / w)
        height, width = max(1, round(scale * h)), max(1, round(scale * w))
        top, left = (H - height) // 2, (W - width) // 2
        box = top, left, top + height, left + width
    return Fitting(frame, picture, kept, box)


MOST_DISTORTED = 2.5
"""Ratio of two aspect ratios above which stretching makes objects hard to recognise."""
LEAST_SEEN = 0.5
"""Smallest share of a frame that cropping should leave."""


def distortion(frame: tuple[int, int], picture: tuple[int, int]) -> float:
    """Ratio of the two aspect ratios, 1 or more."""
    ratio = (frame[1] / frame[0]) / (picture[1] / picture[0])
    return max(ratio, 1 / ratio)


def _middles(begin: float, end: float) -> slice:
    """The pixels whose centres lie between `begin` and `end`; at least one."""
    first = int(np.ceil(begin - 0.5))
    return slice(first, max(first + 1, int(np.ceil(end - 0.5))))


def resized(frames: UInt8[np.ndarray, "T h w 3"], size: tuple[int, int], fit: Fit) -> UInt8[np.ndarray, "T H W 3"]:
    """Each new pixel is the mean of the pixels that it covers. The mean is exact for whole factors, as in MOVi's own
    smaller version."""
    how = fitting(frames.shape[1:3], size, fit)
    top, left, bottom, right = how.box
    content = _scaled(frames, (bottom - top, right - left), how.kept)
    if content.shape[1:3] == size:
        return content
    canvas = np.full((len(frames), *size, 3), GREY, np.uint8)
    canvas[:, top:bottom, left:right] = content
    return canvas


def _scaled(frames: np.ndarray, size: tuple[int, int], kept: tuple[float, float, float, float]) -> np.ndarray:
    across, down = (kept[2] - kept[0]) / size[1], (kept[3] - kept[1]) / size[0]
    whole = all(x == round(x) for x in (*kept, across, down))
    images = [Image.fromarray(frame) for frame in frames]
    if whole:
        left, top, right, bottom = map(round, kept)
        small = [image.reduce((round(across), round(down)), (left, top, right, bottom)) for image in images]
    else:
        small = [image.resize(size[::-1], Image.Resampling.BILINEAR, kept) for image in images]
    return np.stack([np.asarray(image) for image in small])


def resized_ids(ids: Integer[np.ndarray, "T h w"], size: tuple[int, int], fit: Fit) -> Integer[np.ndarray, "T H W"]:
    """The id at the centre of each new pixel; 0 (background) in letterbox bars."""
    how = fitting(ids.shape[1:3], size, fit)
    (left, top, right, bottom), box = how.kept, how.box
    height, width = box[2] - box[0], box[3] - box[1]
    rows = np.floor(top + (np.arange(height) + 0.5) * (bottom - top) / height).astype(int)
    columns = np.floor(left + (np.arange(width) + 0.5) * (right - left) / width).astype(int)
    content = ids[:, rows[:, None], columns[None, :]]
    if (height, width) == size:
        return content
    canvas = np.zeros((len(ids), *size), ids.dtype)
    canvas[:, box[0] : box[2], box[1] : box[3]] = content
    return canvas
