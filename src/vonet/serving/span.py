"""The selected frames of a video: start, end and step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vonet.data.video import Shown, Video
from vonet.errors import BadInput

Moment = int | str
"""A frame's number from 0 ("250"), or a time after the first frame: seconds ("4.5s") or a clock ("1:30", "1:02:03")."""


@dataclass(frozen=True)
class _Point:
    frame: int | None = None
    second: float | None = None

    def is_reached(self, number: int, seconds: float) -> bool:
        return number >= self.frame if self.frame is not None else seconds >= (self.second or 0.0)


def _point(option: str, moment: Moment) -> _Point:
    text = str(moment).strip()
    if re.fullmatch(r"\d{1,18}", text):
        return _Point(frame=int(text))
    if told := re.fullmatch(r"(\d+(?:\.\d*)?)s", text):
        return _Point(second=float(told[1]))
    if told := re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9}):(\d+(?:\.\d*)?)", text):
        return _Point(second=3600 * int(told[1] or 0) + 60 * int(told[2]) + float(told[3]))
    raise BadInput(f"{option} is {text!r}; give a frame (250), seconds (4.5s) or a clock time (1:30)")


class Span:
    """The frames of videos that are processed.

    Args:
        start: The first frame, as a number or a time.
        end: The frame after the last one; None: to the end.
        every: Process only every N-th frame.
        rate: Frames per second of inputs without timestamps.

    Attributes:
        saw_the_end: Whether the last video was read to its end.
    """

    def __init__(self, start: Moment = 0, end: Moment | None = None, every: int = 1, rate: float = 12.0):
        self._start = _point("start", start)
        self._end = None if end is None else _point("end", end)
        self._every, self._rate = every, rate
        self.saw_the_end = False
        if every < 1:
            raise BadInput(f"every is {every}; it must be 1 (all frames) or more")
        if not rate > 0:
            raise BadInput(f"{rate} frames per second were asked for; it must be more than 0")
        for empty in ("frame", "second"):
            begin, stop = getattr(self._start, empty), getattr(self._end, empty, None)
            if begin is not None and stop is not None and begin >= stop:
                raise BadInput(f"from {start} to {end} there is no frame: the end must come after the start")

    def frames(self, video: Video) -> Iterator[Shown]:
        """The selected frames, each with a time. Frames in between are decoded, because others depend on them, but not
        converted to pixels."""
        first, length = None, 0
        for shown in video.watch():
            length += 1
            seconds = shown.number / self.rate_of(video) if shown.seconds is None else shown.seconds
            if self._end is not None and self._end.is_reached(shown.number, seconds):
                break
            if not self._start.is_reached(shown.number, seconds):
                continue
            first = shown.number if first is None else first
            if (shown.number - first) % self._every == 0:
                yield Shown(shown.number, seconds, shown.pixels)
        else:
            self.saw_the_end = True
        if first is None and not self.saw_the_end:
            raise BadInput(f"no frame of {video.name} lies between the start and the end that were asked for")
        if first is None:
            raise BadInput(f"{video.name} ends before the start that was asked for: it has {length} frames")

    def rate_of(self, video: Video) -> float:
        return video.rate or self._rate

    def expected_length(self, video: Video) -> int | None:
        """Expected number of frames, if it is known."""
        length = video.expected_length
        if length is None:
            return None
        begin, end = (self._frame(point, video) for point in (self._start, self._end))
        return -(-max(0, min(length, length if end is None else end) - (begin or 0)) // self._every)

    def _frame(self, point: _Point | None, video: Video) -> int | None:
        if point is None or point.frame is not None:
            return None if point is None else point.frame
        return round((point.second or 0.0) * self.rate_of(video))
