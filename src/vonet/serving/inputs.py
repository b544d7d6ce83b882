"""Inputs of `vonet segment` besides files and folders: a camera (`camera:0`), or a URL that FFmpeg opens.

Nothing touches the network unless a URL is given.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from jaxtyping import Integer, UInt8

import vonet.data
from vonet.data.files import upright_pixels, upright_size
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.video import Shown, Video
from vonet.errors import BadInput

CAMERA = "camera:"
SECONDS_TO_OPEN, SECONDS_TO_READ = 20.0, 20.0
"""Seconds after which a stream without frames is given up."""


@dataclass(frozen=True)
class Place:
    """What FFmpeg opens.

    Attributes:
        spoken: The address without passwords, for messages.
        address: The address.
        kind: FFmpeg's input format of the camera; None: a URL.
    """

    spoken: str
    address: str
    kind: str | None = None


def open_input(
    given: str | Path, split: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[list[Video], list[str]]:
    """The videos of an input, and one sentence for each that cannot be read."""
    place = live_place(str(given))
    if place is not None:
        return [LiveVideo(place, limits)], []
    videos = vonet.data.open(given, split, limits)
    return [videos[i] for i in range(len(videos))], videos.problems


def live_place(given: str, system: str = sys.platform) -> Place | None:
    """The camera or URL that the text names; None for a path."""
    if given.startswith(CAMERA) and not os.path.exists(given):
        return _camera(given, given.removeprefix(CAMERA), system)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", given):
        try:
            parts = urlsplit(given)
        except ValueError:
            raise BadInput(f"{given!r} is not a URL; give one such as https://example.org/clip.mp4") from None
        host = parts.netloc.rpartition("@")[2]
        return Place(f"{parts.scheme}://{host}{parts.path}", given)
    return None


def _camera(given: str, device: str, system: str) -> Place:
    number = re.fullmatch(r"\d+", device)
    if system.startswith("linux") and device:
        return Place(given, f"/dev/video{device}" if number else device, "v4l2")
    if system == "darwin" and device:
        return Place(given, device, "avfoundation")
    if system == "win32" and device and not number:
        return Place(given, f"video={device}", "dshow")
    accepted = "the camera's name (camera:Integrated Camera)" if system == "win32" else "a number (camera:0)"
    raise BadInput(f"{given!r} names no camera; expected {accepted}")


class LiveVideo(Video):
    """Frames in the order of arrival, of unknown length; they can be read only once."""

    can_be_read_again = False

    def __init__(self, place: Place, limits: Limits = DEFAULT_LIMITS):
        super().__init__(_name(place))
        self.place, self._limits = place, limits
        self._damage: str | None = None

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        import av

        place = self.place
        try:
            container = av.open(place.address, format=place.kind, timeout=(SECONDS_TO_OPEN, SECONDS_TO_READ))
        except (av.FFmpegError, OSError, ValueError) as error:
            what = "is there such a camera, and may you use it?" if place.kind else "is the address right?"
            raise BadInput(f"{place.spoken} cannot be opened ({self._why(error)}): {what}") from None
        if not container.streams.video:
            container.close()
            raise BadInput(f"{place.spoken} has no video in it; give a video or a picture that FFmpeg reads")
        return container, container.streams.video[0]

    def watch(self) -> Iterator[Shown]:
        import av

        container, stream = self._opened
        size, first, seconds = None, None, None
        with closing(container):
            try:
                for number, frame in enumerate(container.decode(stream)):
                    size = upright_size(frame) if size is None else size
                    self._limits.check_size(*size, self.place.spoken)
                    first = frame.time if first is None else first
                    seconds = None if frame.time is None or first is None else frame.time - first
                    yield Shown(number, seconds, partial(upright_pixels, frame, size))
            except BadInput:
                raise
            except (av.FFmpegError, OSError, ValueError) as error:
                after = "" if seconds is None else f" after second {seconds:.2f}"
                self._damage = f"{self.place.spoken} broke off{after} ({self._why(error)})"
        if size is None:
            raise BadInput(self._damage or f"{self.place.spoken} gave no frame that can be decoded")

    def _why(self, error: Exception) -> str:
        """FFmpeg's message without the address, which may contain a password."""
        return getattr(error, "strerror", None) or str(error).replace(self.place.address, self.place.spoken)

    @property
    def has_sound(self) -> bool:
        return bool(self._opened[0].streams.audio)

    @property
    def rate(self) -> float | None:
        rate = self._opened[1].average_rate
        return float(rate) if rate else None

    @property
    def expected_length(self) -> int | None:
        return None

    @property
    def damage(self) -> str | None:
        return self._damage

    def frame_file(self, number: int) -> str:
        return f"{self.place.spoken}#{number}"

    @property
    def has_ids(self) -> bool:
        return False

    def __len__(self) -> int:
        raise self._passes_by()

    @property
    def size(self) -> tuple[int, int]:
        raise self._passes_by()

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        raise self._passes_by()

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        raise self._passes_by()

    def _passes_by(self) -> BadInput:
        return BadInput(f"{self.place.spoken} can only be read frame by frame: save it in a file first")


def _name(place: Place) -> str:
    if place.kind is not None:
        return place.spoken.replace(":", "-").replace("/", "-")
    parts = urlsplit(place.spoken)
    return PurePosixPath(parts.path).stem or parts.hostname or "stream"
