"""Writes whole sets of generated videos to a store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from vonet.data.store import Store, write_video
from vonet.data.video import ArrayVideo
from vonet.data.work import check_workers, for_each
from vonet.errors import BadInput

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class GeneratedVideo:
    """One generated video with its ground truth.

    Attributes:
        frames: The pictures, bytes.
        ids: The object of each pixel; 0 is the background.
        about: Metadata with at least the `name`.
        arrays: Further ground truth, such as true positions.
    """

    frames: UInt8[np.ndarray, "T H W 3"]
    ids: UInt8[np.ndarray, "T H W"]
    about: dict[str, Any]
    arrays: dict[str, np.ndarray]


@runtime_checkable
class World(Protocol):
    """The description of a generated world. The same description, split and index give the same video."""

    @property
    def name(self) -> str:
        """The name in the progress bar."""

    @property
    def made_by(self) -> dict[str, Any]:
        """All options that determine the videos, as JSON; stored with the videos."""

    def video(self, split: str, index: int) -> GeneratedVideo: ...


@dataclass(frozen=True)
class _Job:
    world: World
    made_by: Mapping[str, Any]
    split: str
    index: int
    path: Path


def generate(world: World, counts: Mapping[str, int], out: Path, workers: int) -> None:
    """Generate a store with the given number of videos per split.

    Existing videos are kept: an interrupted call continues when it is repeated, and a larger number extends a finished
    store.

    Args:
        world: Description of the videos, such as `WorldConfig("A")`.
        counts: Number of videos by split (`train`, `validation`, `test`).
        out: Folder of the store.
        workers: Number of processes. The videos do not depend on it.

    Raises:
        BadInput: If no videos are asked for, a split is unknown, or the folder has a store of other options or more
            videos.
    """
    check_workers(workers)
    for split, count in counts.items():
        if split not in SPLITS or count < 0:
            raise BadInput(f"{count} videos of split {split!r} were asked for; splits are {', '.join(SPLITS)}")
    if not sum(counts.values()):
        raise BadInput("no videos were asked for: give at least one of --train, --validation and --test")
    with Store(out, world.made_by) as store:
        wanted = [(split, index) for split in SPLITS for index in range(counts.get(split, 0))]
        store.refuse_to_shrink(wanted)
        entries = {job: entry for job in wanted if (entry := store.entry(*job)) is not None}
        jobs = [_Job(world, store.made_by, *job, store.path(*job)) for job in wanted if job not in entries]
        with closing(for_each(_make, jobs, workers, len(entries), f"world {world.name}")) as made:
            for job, _ in made:
                entry = store.entry(job.split, job.index)
                assert entry is not None, f"{job.path} was written and is not whole"
                entries[job.split, job.index] = entry
        store.finish([entries[job] for job in wanted])


def preview(world: World, count: int) -> list[ArrayVideo]:
    """A few training videos, generated in memory."""
    made = [world.video("train", index) for index in range(count)]
    return [ArrayVideo(video.about["name"], video.frames, video.ids) for video in made]


def _make(job: _Job) -> None:
    video = job.world.video(job.split, job.index)
    about = {**video.about, "made_by": job.made_by}
    write_video(job.path, [(video.frames, video.ids)], about, video.arrays)
