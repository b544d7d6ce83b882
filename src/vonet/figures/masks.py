"""Contact sheets of masks: for each video its frames, true ids and predicted masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.figures.sheet import coloured, write_sheet
from vonet.figures.videos import BACKGROUND
from vonet.interface import Clip, device_of, frames_tensor, segment_ids

COLUMNS = 12
FRAMES = 24
"""Of each video: a sheet of long ones would be all alike, and their masks fill the memory."""


@torch.no_grad()
def write_mask_sheet(path: Path, model: Any, videos: Sequence[Video]) -> None:
    """Three rows for the beginning of each video, every second frame or so, from the same initial slots each time."""
    rows = []
    for video in videos:
        length = min(len(video), FRAMES)
        frames = resized(video.read(0, length), model.size, "stretch")
        times = np.unique(np.linspace(0, len(frames) - 1, COLUMNS).astype(int))
        state = model.initial_state(1, generator=torch.Generator().manual_seed(0))
        output = model.unroll(Clip(frames_tensor(frames, device_of(model))[None]), state)
        ids = segment_ids(output.log_masks[0], _of_first(output.labels), model.size, output.enlargement, None)
        rows.append(frames[times])
        true_ids = video.read_ids(0, length)
        if true_ids is not None:
            shown = resized_ids(true_ids, model.size, "stretch")[times]
            true = coloured(shown.astype(np.int64))
            true[shown == 0] = BACKGROUND
            rows.append(true)
        rows.append(coloured(ids[times]))
    write_sheet(path, rows, scale=max(1, 96 // model.size[1]))


def _of_first(labels: Tensor | None) -> Tensor | None:
    return None if labels is None else labels[0]
