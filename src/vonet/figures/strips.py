"""The paper's figures of a model's behaviour: masks over time, only the foregrounds, reconstructions, and KLD
curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.figures.matching import BACKGROUND, matched, paints
from vonet.figures.overlays import boundaries, overlaid
from vonet.figures.plots import GAP, WIDTH, plotting, saved, sheet_of, show_sheet
from vonet.figures.watched import Watched

EVERY = 2
"""Every other frame is shown."""
COLUMNS = 12
SIDE = 160
"""Smallest length of a picture's longer side, in pixels: enough for thin lines."""
OPACITY = 0.7
NOTHING = 232
"""Grey level of the parts that are left out."""
RECONSTRUCTIONS, IN_A_ROW = 8, 2


def write_masks(path: Path, runs: Mapping[str, Sequence[Watched]]) -> list[Path]:
    """For each video the input, the true ids, and the masks of each run, as colours with white boundaries. A segment
    has the colour of the true object that it matches, and background is grey."""
    rows, labels = [], []
    for watched in zip(*runs.values(), strict=True):
        times = _times(watched[0])
        rows.append(_enlarged(watched[0].frames[times]))
        labels.append("input")
        if watched[0].true_ids is not None:
            numbers = matched(watched[0].ids, watched[0].true_ids).true_numbered(watched[0].true_ids)
            rows.append(_over(watched[0].frames[times], numbers[times], paints(int(numbers.max()))))
            labels.append("true objects")
        for name, seen in zip(runs, watched, strict=True):
            rows.append(_over(seen.frames[times], seen.ids[times], matched(seen.ids, seen.true_ids).tint()))
            labels.append(name)
    return _write_sheet(path, rows, labels)


def write_foreground(path: Path, runs: Mapping[str, Sequence[Watched]]) -> list[Path]:
    """The masks inside the true objects, with nothing elsewhere. Draws no figure without true ids."""
    rows, labels = [], []
    for watched in zip(*runs.values(), strict=True):
        true_ids = watched[0].true_ids
        if true_ids is None:
            continue
        times = _times(watched[0])
        true = matched(watched[0].ids, true_ids).true_numbered(true_ids)
        shown = {"true objects": (true, paints(int(true.max())))}
        for name, seen in zip(runs, watched, strict=True):
            shown[name] = seen.ids, matched(seen.ids, true_ids).tint()
        for name, (ids, tint) in shown.items():
            rows.append(np.stack([_alone(ids[t], true_ids[t] != 0, tint) for t in times]))
            labels.append(name)
    return _write_sheet(path, rows, labels) if rows else []


def write_reconstructions(path: Path, videos: Sequence[Watched]) -> list[Path]:
    """Random frames beside their reconstructions from the posterior and from the prior. Draws no figure for a model
    without reconstructions."""
    panels = {"input": "frames", "posterior": "reconstruction", "prior": "prior_reconstruction"}
    panels = {name: part for name, part in panels.items() if getattr(videos[0], part) is not None}
    if len(panels) == 1:
        return []
    size = videos[0].frames.shape[1:]
    later = [(v, t) for v in videos for t in range(1, len(v.frames)) if v.frames.shape[1:] == size]
    order = np.random.default_rng(0).permutation(len(later))[
        :RECONSTRUCTIONS
    ]  # no first frame: the prior has seen nothing
    cells = []
    for video, t in (later[i] for i in order):
        cells.append(np.concatenate([_enlarged(getattr(video, part)[t : t + 1]) for part in panels.values()]))
    if not cells:
        return []
    rows = [np.concatenate(cells[i : i + IN_A_ROW]) for i in range(0, len(cells), IN_A_ROW)]
    return _write_sheet(path, rows, [], list(panels) * IN_A_ROW)


