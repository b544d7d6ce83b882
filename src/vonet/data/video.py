"""`Video`, whatever its layout on disk, and `Videos`, a set of them.

A `Video` decodes on access: all frames (`frames`, `ids`), a range (`read`, `read_ids`), or in bounded memory piece by
piece (`pieces`) or frame by frame (`watch`). `Videos` is a sequence. Each access to an item makes a new `Video`, so
decoded frames are freed with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.errors import BadInput

PIECE_BYTES = 64 << 20


@dataclass(frozen=True)
class Shown:
    """A frame of a stream: its number, its time in seconds after the first (None if unknown), and its pixels, decoded
    on access."""

    number: int
    seconds: float | None
    pixels: Callable[[], UInt8[np.ndarray, "H W 3"]]


class Video(ABC):
    """Frames, perhaps the true ids of their pixels, and a name.

    Ids are integers, 0 is the background, and an id is the same object in all frames. Damage raises `BadInput` with a
    sentence that names the file.
    """

    can_be_read_again = True
    """False for sources that can be read only once, such as a camera."""

    def __init__(self, name: str, split: str = "train"):
        self.name = name.encode("utf-8", "replace").decode()  # names of files may hold anything
        self.split = split

    @abstractmethod
    def __len__(self) -> int:
        """How many frames it has."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Height and width."""

    @property
    @abstractmethod
    def has_ids(self) -> bool:
        """Whether the video has true ids."""

    @abstractmethod
    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]: ...

    @abstractmethod
    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        """Called only if the video has ids."""

    @property
    def files(self) -> Sequence[Path]:
        """The files that the video is read from."""
        return ()

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Other annotations; which ones depends on the layout."""
        return {}

    def read(self, start: int = 0, stop: int | None = None) -> UInt8[np.ndarray, "T H W 3"]:
        """Frames `start` to `stop`, decoding no others.

        Args:
            start: Number of the first frame, from 0.
            stop: Number of the first frame that is not read; None: to the end.

        Returns:
            Bytes, `T H W 3`.

        Raises:
            BadInput: If the video does not have these frames, or the file is damaged.
        """
        return self._read(*self._range(start, stop))

    def read_ids(self, start: int = 0, stop: int | None = None) -> Integer[np.ndarray, "T H W"] | None:
        """The true ids of frames `start` to `stop`, `T H W`; None if the video has none."""
        return self._read_ids(*self._range(start, stop)) if self.has_ids else None

    @cached_property
    def frames(self) -> UInt8[np.ndarray, "T H W 3"]:
        """All frames, `T H W 3`; they are kept after the first access."""
        return self.read()

    @cached_property
    def ids(self) -> Integer[np.ndarray, "T H W"] | None:
        """All true ids, `T H W`, or None; they are kept after the first access."""
        return self.read_ids()

    def pieces(self, length: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Iterates over the whole video in pieces of frames and ids: `length` frames each, or as many as fit into about
        64 MB."""
        length = self._piece(length)
        for start in range(0, len(self), length):
            stop = min(start + length, len(self))
            yield self.read(start, stop), self.read_ids(start, stop)

    def watch(self) -> Iterator[Shown]:
        """Iterates over the frames from the first to the last; ids are not read."""
        length = self._piece(None)
        for start in range(0, len(self), length):
            frames = self.read(start, min(start + length, len(self)))
            for number, frame in enumerate(frames, start):
                yield Shown(number, number / self.rate if self.rate else None, partial(np.asarray, frame))

    @property
    def rate(self) -> float | None:
        """Frames per second; None if unknown."""
        return None

    @property
    def expected_length(self) -> int | None:
        """Number of frames by the header, without decoding; None if the header does not state it."""
        return len(self)

    def frame_name(self, number: int) -> str:
        """A file name for a picture that belongs to this frame."""
        return f"{number:05d}"

    def frame_file(self, number: int) -> str:
        """The file that holds only this frame or, for a video file, its name with the frame's number: clip.mp4#5."""
        holder = self.files[0].name if self.files else self.name
        return f"{holder}#{number}"

    @property
    def folder(self) -> Path | None:
        """The folder of `frame_file`; None if the video has no files."""
        return self.files[0].parent if self.files else None

    @property
    def damage(self) -> str | None:
        """A sentence about damage in a video that is usable up to there; None without damage."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        """Decoded frames are not sent to other processes (pickled)."""
        kinds = (vars(kind) for kind in type(self).__mro__)
        decoded = {name for kind in kinds for name, part in kind.items() if isinstance(part, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in decoded}

    def __copy__(self) -> Video:
        fresh = object.__new__(type(self))
        vars(fresh).update(Video.__getstate__(self))
        return fresh

    def _piece(self, length: int | None) -> int:
        h, w = self.size
        return length or max(1, min(32, PIECE_BYTES // (3 * h * w)))

    def _range(self, start: int, stop: int | None) -> tuple[int, int]:
        stop = len(self) if stop is None else stop
        if not 0 <= start < stop <= len(self):
            raise BadInput(f"frames {start} to {stop} of {self.name} were asked for; it has {len(self)}")
        return start, stop

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, split={self.split!r})"


class ArrayVideo(Video):
    """A video in memory.

    Args:
        name: Its name in tables and messages.
        frames: Bytes, `T H W 3`.
        ids: True ids, `T H W`; 0 is the background.
        split: "train", "validation" or another name.
    """

    def __init__(
        self,
        name: str,
        frames: UInt8[np.ndarray, "T H W 3"],
        ids: Integer[np.ndarray, "T H W"] | None = None,
        split: str = "train",
    ):
        super().__init__(name, split)
        self._frames, self._ids = frames, ids

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> tuple[int, int]:
        return self._frames.shape[1:3]

    @property
    def has_ids(self) -> bool:
        return self._ids is not None

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return self._frames[start:stop]

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        assert self._ids is not None
        return self._ids[start:stop]


class Videos(Sequence[Video]):
    """A set of videos: its format on disk (`layout`), its path (`root`), the problems found when it was opened
    (`problems`, one sentence each), and the vonet command and options that made it, if known (`made_by`)."""

    def __init__(
        self,
        videos: Sequence[Video],
        layout: str,
        root: Path,
        problems: Sequence[str] = (),
        made_by: Mapping[str, Any] | None = None,
    ):
        self._videos = list(videos)
        self.layout = layout
        self.root = root
        self.problems = list(problems)
        self.made_by: Mapping[str, Any] = made_by or {}

    def __len__(self) -> int:
        return len(self._videos)

    @overload
    def __getitem__(self, index: int) -> Video: ...
    @overload
    def __getitem__(self, index: slice) -> Videos: ...
    def __getitem__(self, index: int | slice) -> Video | Videos:
        if isinstance(index, slice):
            return Videos(self._videos[index], self.layout, self.root, self.problems, self.made_by)
        return copy(self._videos[index])

    @property
    def splits(self) -> dict[str, int]:
        """The splits with their numbers of videos."""
        return dict(Counter(video.split for video in self._videos))

    def in_split(self, split: str | None) -> Videos:
        """The videos of one split; all for None."""
        if split is None:
            return self
        chosen = [video for video in self._videos if video.split == split]
        if not chosen:
            have = ", ".join(f"{name!r} ({count} videos)" for name, count in self.splits.items()) or "none"
            raise BadInput(f"{self.root} has no split {split!r}; it has {have}")
        return Videos(chosen, self.layout, self.root, self.problems, self.made_by)

    def __repr__(self) -> str:
        return f"<{len(self)} videos, {self.layout}, {self.root}>"
