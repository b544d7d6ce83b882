"""The sound of a video file, for the overlay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

CODEC = "aac"
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
"""Sample rates that the codec accepts and players support."""

FAR = 10.0
"""Seconds into the file from which seeking is worthwhile."""


class Sound:
    """Encodes the sound of a file, from a given second on, into another file beside its video, as far as the video has
    been written."""

    def __init__(self, path: Path, begin: float, container: Any):
        self.problem: str | None = None
        self._path, self._begin = path, begin
        self._frames = self._decoded()
        self._next = next(self._frames, None)
        self._stream: Any = None
        if self._next is not None:
            rate = self._next[1].sample_rate
            self._stream = container.add_stream(CODEC, rate=rate if rate in RATES else RATES[-1])
            self._stream.layout = "mono" if self._next[1].layout.nb_channels == 1 else "stereo"

    def packets(self, until: float) -> Iterator[Any]:
        """Encoded sound of the seconds up to `until`, counted from the beginning."""
        while self._next is not None and self._next[0] < until:
            yield from self._encoded(self._next[1])
            self._next = None if self.problem else next(self._frames, None)

    def rest(self) -> Iterator[Any]:
        """The packets that the encoder still holds."""
        if self._stream is not None and not self.problem:
            yield from self._encoded(None)

    def _encoded(self, frame: Any) -> list[Any]:
        import av

        try:
            return self._stream.encode(frame)
        except (av.FFmpegError, ValueError):  # such as sound that changes its kind
            self.problem = f"the sound of {self._path} cannot be kept to its end: the overlay has what comes before"
            return []

    def close(self) -> None:
        self._frames.close()

    def _decoded(self) -> Generator[tuple[float, Any], None, None]:
        """Frames of samples, and the time at which each begins. Damage ends the sound, and `problem` describes it."""
        import av

        try:
            with closing(av.open(str(self._path.absolute()), metadata_errors="replace")) as container:
                video: Any = container.streams.video[0]
                first = float(video.start_time * video.time_base) if video.start_time is not None else 0.0
                if self._begin > FAR:
                    container.seek(round((first + self._begin - 1) * av.time_base))
                for frame in container.decode(audio=0):
                    seconds = (frame.time or 0.0) - first - self._begin
                    if seconds >= 0:
                        frame.pts = round(seconds * frame.sample_rate)
                        frame.time_base = Fraction(1, frame.sample_rate)
                        yield seconds, frame
        except (av.FFmpegError, OSError, ValueError):
            self.problem = f"the sound of {self._path} cannot be decoded to its end: the overlay has what comes before"


def has_sound(path: Path) -> bool:
    """Whether a file has sound that FFmpeg reads."""
    import av

    try:
        with closing(av.open(str(path.absolute()), metadata_errors="replace")) as container:
            return bool(container.streams.audio)
    except (av.FFmpegError, OSError, ValueError):
        return False
