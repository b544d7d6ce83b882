"""Do the pictures that a model paints from its slots show the objects in their places?

For each object in each frame its mean colour is compared with the frame's mean background colour. A pixel of the object
is painted right if the painted colour is nearer to the former. A model that paints empty background has a share near
0, noise has about a half, a perfect picture nearly 1 (shading and outlines cost little).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.evaluation.run import fresh_state
from vonet.interface import Clip, device_of, frames_tensor

SOURCES = {"posterior": "reconstruction", "prior": "forecast"}
"""What a picture is painted from, and its name in an `Explanation`."""


def painted_right(
    pictures: Float[np.ndarray, "T H W 3"],
    frames: Float[np.ndarray, "T H W 3"],
    ids: Integer[np.ndarray, "T H W"],
) -> tuple[int, int]:
    """Number of object pixels that are painted right, and number of object pixels. Id 0 is background; a frame without
    background does not count."""
    right = pixels = 0
    for picture, frame, numbers in zip(pictures, frames, ids, strict=True):
        behind = numbers == 0
        if not behind.any():
            continue
        background = frame[behind].mean(0)
        for number in np.unique(numbers[~behind]):
            of_object = numbers == number
            own, painted = frame[of_object].mean(0), picture[of_object]
            nearer = np.square(painted - own).sum(-1) < np.square(painted - background).sum(-1)
            right, pixels = right + int(nearer.sum()), pixels + int(of_object.sum())
    return right, pixels


@torch.no_grad()
def score_pictures(model: Any, videos: Sequence[Video], slots: int | None = None) -> dict[str, float]:
    """Share of object pixels painted right, by what the picture is painted from. All frames of all videos; the first
    frame of a video has no prior that has seen anything, so it does not count for the prior."""
    if not hasattr(model, "explain"):
        raise BadInput(f"a {type(model).__name__} paints no pictures, so they cannot be scored")
    counts = {source: np.zeros(2, dtype=np.int64) for source in SOURCES}
    for video in videos:
        frames, ids = resized(video.read(), model.size, "stretch"), video.read_ids()
        if ids is None:
            raise BadInput(f"{video.name} has no true ids; scores need videos that have them")
        ids = resized_ids(ids, model.size, "stretch")
        clip = Clip(frames_tensor(frames, device_of(model))[None])
        shown = model.explain(model.unroll(clip, fresh_state(model, video, slots=slots)))
        for source, name in SOURCES.items():
            if (pictures := getattr(shown, name)) is not None:
                painted = pictures[0].permute(0, 2, 3, 1).cpu().numpy()
                first = 1 if source == "prior" else 0
                counts[source] += painted_right(painted[first:], frames[first:] / 255, ids[first:])
    return {source: float(right / pixels) for source, (right, pixels) in counts.items() if pixels}
