"""Frames of any size and shape to the model's size, and masks back to the frame's size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Integer, UInt8
from torch import Tensor

from vonet.data.resize import resized
from vonet.interface import Enlargement, frames_tensor, label_ids, slot_ids

Fit = Literal["stretch", "letterbox"]
"""For frames of another shape than the model's: distort them, or add grey bars on two sides."""

GREY = 128
STRIP_BYTES = 512 << 10
"""Of masks that are enlarged at a time: frames of any size fit into memory, and each strip into a cache."""

Box = tuple[int, int, int, int]
"""Top, left, bottom and right, in pixels of the model's picture."""


def content_box(frame: tuple[int, int], picture: tuple[int, int], fit: Fit) -> Box:
    """Where a frame of one size lies in a picture of another."""
    (h, w), (H, W) = frame, picture
    if fit == "stretch":
        return 0, 0, H, W
    scale = min(H / h, W / w)
    height, width = max(1, round(scale * h)), max(1, round(scale * w))
    top, left = (H - height) // 2, (W - width) // 2
    return top, left, top + height, left + width


def placed(pixels: UInt8[np.ndarray, "h w 3"], picture: tuple[int, int], box: Box) -> Float[Tensor, "3 H W"]:
    """The frame in the model's picture, grey around it."""
    top, left, bottom, right = box
    canvas = np.full((*picture, 3), GREY, np.uint8)
    canvas[top:bottom, left:right] = resized(pixels[None], (bottom - top, right - left), "stretch")[0]
    return frames_tensor(canvas)


def labels_of_frame(
    labels: Int[Tensor, "H W"], box: Box, frame: tuple[int, int]
) -> Integer[np.ndarray, "height width"]:
    """A model's own labels of its picture, for the pixels of the frame that lies in it."""
    top, left, bottom, right = box
    return label_ids(labels[top:bottom, left:right], frame).cpu().numpy()


@dataclass(frozen=True)
class Enlarger:
    """Brings log-masks of a picture to the size of the frame that lies in it, as `interface.enlarge` does for a frame
    that fills the picture; but some rows at a time, and by two products with matrices that blend neighbouring cells."""

    rows: Float[Tensor, "H h"]
    columns: Float[Tensor, "W w"]
    how: Enlargement

    @classmethod
    def between(
        cls, cells: tuple[int, int], picture: tuple[int, int], box: Box, frame: tuple[int, int], how: Enlargement
    ) -> Enlarger:
        top, left, bottom, right = box
        rows = _blend(cells[0], top / picture[0], bottom / picture[0], frame[0], how)
        columns = _blend(cells[1], left / picture[1], right / picture[1], frame[1], how)
        return cls(rows, columns, how)

    def strips(self, log_masks: Float[Tensor, "K h w"]) -> Iterator[tuple[slice, Float[Tensor, "K some W"]]]:
        """From top to bottom; they sum to one over K."""
        log_masks = log_masks.float().cpu()
        height, width = len(self.rows), len(self.columns)
        step = max(1, STRIP_BYTES // (4 * len(log_masks) * width))
        for top in range(0, height, step):
            strip = slice(top, min(top + step, height))
            enlarged = self.rows[strip] @ log_masks @ self.columns.T
            yield strip, enlarged.log_softmax(dim=0) if self.how == "bilinear" else enlarged

    def masks(self, log_masks: Float[Tensor, "K h w"]) -> Float[np.ndarray, "K H W"]:
        """Soft masks. At large sizes they are large: ids are what one wants there."""
        masks = np.empty((len(log_masks), len(self.rows), len(self.columns)), np.float32)
        for strip, found in self.strips(log_masks):
            masks[:, strip] = found.exp().numpy()
        return masks

    def ids(self, log_masks: Float[Tensor, "K h w"], min_probability: float) -> np.ndarray:
        """The ids of the frame's pixels (`slot_ids`), as bytes where they suffice."""
        kind = np.uint8 if len(log_masks) < 256 else np.uint16
        ids = np.empty((len(self.rows), len(self.columns)), kind)
        for strip, found in self.strips(log_masks):
            ids[strip] = slot_ids(found, min_probability).numpy()
        return ids


def _blend(cells: int, begin: float, end: float, pixels: int, how: Enlargement) -> Float[Tensor, "pixels cells"]:
    """The weight of each cell in each pixel; the pixels cover the part of the cells' side from `begin` to `end`."""
    middles = (begin + (torch.arange(pixels, dtype=torch.float64) + 0.5) / pixels * (end - begin)) * cells
    weights = torch.zeros(pixels, cells)
    if how == "nearest":
        weights[torch.arange(pixels), middles.long().clamp(max=cells - 1)] = 1.0
        return weights
    place = (middles - 0.5).clamp(0, cells - 1)
    lower = place.long()
    upper = (lower + 1).clamp(max=cells - 1)
    weights[torch.arange(pixels), lower] += (1 - (place - lower)).float()
    weights[torch.arange(pixels), upper] += (place - lower).float()
    return weights
