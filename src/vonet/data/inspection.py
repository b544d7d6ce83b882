"""What lies under a path: for `vonet inspect`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vonet.data.find import open as open_videos
from vonet.data.store import damaged
from vonet.data.video import Video, Videos
from vonet.data.work import for_each
from vonet.errors import BadInput

LOOKED_AT = 8
"""How many videos are decoded to see their ids, spread over the set, when not all are."""


@dataclass
class Inspection:
    """frames: how many each video has, or the fewest and the most. size: height and width, or the smallest and the
    largest. ids: how many videos have them; most_objects is counted over the videos that were `decoded`."""

    path: str
    layout: str
    videos: int
    splits: dict[str, int]
    frames: int | list[int]
    size: list[int] | list[list[int]]
    ids: int
    decoded: int
    most_objects: int
    largest_id: int
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        splits = ", ".join(f"{name} {count}" for name, count in self.splits.items())
        frames = f"{self.frames} frames" if isinstance(self.frames, int) else "{} to {} frames".format(*self.frames)
        sizes = self.size if isinstance(self.size[0], list) else [self.size]
        lines = [
            f"{self.path}: {self.layout}",
            f"{self.videos} videos ({splits}), {frames} each, " + " to ".join("{}x{}".format(*s) for s in sizes),
        ]
        if self.ids:
            lines.append(
                f"true ids in {'all' if self.ids == self.videos else f'{self.ids} of them'}; up to {self.most_objects} "
                f"objects and ids up to {self.largest_id} in the {self.decoded} looked at"
            )
        else:
            lines.append("no true ids")
        return "\n".join([*lines, *(f"problem: {problem}" for problem in self.problems)])


def inspect(path: Path, full: bool, workers: int = 1) -> tuple[Inspection, Videos]:
    """Lengths and sizes of all videos and the content of some; with `full`, all content and all checksums."""
    videos = open_videos(path)
    problems = list(videos.problems)
    lengths, sizes, with_ids, good = [], [], 0, []
    for video in videos:
        try:
            lengths.append(len(video))
            sizes.append(video.size)
            with_ids += video.has_ids
            good.append(video)
        except BadInput as problem:
            problems.append(str(problem))
    if not good:
        raise BadInput(f"none of the {len(videos)} videos of {path} can be read; the first problem: {problems[0]}")
    chosen = good if full else [good[i] for i in np.unique(np.linspace(0, len(good) - 1, LOOKED_AT).astype(int))]
    found = [_ids(v) for v in chosen] if not full else [r for _, r in for_each(_ids, good, workers, 0, "reading")]
    problems += [result for result in found if isinstance(result, str)]
    if full and videos.layout == "vonet store":
        problems += [p for p in damaged(videos.root, videos) if p not in problems]
    seen = [result for result in found if not isinstance(result, str)]
    return Inspection(
        path=str(path),
        layout=videos.layout,
        videos=len(good),
        splits=Videos(good, videos.layout, videos.root).splits,
        frames=lengths[0] if len(set(lengths)) == 1 else [min(lengths), max(lengths)],
        size=list(sizes[0]) if len(set(sizes)) == 1 else [list(min(sizes)), list(max(sizes))],
        ids=with_ids,
        decoded=len(seen),
        most_objects=max((count for count, _ in seen), default=0),
        largest_id=max((largest for _, largest in seen), default=0),
        problems=problems,
    ), Videos(good, videos.layout, videos.root)


def _ids(video: Video) -> tuple[int, int] | str:
    """How many objects a video has and its largest id, having read all of it; or what is wrong."""
    found: set[int] = set()
    try:
        for _, ids in video.pieces():
            if ids is not None:
                found |= set(np.unique(ids).tolist())
    except BadInput as problem:
        return str(problem)
    return len(found - {0}), max(found, default=0)
