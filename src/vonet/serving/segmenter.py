"""Frames in, objects out, one at a time: of a file, a camera or a pipe.

A `Segmenter` holds the state of one stream, so a new video wants a new one; both may share a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from vonet import weights as stored
from vonet.errors import BadInput, check_choice
from vonet.serving.placement import Enlarger, Fit, content_box, placed
from vonet.serving.tracks import Track, Tracks

SURE_ABOVE = 0.3
"""The paper's rule (appendix, "Segmentation mask"), as in `vonet evaluate`."""


@dataclass(frozen=True)
class SegmentedFrame:
    """One frame and its objects. Slot k has the id k + 1; the same id is the same object in all frames of a video."""

    video: str
    number: int  # as in the video, from 0
    seconds: float | None  # after the video's first frame
    pixels: UInt8[np.ndarray, "H W 3"]
    ids: Integer[np.ndarray, "H W"]  # 0 where no slot is sure
    tracks: Sequence[Track]  # the objects seen in this frame
    log_masks: Float[Tensor, "K h w"] = field(repr=False)  # of the picture that the model saw
    _enlarger: Enlarger = field(repr=False)

    @property
    def masks(self) -> Float[np.ndarray, "K H W"]:
        """Soft masks at the frame's size, which sum to one over K. They are made when asked for: K times four times the
        memory of `ids`."""
        return self._enlarger.masks(self.log_masks)


def load_model(weights: Any = None) -> Any:
    """A model from a run's folder, a file or a name; by default the one that comes with the package. A model stays what
    it is."""
    if weights is not None and not isinstance(weights, str | Path):
        return weights
    model, _ = stored.load(stored.default() if weights is None else weights)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


class Segmenter:
    """Call it with one frame after the other.

    weights: a model, or what `load_model` takes.
    slots: how many objects it can tell apart (None: as many as it was trained with).
    fit: how a frame of another shape than the model's pictures is brought into them.
    seed: of the noise from which slots grow. The same frames and seed give the same masks.
    sure_above: a pixel has an id only where a slot has more than this probability.
    video: a name, which the frames carry on.
    """

    def __init__(
        self,
        weights: Any = None,
        *,
        slots: int | None = None,
        fit: str = "stretch",
        seed: int = 0,
        sure_above: float = SURE_ABOVE,
        video: str = "",
    ):
        check_choice("fit", fit, Fit)
        if not 0 < sure_above < 1:
            raise BadInput(f"sure_above is {sure_above}; possible is a probability between 0 and 1")
        self.model = load_model(weights)
        self.tracks = Tracks()
        self._fit = cast(Fit, fit)
        self._sure_above, self._video, self._next = sure_above, video, 0
        self._state = self.model.initial_state(1, slots, generator=torch.Generator().manual_seed(seed))
        self._enlargers: dict[tuple[int, ...], Enlarger] = {}

    @torch.inference_mode()
    def __call__(self, pixels: Any, number: int | None = None, seconds: float | None = None) -> SegmentedFrame:
        """The next frame: bytes, H W 3, in the order red, green, blue. `number` and `seconds` say where it stands, if
        frames were left out or have a time; by default it is the next."""
        _check(pixels)
        number = self._next if number is None else number
        self._next = number + 1
        size = pixels.shape[:2]
        picture = self.model.size
        box = content_box(size, picture, self._fit)
        frame = placed(pixels, picture, box)[None].to(next(self.model.parameters()).device)
        output, self._state = self.model.step(frame, self._state)
        log_masks = output.log_masks[0].cpu()
        if torch.isnan(log_masks).any():
            raise BadInput(f"some masks of frame {number} are not numbers: broken weights?")
        key = (*size, *log_masks.shape[-2:])
        if key not in self._enlargers:  # one at a time: sizes seldom change
            cells = log_masks.shape[-2], log_masks.shape[-1]
            self._enlargers = {key: Enlarger.between(cells, picture, box, size, output.enlargement)}
        enlarger = self._enlargers[key]
        ids = enlarger.ids(log_masks, self._sure_above)
        tracks = self.tracks.add(number, seconds, ids, _confidences(log_masks))
        return SegmentedFrame(self._video, number, seconds, pixels, ids, tracks, log_masks, enlarger)


def _confidences(log_masks: Float[Tensor, "K h w"]) -> Float[np.ndarray, " K"]:
    """The mean probability of each slot over the cells where it is the best; its largest where it is nowhere."""
    masks = log_masks.float().exp().flatten(1)
    best = masks.argmax(dim=0) == torch.arange(len(masks))[:, None]
    mean = (masks * best).sum(dim=1) / best.sum(dim=1).clamp(min=1)
    return torch.where(best.any(dim=1), mean, masks.amax(dim=1)).numpy()


def _check(pixels: Any) -> None:
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        given = f"{pixels.dtype} of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise BadInput(f"a frame is {given}; expected a numpy array of bytes, height x width x 3 (red, green, blue)")
    if 0 in pixels.shape:
        raise BadInput(f"a frame has the shape {pixels.shape}; it must not be empty")
