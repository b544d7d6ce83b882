"""`vonet.segment` for programs, and `vonet segment` as a function: videos in, objects out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from tqdm import tqdm

import vonet.data
from vonet.data.video import Shown, Video
from vonet.data.work import stop_signals
from vonet.errors import BadInput
from vonet.experiments import weights as stored
from vonet.interface import MIN_PROBABILITY
from vonet.serving.outputs import DEFAULT, Source, Writer, chosen
from vonet.serving.segmenter import SegmentedFrame, Segmenter, load_model
from vonet.serving.span import Moment, Span
from vonet.serving.tracks import Row, spoken
from vonet.writing import DiscRefusal, disc_refusals, folder_written_aside

SUMMARY = "segment.json"
"""The file that records how a folder of results was made, and marks it as one."""


@dataclass(frozen=True, kw_only=True)
class SegmentOptions:
    """What is segmented and how; see `vonet segment --help`."""

    slots: int | None = None
    every: int = 1
    start: Moment = 0
    end: Moment | None = None
    fps: float = 12.0
    fit: str = "stretch"
    min_probability: float = MIN_PROBABILITY
    seed: int = 0

    def span(self) -> Span:
        return Span(self.start, self.end, self.every, self.fps)

    def check(self, model: Any) -> None:
        """Says what is wrong before anything is opened."""
        self.span()
        self.segmenter(model, "")

    def segmenter(self, model: Any, video: str) -> Segmenter:
        return Segmenter(
            model, slots=self.slots, fit=self.fit, seed=self.seed, min_probability=self.min_probability, video=video
        )


def segment(
    source: str | Path | Video, weights: Any = None, *, split: str | None = None, **options: Any
) -> Iterator[SegmentedFrame]:
    """One frame after the other, of a video file, a folder of frames, or all videos of a set; `frame.video` says of
    which. Memory does not grow with the length.

    weights: a model, a run's folder, a file or a name; by default `mixture`, which does not learn.
    options: those of `SegmentOptions`.
    """
    given = SegmentOptions(**options)
    model = load_model(weights)
    given.check(model)
    videos: Sequence[Video] = [source] if isinstance(source, Video) else vonet.data.open(source, split)

    def frames() -> Iterator[SegmentedFrame]:
        for i in range(len(videos)):
            segmenter = given.segmenter(model, videos[i].name)
            for shown in given.span().frames(videos[i]):
                yield segmenter(shown.pixels(), shown.number, shown.seconds)

    return frames()


@dataclass(frozen=True)
class Segmented:
    """The result for one video. `problem`: a sentence if something went wrong. Without frames nothing was written."""

    video: str
    folder: Path
    size: tuple[int, int] = (0, 0)
    frames: int = 0
    seconds: float = 0.0
    shares: dict[str, float] | None = None
    tracks: Sequence[Row] = ()
    stopped: bool = False
    problem: str | None = None

    @property
    def frames_per_second(self) -> float:
        return self.frames / max(self.seconds, 1e-9)

    def as_json(self) -> dict[str, Any]:
        told = asdict(self) | {"folder": str(self.folder), "frames_per_second": round(self.frames_per_second, 2)}
        return told | {"seconds": round(self.seconds, 3), "complete": not self.stopped and self.problem is None}

    def table(self) -> str:
        return spoken(self.tracks)

    def __str__(self) -> str:
        height, width = self.size
        where = ", ".join(f"{what} {100 * share:.0f} %" for what, share in (self.shares or {}).items())
        return (
            f"{self.video}: {_counted(self.frames, 'frame')} of {width}x{height} in {self.seconds:.1f} s, "
            f"{self.frames_per_second:.1f} frames per second ({where}); "
            f"{_counted(len(self.tracks), 'object')} in {self.folder}"
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def segment_to_files(
    inputs: Sequence[str | Path],
    out: Path,
    weights: Any = None,
    *,
    split: str | None = None,
    write: Sequence[str] = DEFAULT,
    overwrite: bool = False,
    options: SegmentOptions | None = None,
    say: Callable[[Segmented], None] = lambda done: None,
) -> list[Segmented]:
    """Each video into a folder of its own below `out`, which appears when it is whole. Ctrl-C ends the current video
    where it is; what was written so far is whole too. A video that cannot be read is a problem; the others go on."""
    options = options or SegmentOptions()
    writers = chosen(write)
    model = load_model(weights)
    options.check(model)
    sets = [vonet.data.open(path, split) for path in inputs]
    videos = [videos[i] for videos in sets for i in range(len(videos))]
    for path in inputs:
        if Path(path).is_dir() and out.resolve().is_relative_to(Path(path).resolve()):
            raise BadInput(f"{out} would lie among the videos of {path}: choose an --out outside")
    folders = [out / name for name in _folder_names(videos)]
    for folder in folders:
        _check_free(folder, overwrite)
    about = {"weights": stored.DEFAULT if weights is None else str(weights), **asdict(options)}
    results = [Segmented("", out, problem=problem) for videos in sets for problem in videos.problems]
    for done in results:
        say(done)
    with stop_signals() as stop:
        for video, folder in zip(videos, folders, strict=True):
            try:
                done = _Work(video, folder, model, writers, options, about).done(stop)
            except DiscRefusal:
                raise
            except BadInput as error:
                done = Segmented(video.name, folder, problem=str(error))
            results.append(done)
            say(done)
            if done.stopped:
                break
    return results


class _Work:
    """Streams one video to its writers."""

    def __init__(
        self,
        video: Video,
        folder: Path,
        model: Any,
        writers: dict[str, type[Writer]],
        options: SegmentOptions,
        about: dict[str, Any],
    ):
        self._video, self._folder, self._kinds, self._about = video, folder, writers, about
        self._span = options.span()
        self._segmenter = options.segmenter(model, video.name)
        self._source = Source(video.name, self._span.rate_of(video), options.slots or model.slots)
        self._spent = {"reading": 0.0, "finding objects": 0.0, "writing": 0.0}

    def done(self, stop: dict[str, bool]) -> Segmented:
        begin = time.monotonic()
        with folder_written_aside(self._folder) as aside, ExitStack() as unfinished:
            writers = [kind(aside, self._source) for kind in self._kinds.values()]
            for writer in writers:
                unfinished.callback(writer.abandon)
            size, frames = self._watch(writers, stop)
            stopped = stop["asked"]
            if not frames:  # stopped before there was anything to write
                raise KeyboardInterrupt
            problem = self._video.damage if self._span.saw_the_end else None
            for writer in writers:
                writer.finish(self._segmenter.tracks)
            seconds = time.monotonic() - begin
            self._spent["writing"] += seconds - sum(self._spent.values())
            shares = {what: spent / seconds for what, spent in self._spent.items()}
            rows = self._segmenter.tracks.table()
            done = Segmented(self._video.name, self._folder, size, frames, seconds, shares, rows, stopped, problem)
            told = {"vonet": vonet.__version__, **self._about, **done.as_json()}
            (aside / SUMMARY).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        return done

    def _watch(self, writers: Sequence[Writer], stop: dict[str, bool]) -> tuple[tuple[int, int], int]:
        """The size and the number of frames."""
        size, frames = (0, 0), 0
        wanted = self._span.frames(self._video)
        expected = self._span.expected_length(self._video)
        with tqdm(total=expected, desc=self._video.name, unit="frame", disable=None) as bar:
            while not stop["asked"] and (found := self._next(wanted, writers)) is not None:
                size, frames = found, frames + 1
                bar.update()
        return size, frames

    def _next(self, wanted: Iterator[Shown], writers: Sequence[Writer]) -> tuple[int, int] | None:
        """The size of the next frame, which is forgotten when all is written: large ones should not meet in memory."""
        times = [time.monotonic()]
        shown = next(wanted, None)
        if shown is None:
            return None
        pixels = shown.pixels()
        times.append(time.monotonic())
        frame = self._segmenter(pixels, shown.number, shown.seconds)
        times.append(time.monotonic())
        name = self._video.frame_name(shown.number)
        with disc_refusals(self._folder):
            for writer in writers:
                writer.add(frame, name)
        times.append(time.monotonic())
        for what, begin, end in zip(self._spent, times, times[1:], strict=False):
            self._spent[what] += end - begin
        return frame.ids.shape[0], frame.ids.shape[1]


def _check_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / SUMMARY).is_file():
        raise BadInput(f"{folder} exists and is not a result of vonet segment: choose another --out")
    if not overwrite:
        raise BadInput(f"{folder} holds a result already: add --overwrite, or choose another --out")


def _folder_names(videos: Sequence[Video]) -> list[str]:
    """After the videos, and after their splits where there are several. Names come from files and records and may hold
    anything, also the same thing twice; folders' names may not."""
    by_split = len({video.split for video in videos}) > 1
    names: dict[str, None] = {}
    for video in videos:
        name = _safe(f"{video.split}/{video.name}" if by_split else video.name)
        others = chain([name], (f"{name}-{number}" for number in count(2)))
        names[next(other for other in others if other not in names)] = None
    return list(names)


def _safe(name: str) -> str:
    parts = [part for part in re.split(r"[/\\]", name) if part.strip(". ")]
    return re.sub(r'[\x00-\x1f<>:"|?*]', "_", "-".join(parts))[-70:] or "video"
