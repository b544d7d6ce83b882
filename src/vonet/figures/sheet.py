"""Contact sheets: rows of small pictures in one file."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from vonet.writing import written_aside


def colours(count: int) -> UInt8[np.ndarray, "count 3"]:
    """Colours that stay the same for the same number: hues a golden ratio apart."""
    hues = (np.arange(count) * 0.618034) % 1
    bright = [colorsys.hsv_to_rgb(h, 0.65, 0.95 if i % 2 else 0.75) for i, h in enumerate(hues)]
    return np.round(np.array(bright) * 255).astype(np.uint8)


def coloured(ids: Int[np.ndarray, "*any H W"] | UInt8[np.ndarray, "*any H W"]) -> UInt8[np.ndarray, "*any H W 3"]:
    return colours(int(ids.max()) + 1)[ids]


def write_sheet(path: Path, rows: Sequence[UInt8[np.ndarray, "columns H W 3"]], scale: int = 3, gap: int = 2) -> None:
    """All pictures on one sheet, each enlarged `scale` times; written aside and renamed."""
    h, w = rows[0].shape[1:3]
    sheet = np.full(
        (len(rows) * (h * scale + gap) + gap, max(map(len, rows)) * (w * scale + gap) + gap, 3), 255, np.uint8
    )
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            top, left = gap + y * (h * scale + gap), gap + x * (w * scale + gap)
            enlarged = picture.repeat(scale, axis=0).repeat(scale, axis=1)
            sheet[top : top + h * scale, left : left + w * scale] = enlarged
    with written_aside(path) as aside:
        Image.fromarray(sheet).save(aside, format="PNG")
