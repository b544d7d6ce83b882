"""Resizes frames of any size and shape to the model's size, and masks back to the frame's size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Integer, UInt8
from torch import Tensor

from vonet.data.resize import Fit, Fitting, resized
from vonet.interface import NULL, Enlargement, frames_tensor, label_ids, slot_ids

STRIP_BYTES = 512 << 10
"""Bytes of masks that are enlarged at a time, so that frames of any size fit into memory, and each strip into a
cache."""


def placed(pixels: UInt8[np.ndarray, "h w 3"], picture: tuple[int, int], fit: Fit) -> Float[Tensor, "3 H W"]:
    """The frame as model input."""
    return frames_tensor(resized(pixels[None], picture, fit)[0])


def labels_of_frame(labels: Int[Tensor, "H W"], how: Fitting) -> Integer[np.ndarray, "height width"]:
    """A model's own labels, resized to the part of the frame that it saw."""
    top, left, bottom, right = how.box
    rows, columns = how.seen
    size = rows.stop - rows.start, columns.stop - columns.start
    return label_ids(labels[top:bottom, left:right], size).cpu().numpy()


@dataclass(frozen=True)
class Enlarger:
    """Resizes log-masks to the size of the frame, like `interface.enlarge`, but also for frames that fill only a part
    of the model's picture. It works on a few rows at a time, by two products with interpolation matrices. Pixels that
    the model does not see (`crop`) get no id, and all slots have the same probability there."""

    rows: Float[Tensor, "seen_rows h"]
    columns: Float[Tensor, "seen_columns w"]
    fitting: Fitting
    how: Enlargement

    @classmethod
    def between(cls, cells: tuple[int, int], fitting: Fitting, how: Enlargement) -> Enlarger:
        left, top, right, bottom = fitting.kept
        begin_row, begin_column, end_row, end_column = fitting.box
        rows, columns = fitting.seen
        across = (left, right, begin_column / fitting.picture[1], end_column / fitting.picture[1])
        down = (top, bottom, begin_row / fitting.picture[0], end_row / fitting.picture[0])
        return cls(_blend(cells[0], rows, down, how), _blend(cells[1], columns, across, how), fitting, how)

    def strips(self, log_masks: Float[Tensor, "K h w"]) -> Iterator[tuple[slice, Float[Tensor, "K some W"]]]:
        """Yields the visible part in horizontal strips, from top to bottom: the rows of each strip and its log-masks,
        whose exponentials sum to one over K."""
        log_masks = log_masks.float().cpu()
        height, width = len(self.rows), len(self.columns)
        first = self.fitting.seen[0].start
        step = max(1, STRIP_BYTES // (4 * len(log_masks) * width))
        for top in range(0, height, step):
            strip = slice(top, min(top + step, height))
            enlarged = self.rows[strip] @ log_masks @ self.columns.T
            found = enlarged.log_softmax(dim=0) if self.how == "bilinear" else enlarged
            yield slice(first + strip.start, first + strip.stop), found

    def masks(self, log_masks: Float[Tensor, "K h w"]) -> Float[np.ndarray, "K H W"]:
        """Soft masks. They take much memory for large frames; use ids there."""
        masks = np.full((len(log_masks), *self.fitting.frame), 1 / len(log_masks), np.float32)
        for strip, found in self.strips(log_masks):
            masks[:, strip, self.fitting.seen[1]] = found.exp().numpy()
        return masks

    def ids(self, log_masks: Float[Tensor, "K h w"], min_probability: float) -> np.ndarray:
        """The ids of the frame's pixels (`slot_ids`), as bytes if there are few enough."""
        kind = np.uint8 if len(log_masks) < 256 else np.uint16
        ids = np.full(self.fitting.frame, NULL, kind)
        for strip, found in self.strips(log_masks):
            ids[strip, self.fitting.seen[1]] = slot_ids(found, min_probability).numpy()
        return ids


def _blend(
    cells: int, pixels: slice, where: tuple[float, float, float, float], how: Enlargement
) -> Float[Tensor, "pixels cells"]:
    """The interpolation weight of each cell for each pixel. `where`: The visible part of the frame's side in pixels,
    and the matching part of the picture's side as shares."""
    first, last, begin, end = where
    middles = torch.arange(pixels.start, pixels.stop, dtype=torch.float64) + 0.5
    middles = (begin + (middles - first) / (last - first) * (end - begin)) * cells
    count = len(middles)
    weights = torch.zeros(count, cells)
    if how == "nearest":
        weights[torch.arange(count), middles.long().clamp(0, cells - 1)] = 1.0
        return weights
    place = (middles - 0.5).clamp(0, cells - 1)
    lower = place.long()
    upper = (lower + 1).clamp(max=cells - 1)
    weights[torch.arange(count), lower] += (1 - (place - lower)).float()
    weights[torch.arange(count), upper] += (place - lower).float()
    return weights
