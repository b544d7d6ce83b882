"""Figures for papers in one style, each as PDF and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vonet.evaluation import protocol
from vonet.evaluation.report import HEADLINES
from vonet.writing import written_aside

SCORES = {name: protocol.SCORES[name] for name in HEADLINES}
"""The scores that are drawn, and what they are called."""

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters, which publishers ask for
}
WIDTH = 7.0
"""Width of a page's text, in inches."""
GAP = 3
"""Pixels between the pictures of a sheet."""


@contextmanager
def plotting() -> Iterator[Any]:
    """Matplotlib without a display; figures are closed afterwards."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(STYLE):
        yield pyplot
        pyplot.close("all")


def saved(figure: Any, path: Path, dpi: int = 200) -> list[Path]:
    """Saves the figure as PDF and PNG. The PDF contains no timestamp, so the same data give the same file."""
    paths = []
    for ending, options in ((".pdf", {"metadata": {"CreationDate": None}}), (".png", {"dpi": dpi})):
        paths.append(path.with_name(path.name + ending))
        with written_aside(paths[-1]) as aside:
            figure.savefig(aside, format=ending[1:], bbox_inches="tight", **options)
    return paths


def sheet_of(rows: Sequence[UInt8[np.ndarray, "_ H W 3"]]) -> UInt8[np.ndarray, "height width 3"]:
    """A grid of pictures of one size, with white gaps."""
    _, h, w, _ = rows[0].shape
    columns = max(map(len, rows))
    sheet = np.full((len(rows) * (h + GAP) - GAP, columns * (w + GAP) - GAP, 3), 255, np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            top, left = y * (h + GAP), x * (w + GAP)
            sheet[top : top + h, left : left + w] = picture
    return sheet


def show_sheet(axes: Any, rows: Sequence[np.ndarray], labels: Sequence[str], titles: Sequence[str] = ()) -> None:
    """Draws a sheet into axes, with row names on the left and column names above."""
    _, h, w, _ = rows[0].shape
    axes.imshow(sheet_of(rows), interpolation="none")  # a PDF then has every pixel of it
    axes.axis("off")
    for y, label in enumerate(labels):
        axes.text(-2 * GAP, y * (h + GAP) + h / 2, label, ha="right", va="center")
    for x, title in enumerate(titles):
        axes.text(x * (w + GAP) + w / 2, -2 * GAP, title, ha="center", va="bottom")
