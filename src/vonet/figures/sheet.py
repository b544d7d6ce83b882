"""Contact sheets: rows of small pictures in one file."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageDraw, ImageFont

from vonet.writing import written_aside

PALETTE = (
    *("d62728", "1f77b4", "2ca02c", "ff7f0e", "9467bd", "17becf", "e377c2", "bcbd22"),
    *("6814f8", "f82cec", "8c5c14", "14ec14", "14ecb0", "f8988c", "1450e0", "ec1474"),
)
"""Colours that are easy to distinguish on screen and in print, none of them grey: at least 27 units of CIELAB between
any two."""
GREY = 150
"""Grey level of the background."""


def colours(count: int) -> UInt8[np.ndarray, "count 3"]:
    """Colours that stay the same for the same number: first those of the palette, then hues a golden ratio apart."""
    first = [tuple(bytes.fromhex(code)) for code in PALETTE[:count]]
    hues = [number * 0.618034 % 1 for number in range(count - len(first))]
    more = [colorsys.hsv_to_rgb(h, 0.65, 0.95 if i % 2 else 0.75) for i, h in enumerate(hues)]
    return np.array([*first, *(tuple(round(255 * part) for part in one) for one in more)], np.uint8).reshape(count, 3)


LETTERS = 14
"""Height of labels, in pixels."""


def coloured(ids: Int[np.ndarray, "*any H W"] | UInt8[np.ndarray, "*any H W"]) -> UInt8[np.ndarray, "*any H W 3"]:
    """Ids as colours, bytes; id 0 is the first colour."""
    return colours(int(ids.max()) + 1)[ids]


def write_sheet(
    path: Path,
    rows: Sequence[UInt8[np.ndarray, "columns H W 3"]],
    scale: int = 3,
    gap: int = 2,
    labels: Sequence[str] = (),
) -> None:
    """All pictures on one sheet, each enlarged `scale` times, with the names of the rows on the left; the file is
    replaced atomically."""
    h, w = rows[0].shape[1:3]
    font = ImageFont.load_default(LETTERS)
    margin = max((round(font.getlength(label)) + 2 * LETTERS // 3 for label in labels), default=0)
    size = (len(rows) * (h * scale + gap) + gap, margin + max(map(len, rows)) * (w * scale + gap) + gap)
    sheet = np.full((*size, 3), 255, np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            top, left = gap + y * (h * scale + gap), margin + gap + x * (w * scale + gap)
            enlarged = picture.repeat(scale, axis=0).repeat(scale, axis=1)
            sheet[top : top + h * scale, left : left + w * scale] = enlarged
    image = Image.fromarray(sheet)
    for y, label in enumerate(labels):
        middle = gap + y * (h * scale + gap) + h * scale // 2
        ImageDraw.Draw(image).text((margin - LETTERS // 3, middle), label, "black", font, anchor="rm")
    with written_aside(path) as aside:
        image.save(aside, format="PNG")
