"""Contact sheets of videos: a row each, some frames and beside them their true ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.figures.sheet import coloured, write_sheet

BACKGROUND = 40


def write_video_sheet(path: Path, videos: Sequence[Video], rows: int = 8, columns: int = 6, side: int = 128) -> None:
    """`rows` videos spread over those given, `columns` frames spread over each. Videos that cannot be read are left
    out."""
    made = []
    for number in np.unique(np.linspace(0, len(videos) - 1, rows).astype(int)).tolist():
        try:
            made.append(_row(videos[number], columns, side))
        except BadInput:
            continue
    if made:
        write_sheet(path, made, scale=1)


def _row(video: Video, columns: int, side: int) -> np.ndarray:
    times = np.linspace(0, len(video) - 1, columns).astype(int).tolist()
    pictures = np.concatenate([video.read(t, t + 1) for t in times])
    if video.has_ids:
        ids = np.concatenate([video.read_ids(t, t + 1) for t in times])
        _, compact = np.unique(np.append(ids, 0), return_inverse=True)
        masks = coloured(compact[:-1].reshape(ids.shape))
        masks[ids == 0] = BACKGROUND
        pictures = np.concatenate([pictures, masks])
    return np.stack([_boxed(picture, side) for picture in pictures])


def _boxed(picture: np.ndarray, side: int) -> np.ndarray:
    """Fits a picture into a square of this side; small pictures are enlarged without interpolation."""
    h, w = picture.shape[:2]
    new_h, new_w = max(1, round(side * h / max(h, w))), max(1, round(side * w / max(h, w)))
    how = Image.Resampling.NEAREST if side >= max(h, w) else Image.Resampling.BOX
    sheet = np.full((side, side, 3), 255, np.uint8)
    top, left = (side - new_h) // 2, (side - new_w) // 2
    sheet[top : top + new_h, left : left + new_w] = np.asarray(Image.fromarray(picture).resize((new_w, new_h), how))
    return sheet
