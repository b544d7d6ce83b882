"""`vonet.segment` for programs, and `vonet segment` as a function: videos in, objects out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import vonet
from vonet.data.files import FileVideo
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.video import Shown, Video
from vonet.data.work import stop_signals
from vonet.errors import BadInput
from vonet.experiments import weights as stored
from vonet.interface import MIN_PROBABILITY
from vonet.serving.inputs import LiveVideo, open_input
from vonet.serving.known import outside
from vonet.serving.objects import ObjectRule, Reason, RuleScore, Truth
from vonet.serving.outputs import DEFAULT, Overlay, Source, Writer, chosen
from vonet.serving.recording import Recording
from vonet.serving.segmenter import SegmentedFrame, Segmenter, load_model
from vonet.serving.sound import has_sound
from vonet.serving.span import Moment, Span
from vonet.serving.spool import FoundFrame, Spool
from vonet.serving.tracks import Row, spoken
from vonet.writing import DiscRefusal, disc_refusals, folder_written_aside

SUMMARY = "segment.json"
"""The file that records how a folder of results was made, and marks it as one."""


@dataclass(frozen=True, kw_only=True)
class SegmentOptions:
    """Input and model options of `vonet segment`.

    Attributes:
        slots: Largest number of objects; None: as in training.
        every: Use only every N-th frame.
        start: First frame (250), seconds ("4.5s") or clock ("1:30").
        end: The first frame that is not used, in the same forms; None: to the end.
        fps: Frames per second of inputs without timestamps.
        fit: "stretch", "crop" or "letterbox" for frames of another shape than the model's; None: as in training.
        min_probability: Pixels whose best slot has at most this probability get id 0.
        seed: Seed of the slots' noise.
    """

    slots: int | None = None
    every: int = 1
    start: Moment = 0
    end: Moment | None = None
    fps: float = 12.0
    fit: str | None = None
    min_probability: float = MIN_PROBABILITY
    seed: int = 0

    def span(self) -> Span:
        """The range of frames that is used."""
        return Span(self.start, self.end, self.every, self.fps)

    def check(self, model: Any) -> None:
        """Refuses wrong options before anything is opened."""
        self.span()
        self.segmenter(model, "")

    def segmenter(self, model: Any, video: str) -> Segmenter:
        """A segmenter with these options, for one video."""
        return Segmenter(
            model, slots=self.slots, fit=self.fit, seed=self.seed, min_probability=self.min_probability, video=video
        )


def segment(
    source: str | Path | Video, weights: Any = None, *, split: str | None = None, **options: Any
) -> Iterator[SegmentedFrame]:
    """Segment videos frame by frame. Memory does not grow with their length.

    Args:
        source: A video file, a folder of frames, a set of videos, a camera ("camera:0"), a URL, or a `Video`.
        weights: A model, a run's folder, a file or a name; by default `mixture`, which does not learn.
        split: Use only this split of a set of videos.
        options: Those of `SegmentOptions`.

    Returns:
        An iterator over the frames; `frame.video` names the video.

    Raises:
        BadInput: If source, weights or options cannot be used; while iterating, if a video is damaged.
    """
    given = SegmentOptions(**options)
    model = load_model(weights)
    given.check(model)
    videos = [source] if isinstance(source, Video) else open_input(source, split)[0]

    def frames() -> Iterator[SegmentedFrame]:
        for video in videos:
            segmenter = given.segmenter(model, video.name)
            for shown in given.span().frames(video):
                yield segmenter(shown.pixels(), shown.number, shown.seconds)

    return frames()


@dataclass(frozen=True)
class Segmented:
    """The result for one video. Nothing was written if there are no frames.

    Attributes:
        video: Name of the video.
        folder: Folder of the written files.
        size: Height and width of the frames, in pixels.
        frames: Number of frames.
        seconds: Time that it took, files included.
        shares: Shares of that time for reading, finding objects and writing.
        tracks: The objects.
        left_out: Segments that are not objects, with the reason.
        rule: How well objects and other segments were separated, if the video has true ids.
        notes: Remarks, one sentence each.
        stopped: Whether a signal ended it early.
        problem: A sentence if something went wrong.
    """

    video: str
    folder: Path
    size: tuple[int, int] = (0, 0)
    frames: int = 0
    seconds: float = 0.0
    shares: dict[str, float] | None = None
    tracks: Sequence[Row] = ()
    left_out: dict[int, Reason] = field(default_factory=dict)
    rule: RuleScore | None = None
    notes: Sequence[str] = ()
    stopped: bool = False
    problem: str | None = None

    @property
    def frames_per_second(self) -> float:
        """Speed of segmentation, files included."""
        return self.frames / max(self.seconds, 1e-9)

    def as_json(self) -> dict[str, Any]:
        """For `segment.json` and `--json`."""
        told = asdict(self) | {"folder": str(self.folder), "frames_per_second": round(self.frames_per_second, 2)}
        told |= {"rule": None if self.rule is None else self.rule.as_json()}
        return told | {"seconds": round(self.seconds, 3), "complete": not self.stopped and self.problem is None}

    def table(self) -> str:
        """The objects as a table for people."""
        if not self.left_out:
            return spoken(self.tracks)
        reasons = dict.fromkeys(self.left_out.values())
        said = [
            f"{', '.join(str(i) for i, why in self.left_out.items() if why == reason)} ({reason})" for reason in reasons
        ]
        return f"{spoken(self.tracks)}\nleft out: {'; '.join(said)}"

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
    objects: ObjectRule | None = None,
    split: str | None = None,
    write: Sequence[str] = DEFAULT,
    overwrite: bool = False,
    options: SegmentOptions | None = None,
    limits: Limits = DEFAULT_LIMITS,
    say: Callable[[Segmented], None] = lambda done: None,
) -> list[Segmented]:
    """Segment videos into files.

    Each video gets its own folder below `out`, which appears when it is complete. Ctrl-C ends the current video at the
    present frame; its files are complete up to there. A video that cannot be read is reported as a problem, and the
    others are still segmented.

    Args:
        inputs: Video files, folders of frames, sets of videos, cameras or URLs.
        out: The folder of the results.
        weights: A model, a run's folder, a file or a name; by default `mixture`.
        objects: Rules that decide which segments are objects.
        split: Use only this split of a set of videos.
        write: Names of outputs: overlay, tracks, masks, coco, ytvis, mot, npz, or all.
        overwrite: Whether existing results are replaced.
        options: Input and model options.
        limits: Memory limits for reading.
        say: Called with each result.

    Returns:
        One result per video, and one per problem.

    Raises:
        BadInput: If an option cannot be used or results exist, before anything is written.
    """
    options, objects = options or SegmentOptions(), objects or ObjectRule()
    writers = chosen(write)
    model = load_model(weights)
    options.check(model)
    sets = [open_input(given, split, limits) for given in inputs]
    videos = [video for found, _ in sets for video in found]
    for path in inputs:
        if Path(path).is_dir() and out.resolve().is_relative_to(Path(path).resolve()):
            raise BadInput(f"{out} would lie among the videos of {path}: choose an --out outside")
    folders = [out / name for name in _folder_names(videos)]
    for folder in folders:
        _check_free(folder, overwrite)
    about = {"weights": stored.DEFAULT if weights is None else str(weights), **asdict(options), **asdict(objects)}
    results = [Segmented("", out, problem=problem) for _, problems in sets for problem in problems]
    for done in results:
        say(done)
    with stop_signals() as stop:
        for video, folder in zip(videos, folders, strict=True):
            try:
                done = _Work(video, folder, model, writers, options, objects, about).done(stop)
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
    """Processes one video in two passes. The first finds segments and stores them on disk; the second writes those that
    are objects, which is known only at the end."""

    def __init__(
        self,
        video: Video,
        folder: Path,
        model: Any,
        writers: dict[str, type[Writer]],
        options: SegmentOptions,
        objects: ObjectRule,
        about: dict[str, Any],
    ):
        self._video, self._folder, self._kinds, self._options, self._rule = video, folder, writers, options, objects
        self._span = options.span()
        self._segmenter = options.segmenter(model, video.name)
        self._about = {**about, "fit": self._segmenter.fit}
        sounds = Overlay in writers.values() and isinstance(video, FileVideo) and has_sound(video.path)
        sound = video.files[0] if sounds else None
        slots = options.slots or model.slots
        self._source = Source(video.name, self._span.rate_of(video), slots, video.folder, sound)
        self._spent = {"reading": 0.0, "finding objects": 0.0, "writing": 0.0}
        self._truth = Truth() if video.has_ids else None
        self._notes: list[str] = []

    def done(self, stop: dict[str, bool]) -> Segmented:
        begin = time.monotonic()
        with folder_written_aside(self._folder) as aside, ExitStack() as unfinished:
            writers = [kind(aside, self._source) for kind in self._kinds.values()]
            for writer in writers:
                unfinished.callback(writer.abandon)
            spool = Spool(aside)
            unfinished.callback(spool.close)
            recording = self._recording(aside)
            if recording is not None:
                unfinished.callback(recording.close)
            size = self._find(spool, recording, stop)
            stopped = stop["asked"]
            if not spool.frames:  # stopped before there was anything to write
                raise KeyboardInterrupt
            problem = self._video.damage if self._span.saw_the_end else None
            segments = self._segmenter.tracks.table()
            left_out = self._rule.left_out(self._segmenter.tracks, size)
            objects = [row for row in segments if row.id not in left_out]
            self._write(writers, spool, recording, left_out)
            for writer in writers:
                writer.finish(objects)
                self._notes += [writer.problem] if writer.problem else []
            seconds = time.monotonic() - begin
            self._spent["writing"] += seconds - sum(self._spent.values())
            done = Segmented(
                self._video.name,
                self._folder,
                size,
                spool.frames,
                seconds,
                shares={what: spent / seconds for what, spent in self._spent.items()},
                tracks=objects,
                left_out=left_out,
                rule=None if self._truth is None else self._truth.score(left_out, segments),
                notes=self._notes,
                stopped=stopped,
                problem=problem,
            )
            told = {"vonet": vonet.__version__, **self._about, **done.as_json()}
            (aside / SUMMARY).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        return done

    def _recording(self, folder: Path) -> Recording | None:
        """A recording for the overlay, if the input cannot be read twice."""
        if self._video.can_be_read_again or Overlay not in self._kinds.values():
            return None
        if isinstance(self._video, LiveVideo) and self._video.has_sound:
            self._notes.append(f"the overlay of {self._video.name} is without sound, which is kept of files only")
        return Recording(folder)

    # The first pass

    def _find(self, spool: Spool, recording: Recording | None, stop: dict[str, bool]) -> tuple[int, int]:
        """Segments all frames and returns their size; the spool counts them."""
        size = (0, 0)
        wanted = self._span.frames(self._video)
        expected = self._span.expected_length(self._video)
        with tqdm(total=expected, desc=self._video.name, unit="frame", disable=None) as bar:
            while not stop["asked"] and (found := self._next(wanted, spool, recording)) is not None:
                size = found
                bar.update()
        return size

    def _next(self, wanted: Iterator[Shown], spool: Spool, recording: Recording | None) -> tuple[int, int] | None:
        """Segments the next frame and returns its size. The frame is freed when everything is written, so that only one
        large frame is in memory."""
        times = [time.monotonic()]
        shown = next(wanted, None)
        if shown is None:
            return None
        pixels = shown.pixels()
        if not spool.frames:
            self._notes += outside(self._video.name, pixels, self._segmenter.model, self._segmenter.fit)
        times.append(time.monotonic())
        frame = self._segmenter(pixels, shown.number, shown.seconds)
        self._compare(frame)
        times.append(time.monotonic())
        with disc_refusals(self._folder):
            spool.add(frame)
            if recording is not None:
                recording.add(pixels, Overlay.size_of(frame.ids.shape))
        times.append(time.monotonic())
        for what, begin, end in zip(self._spent, times, times[1:], strict=False):
            self._spent[what] += end - begin
        return frame.ids.shape[0], frame.ids.shape[1]

    def _compare(self, frame: SegmentedFrame) -> None:
        """Compares the frame with the true ids. Damaged true ids do not stop the segmentation."""
        if self._truth is None:
            return
        try:
            true_ids = self._video.read_ids(frame.number, frame.number + 1)
        except BadInput as error:
            self._truth = None
            self._notes.append(f"the rule for objects is not scored: {error}")
            return
        assert true_ids is not None
        self._truth.add(frame.ids, true_ids[0])

    # The second pass

    def _write(
        self, writers: Sequence[Writer], spool: Spool, recording: Recording | None, left_out: dict[int, Reason]
    ) -> None:
        pixels = self._pixels_again(recording) if any(isinstance(writer, Overlay) for writer in writers) else None
        bar = tqdm(spool.read(left_out), "writing", spool.frames, unit="frame", disable=None)
        for number, seconds, ids, tracks in bar:
            again = next(pixels, None) if pixels is not None else _no_pixels
            if again is None:
                raise BadInput(f"{self._video.name} cannot be read a second time: did it change meanwhile?")
            name, file = self._video.frame_name(number), self._video.frame_file(number)
            frame = FoundFrame(number, seconds, ids, tracks, name, file, again)
            with disc_refusals(self._folder):
                for writer in writers:
                    writer.add(frame)

    def _pixels_again(self, recording: Recording | None) -> Iterator[Callable[[], np.ndarray]]:
        """Reads the frames of the first pass again, in the same order."""
        if recording is not None:
            return (partial(np.asarray, pixels) for pixels in recording.read())
        return (shown.pixels for shown in self._options.span().frames(self._video))


def _no_pixels() -> np.ndarray:
    raise AssertionError("only the overlay shows pixels")


def _check_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / SUMMARY).is_file():
        raise BadInput(f"{folder} exists and is not a result of vonet segment: choose another --out")
    if not overwrite:
        raise BadInput(f"{folder} holds a result already: add --overwrite, or choose another --out")


def _folder_names(videos: Sequence[Video]) -> list[str]:
    """Folder names from the videos' names, and their splits if there are several. Video names may contain any character
    and may repeat, so they are cleaned and made unique."""
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
