"""Clips of videos as a torch dataset, for your own training loops. No other file of `data/` imports torch."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.utils.data import Dataset

from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.interface import frames_tensor


class Clips(Dataset[Any]):
    """Segments of consecutive frames as a torch dataset. Only the frames of an item are read.

    Args:
        videos: Videos of one size; those that are too short have no items.
        length: Frames of an item, T.
        step: An item begins at every `step`-th frame.
        ids: Whether an item is a pair of frames and true ids `T H W`, or only the frames `T 3 H W`, floats in [0, 1].

    Raises:
        BadInput: If there is no item, sizes differ, or ids are missing.
    """

    def __init__(self, videos: Sequence[Video], length: int, step: int = 1, ids: bool = False):
        if length < 1 or step < 1:
            raise BadInput(f"length is {length} and step is {step}; both must be 1 or more")
        self.videos, self.length, self.step, self.with_ids = videos, length, step, ids
        counts, sizes = [], {}
        for video in videos:
            counts.append(max(0, (len(video) - length) // step + 1))
            sizes[video.size] = video.name
            if ids and not video.has_ids:
                raise BadInput(f"{video.name} has no true ids: omit ids=True, or choose videos with labels")
        if len(sizes) > 1:
            (size, name), (other, another), *_ = sizes.items()
            raise BadInput(
                f"{name} has frames of {size[0]}x{size[1]} pixels and {another} of {other[0]}x{other[1]}, which do not "
                "go into one batch: make them equal with vonet prepare PATH OUT --size PIXELS"
            )
        self._ends = list(accumulate(counts))
        if not len(self):
            longest = max((len(video) for video in videos), default=0)
            raise BadInput(f"no video has the {length} frames of a segment; the longest has {longest}")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        index %= len(self)
        number = bisect.bisect_right(self._ends, index)
        video = self.videos[number]
        start = self.step * (index - (self._ends[number - 1] if number else 0))
        frames = frames_tensor(video.read(start, start + self.length))
        if not self.with_ids:
            return frames
        ids = video.read_ids(start, start + self.length)
        assert ids is not None, "checked when the videos were opened"
        return frames, torch.from_numpy(ids.astype("int64"))
