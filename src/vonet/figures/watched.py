"""A model's output for one video, with everything that figures and reports draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.evaluation.run import fresh_state
from vonet.interface import Clip, ExplainingModel, Explanation, Output, device_of, frames_tensor, segment_ids


@dataclass(frozen=True)
class Watched:
    """A video with everything that a model says about it. All arrays have one size. Fields that the model does not
    offer are None.

    Attributes:
        name: Name of the video.
        slots: Number of slots.
        frames: The input.
        true_ids: The true ids, if the video has them.
        ids: The predicted ids: slot k has the id k + 1, and 0 means that no slot is probable enough. For a model with
            its own labels, the k-th label counts as slot k.
        reconstruction: The frames, decoded from the posterior.
        prior_reconstruction: The frames, decoded from the prior.
        divergence: KL divergence of each slot.
    """

    name: str
    slots: int
    frames: UInt8[np.ndarray, "T H W 3"]
    true_ids: Integer[np.ndarray, "T H W"] | None
    ids: Integer[np.ndarray, "T H W"]
    reconstruction: UInt8[np.ndarray, "T H W 3"] | None
    prior_reconstruction: UInt8[np.ndarray, "T H W 3"] | None
    divergence: Float[np.ndarray, "T K"] | None


@torch.no_grad()
def watch(
    model: Any, video: Video, *, longest: int = 48, largest: int = 192, min_probability: float | None = None
) -> Watched:
    """Runs the model on the beginning of a video, with at most `longest` frames and limited picture size, from the
    initial slots that are used for scoring. A video of few pixels is shown at its own size, so its ids here are those
    that were scored."""
    size = _shown_size(video.size, largest)
    frames, inputs, true_ids = _read(video, min(longest, len(video)), size, model.size)
    clip = Clip(frames_tensor(inputs, device_of(model))[None])
    output = model.unroll(clip, fresh_state(model, video))
    if torch.isnan(output.log_masks).any():
        raise BadInput(f"some masks of {video.name} are not finite: the weights may be broken")
    shown = model.explain(output) if isinstance(model, ExplainingModel) else Explanation()
    slots, ids = _segments(output, size, min_probability)
    return Watched(
        name=video.name,
        slots=slots,
        frames=frames,
        true_ids=true_ids,
        ids=ids,
        reconstruction=_pixels(shown.reconstruction, size),
        prior_reconstruction=_pixels(shown.prior_reconstruction, size),
        divergence=None if shown.divergence is None else shown.divergence[0].cpu().numpy(),
    )


def _segments(
    output: Output, size: tuple[int, int], min_probability: float | None
) -> tuple[int, Integer[np.ndarray, "T H W"]]:
    """The number of slots, and the ids that are scored."""
    labels = None if output.labels is None else output.labels[0]
    ids = segment_ids(output.log_masks[0], labels, size, output.enlargement, min_probability)
    if labels is None:
        return output.log_masks.shape[2], ids
    names, places = np.unique(ids, return_inverse=True)
    return len(names), places.reshape(-1, *size) + 1


def _shown_size(size: tuple[int, int], largest: int) -> tuple[int, int]:
    scale = min(1.0, largest / max(size))
    return max(1, round(scale * size[0])), max(1, round(scale * size[1]))


def _read(
    video: Video, length: int, size: tuple[int, int], input_size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Frames for display and as model input, and ids for display, read one by one because the frames of a large video
    would not fit into memory."""
    shown, inputs, ids = [], [], []
    for t in range(length):
        frame, true = video.read(t, t + 1), video.read_ids(t, t + 1)
        shown.append(resized(frame, size, "stretch"))
        inputs.append(resized(frame, input_size, "stretch"))
        if true is not None:
            ids.append(resized_ids(true, size, "stretch"))
    return np.concatenate(shown), np.concatenate(inputs), np.concatenate(ids) if ids else None


def _pixels(pictures: Float[Tensor, "1 T 3 h w"] | None, size: tuple[int, int]) -> UInt8[np.ndarray, "T H W 3"] | None:
    if pictures is None:
        return None
    pixels = (pictures[0].permute(0, 2, 3, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return resized(np.ascontiguousarray(pixels), size, "stretch")
