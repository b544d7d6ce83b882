"""Whether videos have colours: a model that was trained on colours knows little about grey videos, and vice versa."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from vonet.data.video import Videos
from vonet.errors import BadInput

LOOKED_AT = 8
"""Number of videos of a set whose first frames are checked, spread over the set."""
LOOKED_AT_PIXELS = 128
"""Approximate number of rows and columns of a frame that are checked."""
COLOURLESS, SHARE = 12, 0.995
"""A pixel counts as grey if its channels differ by at most this many levels, a frame if at least this share of its
pixels is grey."""


def is_grey(frames: UInt8[np.ndarray, "*any H W 3"]) -> bool:
    """For large frames, a subset of rows and columns is enough."""
    down, across = (max(1, side // LOOKED_AT_PIXELS) for side in frames.shape[-3:-1])
    some = frames[..., ::down, ::across, :]
    spread = some.max(axis=-1).astype(np.int16) - some.min(axis=-1)
    return bool((spread <= COLOURLESS).mean() >= SHARE)


def are_grey(videos: Videos) -> bool:
    """Whether all of the given videos are grey; videos that cannot be read are skipped."""
    found = []
    for number in np.unique(np.linspace(0, len(videos) - 1, LOOKED_AT).astype(int)).tolist():
        try:
            found.append(is_grey(videos[number].read(0, 1)))
        except BadInput:
            continue
    return bool(found) and all(found)
