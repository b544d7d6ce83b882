"""Scores whether a model's reconstructions show the objects in their places.

In each frame, every object has its mean colour, and so has the background. An object pixel is painted right if its
reconstructed colour is nearer to the object's mean colour than to the background's. A background pixel is painted right
if it is nearer to the background's mean colour than to that of every object. Both shares are needed: a reconstruction
of only the background scores 0 and 100 %, and a single colour everywhere may score 70 and 8 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.evaluation.run import fresh_state
from vonet.interface import Clip, ExplainingModel, device_of, frames_tensor

SOURCES = {"posterior": "reconstruction", "prior": "prior_reconstruction"}
"""Kinds of reconstructions, and their names in an `Explanation`."""


@dataclass(frozen=True)
class Painted:
    """Numbers of object and background pixels: those painted right, and all."""

    right_of_objects: int = 0
    of_objects: int = 0
    right_of_background: int = 0
    of_background: int = 0

    def __add__(self, other: Painted) -> Painted:
        return Painted(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def shares(self) -> dict[str, float]:
        """Shares of object pixels and of background pixels that are painted right. Empty if there is no object."""
        if not self.of_objects:
            return {}
        return {
            "objects": self.right_of_objects / self.of_objects,
            "background": self.right_of_background / self.of_background,
        }


def painted_right(
    pictures: Float[np.ndarray, "T H W 3"],
    frames: Float[np.ndarray, "T H W 3"],
    ids: Integer[np.ndarray, "T H W"],
) -> Painted:
    """Count the pixels that are painted right. Id 0 is background; a frame without background or without an object does
    not count."""
    found = Painted()
    for picture, frame, numbers in zip(pictures, frames, ids, strict=True):
        names, places = np.unique(numbers, return_inverse=True)
        if names[0] != 0 or len(names) == 1:
            continue
        places = places.reshape(numbers.shape)
        colours = np.stack([frame[places == place].mean(0) for place in range(len(names))])
        distances = np.square(picture[:, :, None] - colours).sum(-1)  # H W colours
        own = np.take_along_axis(distances, places[..., None], axis=-1)[..., 0]
        right = np.where(places == 0, own < distances[..., 1:].min(-1), own < distances[..., 0])
        behind = places == 0
        found += Painted(int(right[~behind].sum()), int((~behind).sum()), int(right[behind].sum()), int(behind.sum()))
    return found


def check_paints(model: Any) -> None:
    """Refuse a model that cannot reconstruct pictures."""
    if not isinstance(model, ExplainingModel):
        raise BadInput(f"a {type(model).__name__} paints no pictures, so they cannot be scored: leave out --pictures")


@torch.no_grad()
def score_pictures(model: Any, videos: Sequence[Video], slots: int | None = None) -> dict[str, dict[str, float]]:
    """Shares of object pixels and of background pixels painted right, for each kind of reconstruction.

    All frames of all videos count. The only exception is the prior in the first frame of a video, which has seen
    nothing yet.

    Raises:
        BadInput: If the model paints no pictures, or a video has no true ids.
    """
    check_paints(model)
    found = dict.fromkeys(SOURCES, Painted())
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
                found[source] += painted_right(painted[first:], frames[first:] / 255, ids[first:])
    return {source: shares for source, painted in found.items() if (shares := painted.shares())}
