"""Writes a run as one HTML file that needs neither server nor network: scores, curves, and videos to play.

The page consists of the files in `page/`: report.html, with style, scripts and all data (as JSON) inserted. Pictures
are sheets of all frames of a video (WebP). Ids are deflated bytes, which the page decodes and colours.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8
from PIL import Image

from vonet.evaluation import metrics
from vonet.evaluation.protocol import COUNTS, LESS_IS_BETTER, SCORES, score
from vonet.evaluation.timeline import FRAGMENTED, timelines
from vonet.figures.matching import BACKGROUND, matched, paints
from vonet.figures.watched import Watched
from vonet.writing import written_aside

SCRIPTS = ("dom.js", "charts.js", "scores.js", "timeline.js", "viewer.js", "report.js")
FACTS_OF_THE_DATA = ("slots_used", "true_stability")
"""Properties of the data, for which neither more nor less is better."""
LOSSLESS_PIXELS = 150_000
CURVE_POINTS = 300


@dataclass(frozen=True)
class Method:
    """One column of the table of scores.

    Attributes:
        name: What the table calls the method.
        kind: model, offline, trivial, ceiling or paper.
        scores: The scores by name.
        std: Their standard deviations, if there are several seeds.
        note: A remark on the scores.
    """

    name: str
    kind: str
    scores: Mapping[str, float]
    std: Mapping[str, float | None] | None = None
    note: str = ""


@dataclass(frozen=True)
class Contents:
    """Everything that a page shows.

    Attributes:
        title: Name of the experiment.
        summary: A sentence about it.
        verdict: Verdict of the evaluation, if there is one.
        facts: Names and values, as text.
        methods: Columns of the table of scores.
        log: Entries of the run's log.
        videos: The videos to play.
        protocol: Name of the rules by which they were scored.
    """

    title: str
    summary: str
    verdict: str
    facts: Mapping[str, str]
    methods: Sequence[Method]
    log: Sequence[Mapping[str, Any]]
    videos: Sequence[Watched]
    protocol: str = "vonet"


def write_page(path: Path, contents: Contents) -> None:
    """Write the report as one HTML file that loads nothing."""
    data = json.dumps(_data(contents), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {
        "TITLE": html.escape(contents.title),
        "STYLE": _file("report.css"),
        "DATA": data,
        "SCRIPT": "\n".join(_file(name) for name in SCRIPTS),
    }
    text = re.sub(rf"/\*({'|'.join(parts)})\*/", lambda place: parts[place[1]], _file("report.html"))
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def _file(name: str) -> str:
    return resources.files("vonet.figures").joinpath("page", name).read_text(encoding="utf-8")


def _data(contents: Contents) -> dict[str, Any]:
    return {
        "title": contents.title,
        "summary": contents.summary,
        "verdict": contents.verdict,
        "facts": dict(contents.facts),
        "scores": _scores(contents.methods),
        "curves": _curves(contents.log),
        "videos": [_video(watched, contents.protocol) for watched in contents.videos],
        "fragmented": FRAGMENTED,
    }


def _scores(methods: Sequence[Method]) -> dict[str, Any]:
    names = [name for name in SCORES if any(name in method.scores for method in methods)]
    better = {name: "less" if name in LESS_IS_BETTER else "" if name in FACTS_OF_THE_DATA else "more" for name in names}
    return {
        "names": [
            {"key": name, "label": SCORES[name], "count": name in COUNTS, "better": better[name]} for name in names
        ],
        "methods": [
            {"name": m.name, "kind": m.kind, "note": m.note, "scores": dict(m.scores), "std": dict(m.std or {})}
            for m in methods
        ],
    }


# ---- curves --------------------------------------------------------------------------------------------------------


def _curves(log: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[list[float]]]]:
    """Points (update, value) of every loss and score, few enough to draw."""
    found: dict[str, dict[str, list[list[float]]]] = {"losses": {}, "scores": {}}
    for entry in log:
        for group, curves in found.items():
            for name, value in entry.get(group, {}).items():
                if math.isfinite(value):
                    curves.setdefault(name, []).append([float(entry["update"]), float(value)])
    return {group: {name: _thinned(points) for name, points in curves.items()} for group, curves in found.items()}


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """Averages neighbouring points until there are few enough."""
    each = math.ceil(len(points) / CURVE_POINTS)
    groups = [np.mean(points[start : start + each], axis=0) for start in range(0, len(points), each)]
    return [[float(round(update)), float(f"{value:.5g}")] for update, value in groups]


# ---- videos --------------------------------------------------------------------------------------------------------


def _video(watched: Watched, protocol: str) -> dict[str, Any]:
    length, height, width = watched.frames.shape[:3]
    sheets = {
        "input": watched.frames,
        "reconstruction": watched.reconstruction,
        "prior_reconstruction": watched.prior_reconstruction,
    }
    found = {
        "name": watched.name,
        "frames": length,
        "height": height,
        "width": width,
        "slots": watched.slots,
        "colours": _hex(slot_colours(watched)),
        "columns": _columns(length),
        "sheets": {name: _sheet(frames) for name, frames in sheets.items() if frames is not None},
        "ids": _deflated(watched.ids),
        "divergence": None if watched.divergence is None else _rounded(watched.divergence.T),
    }
    if watched.true_ids is None:
        return found
    names, numbers = np.unique(np.append(watched.true_ids, metrics.BACKGROUND), return_inverse=True)
    numbers = numbers[:-1].reshape(watched.true_ids.shape)
    lines = timelines(numbers, watched.ids)
    scores = score(watched.true_ids, watched.ids, protocol)
    return {
        **found,
        "trueIds": _deflated(numbers),
        "trueColours": _hex(_true_colours(watched, names[names != metrics.BACKGROUND])),
        "scores": {name: float(f"{value:.5g}") for name, value in scores.items()},
        "objects": [
            {
                "number": line.object_id,
                "name": str(names[line.object_id]),
                "holders": line.holders.tolist(),
                "fragments": _rounded(line.fragments),
                "switches": line.switches,
                "fragmented": line.fragmented,
            }
            for line in lines
        ],
    }


def slot_colours(watched: Watched) -> UInt8[np.ndarray, "slots 3"]:
    """The colour of each slot: that of the true object that it matches, grey for background, otherwise its own."""
    found = matched(watched.ids, watched.true_ids)
    following = count(1 + max(BACKGROUND, *found.of_slots.values(), *found.of_objects.values()))
    numbers = [found.of_slots[k] if k in found.of_slots else next(following) for k in range(1, watched.slots + 1)]
    return paints(max(numbers, default=0))[numbers]


def _true_colours(watched: Watched, names: Integer[np.ndarray, " objects"]) -> UInt8[np.ndarray, "objects 3"]:
    numbers = matched(watched.ids, watched.true_ids).true_numbered(names)
    return paints(int(numbers.max(initial=0)))[numbers]


def _columns(length: int) -> int:
    return math.ceil(math.sqrt(length))


def _sheet(frames: UInt8[np.ndarray, "T H W 3"]) -> str:
    """All frames in one picture, row by row, as a data URL; lossless if the frames are small."""
    length, height, width = frames.shape[:3]
    columns = _columns(length)
    sheet = np.zeros((math.ceil(length / columns) * height, columns * width, 3), np.uint8)
    for t, frame in enumerate(frames):
        top, left = t // columns * height, t % columns * width
        sheet[top : top + height, left : left + width] = frame
    written = io.BytesIO()
    exact = length * height * width <= LOSSLESS_PIXELS
    Image.fromarray(sheet).save(written, format="WEBP", method=6, lossless=exact, quality=90)
    return "data:image/webp;base64," + base64.b64encode(written.getvalue()).decode()


def _deflated(ids: Integer[np.ndarray, "T H W"]) -> str:
    """Ids as compressed bytes, one per pixel."""
    return base64.b64encode(zlib.compress(np.minimum(ids, 255).astype(np.uint8).tobytes(), 9)).decode()


def _rounded(values: np.ndarray) -> Any:
    """Numbers rounded to four digits; NaN and infinities, which JSON lacks, are replaced."""
    values = np.nan_to_num(values)
    return [_rounded(row) for row in values] if values.ndim > 1 else [float(f"{value:.4g}") for value in values]


def _hex(palette: UInt8[np.ndarray, "n 3"]) -> list[str]:
    return ["#" + bytes(colour).hex() for colour in palette]
