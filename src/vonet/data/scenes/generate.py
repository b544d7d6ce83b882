"""Whole sets of generated videos, in a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mujoco

from vonet.data.scenes.video import SPLITS, VERSION, WorldConfig, generate_video
from vonet.data.store import Store, write_video
from vonet.data.video import ArrayVideo
from vonet.data.work import check_workers, for_each
from vonet.errors import BadInput


@dataclass(frozen=True)
class _Job:
    config: WorldConfig
    made_by: Mapping[str, Any]
    split: str
    index: int
    path: Path


def generate(config: WorldConfig, counts: Mapping[str, int], out: Path, workers: int) -> None:
    """A store with so many videos per split. What is there already is kept, so it goes on where it was interrupted, and
    a larger number makes a finished store grow."""
    check_workers(workers)
    for split, count in counts.items():
        if split not in SPLITS or count < 0:
            raise BadInput(f"{count} videos of split {split!r} were asked for; splits are {', '.join(SPLITS)}")
    if not sum(counts.values()):
        raise BadInput("no videos were asked for: give at least one of --train, --validation and --test")
    made_by = {"command": "generate", "generator": VERSION, "mujoco": mujoco.__version__, **asdict(config)}
    with Store(out, made_by) as store:
        wanted = [(split, index) for split in SPLITS for index in range(counts.get(split, 0))]
        store.refuse_to_shrink(wanted)
        entries = {job: entry for job in wanted if (entry := store.entry(*job)) is not None}
        jobs = [_Job(config, store.made_by, *job, store.path(*job)) for job in wanted if job not in entries]
        for job, _ in for_each(_make, jobs, workers, len(entries), f"world {config.level}"):
            entry = store.entry(job.split, job.index)
            assert entry is not None, f"{job.path} was written and is not whole"
            entries[job.split, job.index] = entry
        store.finish([entries[job] for job in wanted])


def preview(config: WorldConfig, count: int) -> list[ArrayVideo]:
    """A few training videos, in memory."""
    made = [generate_video(config, "train", index) for index in range(count)]
    return [ArrayVideo(video.about["name"], video.frames, video.ids) for video in made]


def _make(job: _Job) -> None:
    video = generate_video(job.config, job.split, job.index)
    about = {**video.about, "made_by": job.made_by}
    write_video(job.path, [(video.frames, video.ids)], about, video.arrays)
