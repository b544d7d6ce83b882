"""Video files of any kind that FFmpeg reads, through PyAV.

The frames of a video are those that decoding from its start gives. So frames are counted by decoding once, on first
access. A range of frames is then decoded from the key frame before it or, where that would give other frames, from the
start. Where decoding fails, the video ends: earlier frames are used, and `damage` describes it. Frames are rotated as
the file says (phones), and scaled to the size of the first if the size changes.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.tree import Tree, split_and_rest
from vonet.data.video import Shown, Video, Videos
from vonet.errors import BadInput

VIDEO_FILES = re.compile(
    r".+\.(mp4|m4v|mov|mkv|webm|avi|mpe?g|m2v|ts|mts|m2ts|wmv|asf|flv|f4v|3gp|ogv|gif|vob|y4m|mxf)", re.IGNORECASE
)


def is_video_file(name: str) -> bool:
    """Whether the file name has the extension of a video file."""
    return VIDEO_FILES.fullmatch(name) is not None


def _no_video(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} {why}; give a video file that FFmpeg reads (such as mp4, mov, mkv, webm or avi)")


def _open(path: Path, limits: Limits = DEFAULT_LIMITS) -> tuple[Any, Any]:
    """Opens the file and returns it with its first video stream, unless its frames are too large. Some files contain
    pictures that are not videos: songs have cover images, and FFmpeg can render text files."""
    import av

    if path.is_fifo():
        raise BadInput(f"{path} is a pipe, but videos are read twice: save it in a file, or use vonet.Segmenter")
    try:
        container = av.open(str(path.absolute()), metadata_errors="replace")
    except (av.FFmpegError, OSError, ValueError):
        is_empty = path.is_file() and path.stat().st_size == 0
        raise _no_video(path, "is empty" if is_empty else "is damaged, cut short or no video") from None
    covers = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & covers]
    if not streams or container.format.name == "tty" or container.format.name.endswith("_pipe"):
        container.close()
        raise _no_video(path, "has no video in it")
    if streams[0].codec_context is None:
        container.close()
        raise _no_video(path, "has a video in a format that cannot be decoded")
    try:
        limits.check_size(streams[0].height or 0, streams[0].width or 0, str(path))
    except BadInput:
        container.close()
        raise
    return container, streams[0]


HONEST = ("matroska,webm", "mov,mp4,m4a,3gp,3g2,mj2", "avi")
"""File formats whose headers state the duration of the video; for others FFmpeg guesses it, sometimes far off."""


def _ends_early(stream: Any, last: Any) -> bool:
    """Whether the last frame ends well before the header's duration: many truncated files give no other sign."""
    seconds = _told_seconds(stream) if stream.container.format.name in HONEST else None
    if seconds is None or last is None or last.time is None:
        return False
    step = 1 / float(stream.average_rate) if stream.average_rate else 0.0
    shown = float((getattr(last, "duration", 0) or 0) * last.time_base)  # older PyAV does not tell
    missing = seconds - (_seconds(stream, last) + max(step, shown))
    return missing > max(0.5, 0.1 * seconds)


def _seconds(stream: Any, frame: Any) -> float:
    """Time at which a frame is shown, in seconds after the beginning of the video."""
    return frame.time - (float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0)


