"""Streaming segmentation, frame by frame: of a file, a camera or a pipe.

A `Segmenter` holds the state of one stream. Create a new one for each video; they may share a model.
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

from vonet.data.known import known_input
from vonet.data.resize import DEFAULT_FIT, Fit, fitting
from vonet.errors import BadInput, check_choice
from vonet.experiments import weights as stored
from vonet.interface import MIN_PROBABILITY, NULL, StreamingModel, device_of
from vonet.serving.placement import Enlarger, labels_of_frame, placed
from vonet.serving.tracks import Track, Tracks, without


@dataclass(frozen=True)
class SegmentedFrame:
    """One frame and its segments.

    Slot k has the id k + 1, unless the model has its own labels (SCALOR). The same id is the same object in all frames
    of a video.
    """

    video: str
    number: int  # as in the video, from 0
    seconds: float | None  # after the video's first frame
    pixels: UInt8[np.ndarray, "H W 3"]
    ids: Integer[np.ndarray, "H W"]  # 0 where no slot is probable enough
    tracks: Sequence[Track]  # the segments seen in this frame
    background: frozenset[int]  # the ids that are background, as far as the frames up to this one tell
    log_masks: Float[Tensor, "K h w"] = field(repr=False)  # of the picture that the model saw
    _enlarger: Enlarger = field(repr=False)

    @property
    def objects(self) -> Integer[np.ndarray, "H W"]:
        """The ids of objects: `ids` with 0 for background."""
        return without(self.ids, self.background)

    @property
    def masks(self) -> Float[np.ndarray, "K H W"]:
        """Soft masks at the frame's size, which sum to one over K. They are computed on access and take K times four
        times the memory of `ids`."""
        return self._enlarger.masks(self.log_masks)


def load_model(weights: Any = None) -> Any:
    """A model from a run's folder, a file or a name; by default `mixture`, which has no parameters. A model is returned
    as it is."""
    if weights is not None and not isinstance(weights, str | Path):
        return weights
    model, _ = stored.load(stored.DEFAULT if weights is None else weights)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


class Segmenter:
    """Follows the objects of one stream: call it with one frame after the other.

    Args:
        weights: A model, or what `vonet.load` takes; by default `mixture`.
        slots: Largest number of objects; None: the model's own.
        fit: For frames of another shape than the model's: "stretch" distorts them, "crop" sees only their middle,
            "letterbox" adds grey bars; None: as the model was trained.
        seed: Seed of the initial slots' noise. The same frames and seed give the same masks.
        min_probability: Pixels whose best slot has at most this probability get id 0.
        video: A name, copied to every frame.

    Raises:
        BadInput: If an option is not accepted, or the model needs whole clips.
    """

    def __init__(
        self,
        weights: Any = None,
        *,
        slots: int | None = None,
        fit: str | None = None,
        seed: int = 0,
        min_probability: float = MIN_PROBABILITY,
        video: str = "",
    ):
        if not 0 < min_probability < 1:
            raise BadInput(f"min_probability is {min_probability}; it must be a probability between 0 and 1")
        self.model = load_model(weights)
        if not isinstance(self.model, StreamingModel):
            raise BadInput(
                f"{type(self.model).__name__} needs whole clips and cannot follow a video frame by frame: segment with "
                "another method, or score it with vonet evaluate"
            )
        self.tracks = Tracks()
        check_choice("fit", fit or DEFAULT_FIT, Fit)
        self.fit: Fit = cast(Fit, fit) if fit else known_input(self.model).fit
        self._min_probability, self._video, self._next = min_probability, video, 0
        self._state = self.model.initial_state(1, slots, generator=torch.Generator().manual_seed(seed))
        self._enlargers: dict[tuple[int, ...], Enlarger] = {}
        self._label_ids: dict[int, int] = {}

    @torch.inference_mode()
    def __call__(self, pixels: Any, number: int | None = None, seconds: float | None = None) -> SegmentedFrame:
        """Segment the next frame.

        Args:
            pixels: Bytes, `H W 3`, in the order red, green, blue; any size.
            number: Number of the frame, if frames are left out; by default the next number.
            seconds: Its time after the first frame, if it has one.

        Returns:
            Ids, masks and tracks of the frame.

        Raises:
            BadInput: If the pixels are not such an array, or the masks are not finite.
        """
        _check(pixels)
        number = self._next if number is None else number
        self._next = number + 1
        size = pixels.shape[:2]
        picture = self.model.size
        frame = placed(pixels, picture, self.fit)[None].to(device_of(self.model))
        output, self._state = self.model.step(frame, self._state)
        log_masks = output.log_masks[0].cpu()
        if torch.isnan(log_masks).any():
            raise BadInput(f"some masks of frame {number} are not finite: the weights may be broken")
        key = (*size, *log_masks.shape[-2:])
        if key not in self._enlargers:  # one at a time: sizes seldom change
            cells = log_masks.shape[-2], log_masks.shape[-1]
            how = fitting(size, picture, self.fit)
            self._enlargers = {key: Enlarger.between(cells, how, output.enlargement)}
        enlarger = self._enlargers[key]
        if output.labels is None:
            ids, confidences = enlarger.ids(log_masks, self._min_probability), _confidences(log_masks)
        else:  # the model has a rule of its own for who holds a pixel, which gives ids and no probabilities
            ids = np.full(size, NULL, np.uint16)
            ids[enlarger.fitting.seen] = self._numbered(labels_of_frame(output.labels[0], enlarger.fitting))
            confidences = np.ones(len(self._label_ids), np.float32)
        tracks = self.tracks.add(number, seconds, ids, confidences, enlarger.fitting.seen)
        background = self.tracks.background()
        return SegmentedFrame(self._video, number, seconds, pixels, ids, tracks, background, log_masks, enlarger)

    def _numbered(self, labels: Integer[np.ndarray, "H W"]) -> Integer[np.ndarray, "H W"]:
        """Maps a model's own labels to ids from 1 on, in the order of their appearance, because labels may skip
        numbers."""
        found, places = np.unique(labels, return_inverse=True)
        for label in found.tolist():
            self._label_ids.setdefault(label, len(self._label_ids) + 1)
        ids = np.array([self._label_ids[label] for label in found.tolist()], np.uint16)
        return ids[places.reshape(labels.shape)]


def _confidences(log_masks: Float[Tensor, "K h w"]) -> Float[np.ndarray, " K"]:
    """The mean probability of each slot over the cells where it is the best; for a slot that is best nowhere, its
    largest probability."""
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
