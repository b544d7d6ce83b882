"""Segments laid over a frame: a colour for each id that stays the same, and white lines where ids meet."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Integer, UInt8

from vonet.figures.sheet import colours

LINES_PER_PICTURE = 400
"""The thickness of lines is the shorter side divided by this."""
STRIP = 1 << 20
"""Number of pixels that are blended at a time, so that a picture of any size needs little more memory than itself."""


def id_colours(largest: int) -> UInt8[np.ndarray, "ids 3"]:
    """The colour of each id from 0 on, the same in every picture. Id 0 (no slot is probable enough) is black."""
    return np.concatenate([np.zeros((1, 3), np.uint8), colours(max(largest, 1))])


def boundaries(ids: Integer[np.ndarray, "H W"], width: int = 1) -> Bool[np.ndarray, "H W"]:
    """Pixels whose id differs from that of the pixel below or to the right, thickened to `width` pixels."""
    edge = np.zeros(ids.shape, bool)
    edge[:-1] |= ids[:-1] != ids[1:]
    edge[:, :-1] |= ids[:, :-1] != ids[:, 1:]
    thick = edge.copy()
    for step in range(1, width):
        thick[step:] |= edge[:-step]
    edge = thick.copy()
    for step in range(1, width):
        thick[:, step:] |= edge[:, :-step]
    return thick


def overlaid(
    pixels: UInt8[np.ndarray, "H W 3"],
    ids: Integer[np.ndarray, "H W"],
    opacity: float = 0.5,
    tint: UInt8[np.ndarray, "ids 3"] | None = None,
) -> UInt8[np.ndarray, "H W 3"]:
    """The frame with its segments over it; pixels of id 0 keep their own colour. `tint`: Colours of the ids."""
    tint = id_colours(int(ids.max())) if tint is None else tint
    weight = np.full(len(tint), round(256 * opacity), np.uint16)
    weight[0] = 0
    mixed = np.empty(pixels.shape, np.uint8)
    rows = max(1, STRIP // pixels.shape[1])
    for top in range(0, len(pixels), rows):
        strip = slice(top, top + rows)
        share = weight[ids[strip], None]
        mixed[strip] = (pixels[strip] * (256 - share) + tint[ids[strip]] * share) >> 8
    mixed[boundaries(ids, max(1, round(min(ids.shape) / LINES_PER_PICTURE)))] = 255
    return mixed
