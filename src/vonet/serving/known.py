"""Checks whether a video differs from the videos that a model was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt8

from vonet.data.colour import is_grey
from vonet.data.known import known_input
from vonet.data.resize import LEAST_SEEN, MOST_DISTORTED, Fit, distortion, fitting


def outside(name: str, pixels: UInt8[np.ndarray, "H W 3"], model: Any, fit: Fit) -> list[str]:
    """One sentence for each way in which a video differs from the training videos, judged by its first frame."""
    (h, w), (H, W) = pixels.shape[:2], model.size
    notes = []
    if h < H and w < W:
        notes.append(f"{name} has frames of {w}x{h} pixels, fewer than the {W}x{H} that the weights know: enlarged")
    if fit == "stretch" and distortion((h, w), (H, W)) > MOST_DISTORTED:
        notes.append(f"{name} has frames of {w}x{h} pixels, distorted to {W}x{H}: --fit letterbox keeps their shape")
    seen = fitting((h, w), (H, W), fit).seen_share
    if seen < LEAST_SEEN:
        notes.append(f"only {100 * seen:.0f} % of the frames of {name} are seen: --fit stretch shows all to the model")
    if is_grey(pixels) and not known_input(model).grey:
        notes.append(f"{name} has no colours, and the weights know videos with colours: expect more mistakes")
    return notes
