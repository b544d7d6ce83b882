"""Do the pictures that a model paints from its slots show the objects in their places?

In each frame every object has its mean colour, and the background has one. A pixel of an object is painted right if the
painted colour is nearer to the object's than to the background's. A pixel of the background is painted right if it is
nearer to the background's than to that of every object. Both shares are needed: empty background has 0 and 100 %, and
one colour everywhere may have 70 and 8 %.
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

SOURCES = {"posterior": "reconstruction", "prior": "forecast"}
"""What a picture is painted from, and its name in an `Explanation`."""


@dataclass(frozen=True)
class Painted:
    """Numbers of pixels, of objects and of the background: those painted right, and all."""

    right_of_objects: int = 0
    of_objects: int = 0
    right_of_background: int = 0
    of_background: int = 0

    def __add__(self, other: Painted) -> Painted:
        return Painted(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def shares(self) -> dict[str, float]:
        """Of the pixels that are painted right, of objects and of background. Empty where there is no object."""
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
    """Refuse a model without pictures."""
    if not isinstance(model, ExplainingModel):
        raise BadInput(f"a {type(model).__name__} paints no pictures, so they cannot be scored: leave out --pictures")


@torch.no_grad()
def score_pictures(model: Any, videos: Sequence[Video], slots: int | None = None) -> dict[str, dict[str, float]]:
    """Shares of object pixels and of background pixels painted right, by what the picture is painted from.

    All frames of all videos count, but for the first frame of a video and the prior, which has seen nothing yet.

    Raises:
        BadInput: The model paints no pictures, or a video has no true ids.
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