def write_divergence(path: Path, videos: Sequence[Watched]) -> list[Path]:
    """The KLD of each slot over time, per dimension, below the frames: a line for each slot in the colour of its mask.
    Draws nothing for a model without a prior."""
    if videos[0].divergence is None:
        return []
    with plotting() as pyplot:
        figure, panels = pyplot.subplots(
            2, len(videos), figsize=(WIDTH, 2.6), height_ratios=(1, 2.4), squeeze=False, layout="constrained"
        )
        for (above, below), video in zip(panels.T, videos, strict=True):
            assert video.divergence is not None
            times = _times(video, columns=6)
            found = matched(video.ids, video.true_ids)
            above.imshow(sheet_of([_over(video.frames[times], video.ids[times], found.tint())]))
            above.axis("off")
            above.set_title(video.name)
            tints = found.tint() / 255
            for slot in range(video.slots):
                number = found.of_slots.get(slot + 1)  # a slot without a pixel has no colour
                label = f"slot {slot + 1}" + {None: " (no pixel)", BACKGROUND: " (background)"}.get(number, "")
                look = {"color": "0.8", "linestyle": ":"} if number is None else {"color": tints[slot + 1]}
                frames = np.arange(1, len(video.frames) + 1)
                below.plot(frames, video.divergence[:, slot], linewidth=1.2, label=label, **look)
            below.set(xlabel="frame", ylim=(0, None))
            below.legend(fontsize=6, ncols=2, handlelength=1.2, columnspacing=1)
        panels[1][0].set_ylabel("KL divergence / D")
        return saved(figure, path)


def _write_sheet(
    path: Path, rows: Sequence[np.ndarray], labels: Sequence[str], titles: Sequence[str] = ()
) -> list[Path]:
    """Draws the rows at the width of a page. Rows of another size belong to another video, so each size gets its own
    sheet."""
    sizes = list(dict.fromkeys(row.shape[1:] for row in rows))
    heights = [sum(row.shape[1] + GAP for row in rows if row.shape[1:] == size) for size in sizes]
    widths = [max(len(row) for row in rows if row.shape[1:] == size) * (size[1] + GAP) for size in sizes]
    inches = [WIDTH * height / width for height, width in zip(heights, widths, strict=True)]
    with plotting() as pyplot:
        figure, panels = pyplot.subplots(
            len(sizes), 1, figsize=(WIDTH, sum(inches)), height_ratios=inches, squeeze=False
        )
        for axes, size in zip(panels[:, 0], sizes, strict=True):
            mine = [i for i, row in enumerate(rows) if row.shape[1:] == size]
            show_sheet(axes, [rows[i] for i in mine], [labels[i] for i in mine] if labels else [], titles)
        return saved(figure, path, dpi=max(200, round(max(widths) / WIDTH)))  # no pixel is lost, so no line is


def _times(video: Watched, columns: int = COLUMNS) -> np.ndarray:
    """Every other frame, or fewer for a long video."""
    times = np.arange(0, len(video.frames), EVERY)
    return times[np.unique(np.linspace(0, len(times) - 1, columns).round().astype(int))]


def _scale(size: tuple[int, ...]) -> int:
    return max(1, -(-SIDE // max(size)))


def _enlarged(pictures: np.ndarray) -> np.ndarray:
    """Frames `T H W` or `T H W 3` with every pixel repeated, so that boundary lines are thin in comparison."""
    scale = _scale(pictures.shape[1:3])
    return pictures.repeat(scale, axis=1).repeat(scale, axis=2)


def _over(
    frames: UInt8[np.ndarray, "T h w 3"], ids: Integer[np.ndarray, "T h w"], tint: UInt8[np.ndarray, "ids 3"]
) -> UInt8[np.ndarray, "T H W 3"]:
    """Colours over grey frames, because the frames' own colours would change them."""
    grey = frames.mean(axis=-1, keepdims=True).astype(np.uint8).repeat(3, axis=-1)
    pairs = zip(_enlarged(grey), _enlarged(ids), strict=True)
    return np.stack([overlaid(frame, number, OPACITY, tint) for frame, number in pairs])


def _alone(
    ids: Integer[np.ndarray, "h w"], shown: np.ndarray, tint: UInt8[np.ndarray, "ids 3"]
) -> UInt8[np.ndarray, "H W 3"]:
    """Ids as colours where `where` is true, with white boundaries between them."""
    large, inside = _enlarged(ids[None])[0], _enlarged(shown[None])[0]
    picture = tint[large]
    picture[boundaries(large)] = 255
    picture[~inside] = NOTHING
    return picture