def _told_seconds(stream: Any) -> float | None:
    """Duration of the video stream by its header; None if the header does not state it."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    told = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    return None if told is None else 3600 * int(told[1]) + 60 * int(told[2]) + float(told[3])


@dataclass(frozen=True)
class Index:
    """All frames of a file: their timestamps, the key frames with their checksums, and the damage that ended decoding
    early, if any."""

    times: list[int | None]
    keys: dict[int, int]
    damage: str | None

    @cached_property
    def numbers(self) -> dict[int | None, int]:
        return {time: number for number, time in enumerate(self.times)}

    def key_before(self, number: int) -> int:
        """The last key frame up to this frame; 0 if timestamps are missing or not unique."""
        told_apart = None not in self.numbers and len(self.numbers) == len(self.times)
        return max((key for key in self.keys if key <= number), default=0) if told_apart else 0


def upright_size(frame: Any) -> tuple[int, int]:
    """Height and width of a frame after rotation."""
    turned = frame.rotation % 180 == 90
    return (frame.width, frame.height) if turned else (frame.height, frame.width)


def upright_pixels(frame: Any, size: tuple[int, int]) -> UInt8[np.ndarray, "H W 3"]:
    """The pixels of a frame, scaled to this size and rotated as the file says."""
    quarters = round(frame.rotation / 90)
    height, width = size if quarters % 2 == 0 else size[::-1]
    return np.rot90(frame.to_ndarray(format="rgb24", width=width, height=height), quarters)


class Content:
    """The decoded content of a file. Copies of a video share it, so that its frames are counted only once."""

    def __init__(self, path: Path, limits: Limits):
        self.path, self.limits = path, limits

    def decode(self, time: int | None = None) -> Iterator[Any]:
        """Frames from the start, or from the key frame before a time."""
        import av

        container, stream = _open(self.path, self.limits)
        last = None
        with closing(container):
            try:
                if time is not None:
                    container.seek(time, stream=stream)
                for frame in container.decode(stream):
                    if frame.is_corrupt:
                        raise ValueError
                    yield frame
                    last = frame
                if _ends_early(stream, last):
                    raise ValueError
            except (av.FFmpegError, OSError, ValueError):
                end = "" if last is None or last.time is None else f" after second {_seconds(stream, last):.2f}"
                raise BadInput(f"{self.path} is damaged or cut short: nothing{end} can be decoded") from None

    def decode_sound(self) -> Iterator[Any]:
        """Frames from the start up to the end or the first damage."""
        with suppress(BadInput):
            yield from self.decode()

    def decode_noting(self) -> Iterator[Any]:
        """Like `decode`, but stores the damage, so that a reader that reaches the end need not decode again to learn
        about it."""
        try:
            yield from self.decode()
            self.damage = None
        except BadInput as error:
            self.damage = str(error)

    @cached_property
    def damage(self) -> str | None:
        return self.index.damage

    @cached_property
    def index(self) -> Index:
        times: list[int | None] = []
        keys: dict[int, int] = {}
        damage = None
        try:
            for number, frame in enumerate(self.decode()):
                times.append(frame.pts)
                if frame.key_frame:
                    keys[number] = _checksum(frame)
        except BadInput as error:
            damage = str(error)
        if not times:
            raise _no_video(self.path, "has no frame that can be decoded")
        return Index(times, keys, damage)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the first frame after rotation."""
        for frame in self.decode_sound():
            height, width = upright_size(frame)
            self.limits.check_size(height, width, str(self.path))
            return height, width
        raise _no_video(self.path, "has no frame that can be decoded")

    def pixels(self, frame: Any) -> UInt8[np.ndarray, "H W 3"]:
        """The pixels of a frame, at the video's size and rotated as the file says."""
        return upright_pixels(frame, self.size)

    def read(self, start: int, stop: int) -> list[np.ndarray]:
        """Exactly the frames that decoding the whole file gives at these positions."""
        key = self.index.key_before(start)
        found = self._read_after(key, start, stop) if key else None
        if found is None:
            found = [self.pixels(frame) for frame in islice(self.decode_sound(), start, stop)]
        if len(found) != stop - start:
            raise BadInput(f"frames {start} to {stop} of {self.path} cannot be decoded: did the file change meanwhile?")
        return found

    def _read_after(self, key: int, start: int, stop: int) -> list[np.ndarray] | None:
        """The same, decoded from a key frame on; None if the decoded frames are not the expected ones. Timestamps alone
        do not prove this: after a seek, some formats give frames the timestamps of other frames."""
        index, found, expected = self.index, [], None
        with suppress(BadInput):
            for frame in self.decode(index.times[key]):
                number = index.numbers.get(frame.pts, stop)
                known = index.keys.get(number) if number <= start else None
                if not (known == _checksum(frame) if expected is None else number == expected):
                    return None
                if number >= start:
                    found.append(self.pixels(frame))
                expected = number + 1
                if expected == stop:
                    return found
        return None


def _checksum(frame: Any) -> int:
    return zlib.crc32(bytes(frame.planes[0]))


class FileVideo(Video):
    """A video file, decoded by FFmpeg through PyAV."""

    def __init__(self, name: str, split: str, path: Path, limits: Limits = DEFAULT_LIMITS):
        super().__init__(name, split)
        self.path = path
        self._content = Content(path, limits)

    def __len__(self) -> int:
        return len(self._content.index.times)

    @property
    def size(self) -> tuple[int, int]:
        return self._content.size

    @property
    def has_ids(self) -> bool:
        return False

    @property
    def files(self) -> Sequence[Path]:
        return [self.path]

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return np.stack(self._content.read(start, stop))

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        raise NotImplementedError

    def pieces(self, length: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Decodes the video once from start to end, in pieces of any length."""
        frames = self._content.decode_noting()
        while piece := [self._content.pixels(frame) for frame in islice(frames, self._piece(length))]:
            yield np.stack(piece), None

    def watch(self) -> Iterator[Shown]:
        """Decodes the video once and gives each frame its time, because many videos have no constant frame rate."""
        number, first = -1, None
        for number, frame in enumerate(self._content.decode_noting()):
            first = frame.time if first is None else first
            seconds = None if frame.time is None or first is None else frame.time - first
            yield Shown(number, seconds, partial(self._content.pixels, frame))
        if number < 0:
            raise _no_video(self.path, "has no frame that can be decoded")

    @cached_property
    def _told(self) -> tuple[float | None, int | None]:
        """Frame rate and number of frames according to the file's header."""
        container, stream = _open(self.path, self._content.limits)
        with closing(container):
            rate = float(stream.average_rate) if stream.average_rate else None
            seconds = _told_seconds(stream)
            if seconds is None and container.duration is not None:
                seconds = container.duration / 1e6
            guess = round(rate * seconds) if rate and seconds else None
            return rate, stream.frames or guess

    @property
    def rate(self) -> float | None:
        return self._told[0]

    @property
    def expected_length(self) -> int | None:
        return self._told[1]

    @property
    def damage(self) -> str | None:
        return self._content.damage


def find(tree: Tree) -> Videos | None:
    """Finds every file with the extension of a video; a file that was given directly is tried whatever its
    extension."""
    paths = [path for path in tree.files() if tree.is_file or is_video_file(path.name)]
    videos: list[Video] = []
    problems = []
    names = _names(tree, paths)
    for path in paths:
        try:
            container, _ = _open(path, tree.limits)
            container.close()
            videos.append(FileVideo(*names[path], path, tree.limits))
        except BadInput as error:
            problems.append(str(error))
    return Videos(videos, "video files", tree.root, problems) if paths else None


def _names(tree: Tree, paths: Sequence[Path]) -> dict[Path, tuple[str, str]]:
    """Name and split of each file; the extension becomes part of the name only if two names would otherwise be
    equal."""
    told = {}
    for path in paths:
        split, rest = split_and_rest(tree.below(path.parent))
        told[path] = "/".join((*rest, path.stem)), split or "train"
    count = Counter(told.values())
    return {p: (name + p.suffix if count[name, split] > 1 else name, split) for p, (name, split) in told.items()}
