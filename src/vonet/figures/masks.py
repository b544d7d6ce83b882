"""Contact sheets of masks: for each video its frames, true ids and predicted masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Integer, UInt8
from torch import Tensor

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.figures.matching import matched, paints
from vonet.figures.sheet import write_sheet
from vonet.interface import Clip, device_of, frames_tensor, segment_ids

COLUMNS = 12
LABEL = 18
"""Number of characters of a video's name that are shown, from its end."""
FRAMES = 24
"""Number of frames per video; more frames of a long video would look alike, and their masks would fill the memory."""


@torch.no_grad()
def write_mask_sheet(path: Path, model: Any, videos: Sequence[Video]) -> None:
    """Three rows per video: frames, true ids and masks of about every second frame of its beginning, always from the
    same initial slots. Masks have the colours of the true objects that they match; background is grey."""
    rows, labels = [], []
    for video in videos:
        length = min(len(video), FRAMES)
        frames = resized(video.read(0, length), model.size, "stretch")
        times = np.unique(np.linspace(0, len(frames) - 1, COLUMNS).astype(int))
        state = model.initial_state(1, generator=torch.Generator().manual_seed(0))
        output = model.unroll(Clip(frames_tensor(frames, device_of(model))[None]), state)
        ids = segment_ids(output.log_masks[0], _of_first(output.labels), model.size, output.enlargement, None)
        true_ids = video.read_ids(0, length)
        true_ids = None if true_ids is None else resized_ids(true_ids, model.size, "stretch").astype(np.int64)
        ids = np.unique(ids, return_inverse=True)[1].reshape(ids.shape) + 1  # a model's own labels may be any numbers
        matching = matched(ids, true_ids)
        rows.append(frames[times])
        labels.append(video.name[-LABEL:].lstrip("-_/ "))
        if true_ids is not None:
            rows.append(_painted(matching.true_numbered(true_ids[times])))
            labels.append("true objects")
        rows.append(_painted(matching.numbered(ids)[times]))
        labels.append("masks")
    write_sheet(path, rows, scale=max(1, 96 // model.size[1]), labels=labels)


def _painted(numbers: Integer[np.ndarray, "T H W"]) -> UInt8[np.ndarray, "T H W 3"]:
    return paints(int(numbers.max()))[numbers]


def _of_first(labels: Tensor | None) -> Tensor | None:
    return None if labels is None else labels[0]
