"""From any layout to the store that training reads, resized."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vonet.data.find import open as open_videos
from vonet.data.resize import Fit, resized, resized_ids
from vonet.data.store import Store, write_video
from vonet.data.video import Video
from vonet.data.work import for_each
from vonet.errors import BadInput, check_choice
from vonet.writing import DiscRefusal


@dataclass(frozen=True)
class PrepareConfig:
    """size: height and width; None keeps each video's own. fit: what to do when the shape differs, cut off what is too
    much on both sides, or distort. every: keep only every so many frames."""

    size: tuple[int, int] | None = None
    fit: Fit = "crop"
    every: int = 1

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, Fit)
        if self.size is not None and min(self.size) < 1:
            raise BadInput(f"frames of size {self.size} were asked for; at least 1 pixel is needed each way")
        if self.every < 1:
            raise BadInput(f"every {self.every}th frame was asked for; possible are 1 (all frames) and above")


@dataclass(frozen=True)
class _Job:
    video: Video
    config: PrepareConfig
    about: Mapping[str, Any]
    path: Path


def prepare(path: Path | str, out: Path, config: PrepareConfig, workers: int) -> list[str]:
    """Makes the store, and gives a sentence for each thing that could not be read; the rest is prepared all the same.
    Interrupted and started again it goes on."""
    videos = open_videos(path)
    made_by = {
        "command": "prepare",
        "layout": videos.layout,
        "videos": _fingerprint(videos),
        "size": config.size,
        "fit": config.fit,
        "every": config.every,
    }
    with Store(out, made_by) as store:
        numbers: dict[str, int] = {}
        wanted: list[tuple[Video, tuple[str, int]]] = []
        for video in videos:
            number = numbers.setdefault(video.split, 0)
            wanted.append((video, (video.split, number)))
            numbers[video.split] += 1
        entries = {place: entry for _, place in wanted if (entry := store.entry(*place)) is not None}
        jobs = {
            store.path(*place): (place, _Job(video, config, _about(video, store.made_by), store.path(*place)))
            for video, place in wanted
            if place not in entries
        }
        problems = list(videos.problems)
        results = for_each(_prepare, [job for _, job in jobs.values()], workers, len(entries), "preparing")
        for job, problem in results:
            place = jobs[job.path][0]
            if (entry := store.entry(*place)) is not None:
                entries[place] = entry
            problems += [problem] if problem else []
        if not entries:
            raise BadInput(f"none of the {len(wanted)} videos of {path} can be read; the first problem: {problems[0]}")
        store.finish([entries[place] for _, place in wanted if place in entries])
    return problems


def _fingerprint(videos: Any) -> str:
    """Changes when videos come, go or are renamed."""
    names = "\n".join(f"{video.split}/{video.name}" for video in videos)
    return f"{len(videos)} {hashlib.sha256(names.encode()).hexdigest()[:16]}"


def _about(video: Video, made_by: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": video.name, "split": video.split, "made_by": made_by}


def _prepare(job: _Job) -> str | None:
    """Writes one video; says why if it cannot be read, or not to its end."""
    try:
        write_video(job.path, _pieces(job.video, job.config), job.about)
    except DiscRefusal:
        raise
    except BadInput as problem:
        return str(problem)
    return job.video.damage


def _pieces(video: Video, config: PrepareConfig) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    begin = 0
    for frames, ids in video.pieces():
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
