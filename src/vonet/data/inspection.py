"""`vonet inspect` as a function: statistics of the videos under a path."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vonet.data.find import open as open_videos
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.store import STORE, damaged
from vonet.data.video import Video, Videos
from vonet.data.work import check_workers, for_each
from vonet.errors import BadInput

LOOKED_AT = 8
"""Number of videos that are decoded for their ids, spread over the set, unless all are."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of the true ids over all frames of the videos that were read. An object's area is its share of the
    picture in a frame where it is visible; the 10th, 50th and 90th percentiles are given."""

    videos: int
    foreground: float
    objects_per_frame: float
    most_objects: int
    largest_id: int
    areas: tuple[float, float, float]

    def __str__(self) -> str:
        small, middle, large = (f"{100 * area:.2f}" for area in self.areas)
        return (
            f"in the {self.videos} looked at: up to {self.most_objects} objects, ids up to {self.largest_id}, "
            f"{self.objects_per_frame:.1f} objects per frame, {100 * self.foreground:.1f} % of the pixels; "
            f"an object covers {middle} % of the picture (a tenth {small} % or less, a tenth {large} % or more)"
        )


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found out about a set of videos.

    Attributes:
        path: Where the videos are.
        layout: The recognised layout.
        videos: Number of videos that can be read.
        splits: Number of videos in each split.
        frames: Number of frames, or the smallest and the largest number.
        size: Height and width, or the smallest and the largest.
        ids: Number of videos with true ids.
        statistics: Statistics of the true ids; None if no video that was decoded has any.
        problems: Damage and omissions, one sentence each.
    """

    path: str
    layout: str
    videos: int
    splits: dict[str, int]
    frames: int | list[int]
    size: list[int] | list[list[int]]
    ids: int
    statistics: Statistics | None
    problems: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        splits = ", ".join(f"{name} {count}" for name, count in self.splits.items())
        frames = f"{self.frames} frames" if isinstance(self.frames, int) else "{} to {} frames".format(*self.frames)
        sizes = self.size if isinstance(self.size[0], list) else [self.size]
        lines = [
            f"{self.path}: {self.layout}",
            f"{self.videos} video{'' if self.videos == 1 else 's'} ({splits}), {frames} each, "
            + " to ".join("{}x{}".format(*s) for s in sizes),
            f"true ids in {'all' if self.ids == self.videos else self.ids or 'none'}",
        ]
        if self.statistics is not None:
            lines.append(str(self.statistics))
        return "\n".join([*lines, *(f"problem: {problem}" for problem in self.problems)])


def inspect(path: Path, full: bool, workers: int = 1, limits: Limits = DEFAULT_LIMITS) -> tuple[Inspection, Videos]:
    """Inspect the lengths and sizes of all videos, and the content of some.

    Args:
        path: A video file, a folder of frames, or a set of videos of any layout.
        full: Decode all videos and check all checksums, not only eight videos.
        workers: Number of processes for `full`.
        limits: Videos and pictures beyond these limits of memory are skipped.

    Returns:
        What was found, and the videos that can be read.

    Raises:
        BadInput: If no video can be read.
    """
    check_workers(workers)
    videos = open_videos(path, limits=limits)
    problems = list(videos.problems)
    lengths, sizes, good, with_ids = [], [], [], 0
    for video in videos:
        try:
            length, size, ids, damage = len(video), video.size, video.has_ids, video.damage
        except BadInput as problem:
            problems.append(str(problem))
        else:
            problems += [damage] if damage else []
            lengths.append(length)
            sizes.append(size)
            with_ids += ids
            good.append(copy(video))  # without what it has decoded
    if not good:
        raise BadInput(f"none of the {len(videos)} videos of {path} can be read; the first problem: {problems[0]}")
    spread = np.unique(np.linspace(0, len(good) - 1, LOOKED_AT).astype(int))
    looks = (
        [look for _, look in for_each(_look, good, workers, 0, "reading")]
        if full
        else [_look(good[number]) for number in spread]
    )
    broken = [look for look in looks if isinstance(look, str)]
    problems += broken
    if full and videos.layout == STORE:
        problems += [problem for problem in damaged(videos.root, videos) if problem not in problems]
    found = Inspection(
        path=str(path),
        layout=videos.layout,
        videos=len(good) - len(broken),
        splits=Videos(good, videos.layout, videos.root).splits,
        frames=lengths[0] if len(set(lengths)) == 1 else [min(lengths), max(lengths)],
        size=list(sizes[0]) if len(set(sizes)) == 1 else [list(min(sizes)), list(max(sizes))],
        ids=with_ids,
        statistics=_statistics([look for look in looks if look is not None and not isinstance(look, str)]),
        problems=problems,
    )
    return found, Videos(good, videos.layout, videos.root)


def _look(video: Video) -> tuple[set[int], list[np.ndarray]] | str | None:
    """Reads a whole video. Returns its ids with the area shares of its objects in each frame (None without ids), or
    what is wrong."""
    numbers: set[int] = set()
    areas = []
    try:
        for _, ids in copy(video).pieces():
            for frame in [] if ids is None else ids:
                found, counts = np.unique(frame, return_counts=True)
                numbers |= set(found.tolist())
                areas.append(counts[found > 0] / frame.size)
    except BadInput as problem:
        return str(problem)
    return (numbers - {0}, areas) if areas else None


def _statistics(looks: Sequence[tuple[set[int], list[np.ndarray]]]) -> Statistics | None:
    if not looks:
        return None
    frames = [frame for _, areas in looks for frame in areas]
    areas = np.concatenate(frames)
    small, middle, large = np.quantile(areas, [0.1, 0.5, 0.9]).tolist() if len(areas) else (0.0, 0.0, 0.0)
    return Statistics(
        videos=len(looks),
        foreground=float(np.mean([frame.sum() for frame in frames])),
        objects_per_frame=float(np.mean([len(frame) for frame in frames])),
        most_objects=max(len(numbers) for numbers, _ in looks),
        largest_id=max(max(numbers, default=0) for numbers, _ in looks),
        areas=(small, middle, large),
    )
