"""`vonet prepare` as a function: videos of any layout to a store, resized."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vonet.data.colour import is_grey
from vonet.data.find import open as open_videos
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.resize import (
    DEFAULT_FIT,
    LEAST_SEEN,
    MOST_DISTORTED,
    Fit,
    distortion,
    fitting,
    resized,
    resized_ids,
)
from vonet.data.store import Store, write_video
from vonet.data.video import Video
from vonet.data.work import check_workers, for_each
from vonet.errors import BadInput, check_choice
from vonet.writing import DiscRefusal

NAMED = 5
"""Largest number of videos that a note names."""
GREY_VIDEO = "have no colours, which weights that are trained on colours hardly know"


@dataclass(frozen=True)
class PrepareConfig:
    """How videos are converted.

    Attributes:
        size: Height and width in pixels; None keeps each video's own.
        fit: How frames of another shape are resized (`resize.Fit`).
        every: Keep only every N-th frame.
    """

    size: tuple[int, int] | None = None
    fit: Fit = DEFAULT_FIT
    every: int = 1

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, Fit)
        if self.size is not None and min(self.size) < 1:
            raise BadInput(f"frames of size {self.size} were asked for; at least 1 pixel is needed each way")
        if self.every < 1:
            raise BadInput(f"every is {self.every}; it must be 1 (all frames) or more")


@dataclass(frozen=True)
class _Job:
    video: Video
    config: PrepareConfig
    made_by: Mapping[str, Any]
    place: tuple[str, int]
    source: str
    path: Path


@dataclass(frozen=True)
class Prepared:
    """What `prepare` has to report.

    Attributes:
        problems: One sentence for each video that could not be read.
        notes: Videos that differ from what models are usually trained on, one sentence for each kind of difference.
    """

    problems: list[str]
    notes: list[str]


def prepare(
    path: Path | str, out: Path, config: PrepareConfig, workers: int, limits: Limits = DEFAULT_LIMITS
) -> Prepared:
    """Convert videos to a store, which training reads. Videos that cannot be read are reported and skipped.

    An interrupted call continues when it is repeated. Later calls add new and changed videos and drop those that are
    gone.

    Args:
        path: A video file, a folder of frames, or a set of videos of any layout.
        out: Folder of the store. It must not lie inside `path`.
        config: Size, fit and every N-th frame.
        workers: Number of processes. The result does not depend on it.
        limits: Videos and pictures beyond these limits of memory are skipped.

    Returns:
        The problems and remarks.

    Raises:
        BadInput: If no video can be read, `out` lies inside `path`, or the store was made with other options.
    """
    check_workers(workers)
    if out.resolve().is_relative_to(Path(path).resolve()):
        raise BadInput(f"{out} lies inside {path}, so it would be read as a part of it: choose a place outside")
    videos = open_videos(path, limits=limits)
    made_by = {"command": "prepare", "size": config.size, "fit": config.fit, "every": config.every}
    problems = list(videos.problems)
    odd: dict[str, list[str]] = defaultdict(list)
    with Store(out, made_by) as store:
        numbers: Counter[str] = Counter()
        jobs: list[_Job] = []
        for video in videos:
            place = video.split, numbers[video.split]
            numbers[video.split] += 1
            jobs.append(_Job(copy(video), config, store.made_by, place, _source(video), store.path(*place)))
        entries = {job.place: entry for job in jobs if (entry := store.entry(*job.place, job.source)) is not None}
        left = [replace(job, path=store.free_path(*job.place)) for job in jobs if job.place not in entries]
        with closing(for_each(_prepare, left, workers, len(entries), "preparing")) as made:
            for job, (problem, oddities) in made:
                if (entry := store.entry(*job.place, job.source)) is not None:
                    entries[job.place] = entry
                problems += [problem] if problem else []
                for oddity in oddities:
                    odd[oddity].append(job.video.name)
        if not entries:
            raise BadInput(f"none of the {len(jobs)} videos of {path} can be read; the first problem: {problems[0]}")
        store.finish([entries[job.place] for job in jobs if job.place in entries])
    if len(odd.get(GREY_VIDEO, ())) == len(entries):
        odd.pop(GREY_VIDEO, None)  # weights that are trained on these know grey videos
    return Prepared(problems, [_note(names, oddity, len(jobs)) for oddity, names in odd.items()])


def _note(names: Sequence[str], oddity: str, among: int) -> str:
    named = ", ".join(sorted(names)[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return f"{len(names)} of {among} videos {oddity}: {named}"


def _source(video: Video) -> str:
    """A hash that changes when the video or its files change."""
    marks = [f"{video.split}/{video.name}"]
    for file in video.files:
        found = file.stat() if file.exists() else None
        marks.append(f"{file.name} {found.st_size} {found.st_mtime_ns}" if found else file.name)
    return hashlib.sha256("\n".join(marks).encode("utf-8", "replace")).hexdigest()[:16]


def _prepare(job: _Job) -> tuple[str | None, list[str]]:
    """Write one video. Returns a sentence if the video cannot be read to its end, and a list of its unusual
    properties."""
    video = copy(job.video)
    oddities: list[str] = []
    about = {"name": video.name, "split": video.split, "made_by": job.made_by, "source": job.source}
    try:
        write_video(job.path, _pieces(video, job.config, oddities), about)
    except DiscRefusal:
        raise
    except BadInput as problem:
        return str(problem), []
    return video.damage, oddities


def _oddities(frames: np.ndarray, config: PrepareConfig) -> list[str]:
    """Unusual properties of a video, from its first frames."""
    found = [GREY_VIDEO] if is_grey(frames) else []
    if config.size is None:
        return found
    (h, w), (H, W) = frames.shape[1:3], config.size
    if h < H and w < W:
        found.append(f"are smaller than {W}x{H} pixels and were enlarged")
    if config.fit == "stretch" and distortion((h, w), (H, W)) > MOST_DISTORTED:
        found.append(f"have quite another shape than {W}x{H} pixels and were distorted (--fit crop or letterbox)")
    if fitting((h, w), (H, W), config.fit).seen_share < LEAST_SEEN:
        found.append("lost more than half of the frame by cropping (--fit stretch or letterbox)")
    return found


def _pieces(video: Video, config: PrepareConfig, oddities: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    begin = 0
    for frames, ids in video.pieces():
        if not begin:
            oddities += _oddities(frames, config)
        kept = slice(-begin % config.every, None, config.every)
        begin += len(frames)
        frames, ids = frames[kept], None if ids is None else ids[kept]
        if not len(frames):
            continue
        if config.size is None:
            yield frames, ids
        else:
            small_ids = None if ids is None else resized_ids(ids, config.size, config.fit)
            yield resized(frames, config.size, config.fit), small_ids
