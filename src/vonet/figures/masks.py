"""What a model sees in videos: for each, the frames, the true ids and the masks it finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vonet.data.resize import resized, resized_ids
from vonet.data.video import Video
from vonet.figures.sheet import coloured, write_sheet
from vonet.figures.videos import BACKGROUND
from vonet.interface import Clip

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
        pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)[None].float() / 255
        device = next(model.parameters()).device
        state = model.initial_state(1, generator=torch.Generator().manual_seed(0))
        output = model.unroll(Clip(pixels.to(device)), state)
        segments = output.masks.argmax(dim=2) if output.labels is None else output.labels
        rows.append(frames[times])
        true_ids = video.read_ids(0, length)
        if true_ids is not None:
            ids = resized_ids(true_ids, model.size, "stretch")[times]
            true = coloured(ids.astype(np.int64))
            true[ids == 0] = BACKGROUND
            rows.append(true)
        rows.append(coloured(segments[0].cpu().numpy()[times]))
    write_sheet(path, rows, scale=max(1, 96 // model.size[1]))
