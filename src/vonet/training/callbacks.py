"""The outputs of a run besides checkpoints: progress, log, scores and pictures. Each is one class; the run itself
writes checkpoints.

A run calls its callbacks in order: `updated` after every update, `saving` before a checkpoint, `evaluated` at regular
intervals and at the end, `closed` when the run is over. If the disk refuses a line of the log or a picture, training
continues.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tqdm import tqdm

from vonet.data.video import Video
from vonet.evaluation import protocol as protocols
from vonet.evaluation.references import REFERENCES, evaluate_references
from vonet.evaluation.report import HEADLINES
from vonet.evaluation.run import MODEL, evaluate_model, summary
from vonet.figures.curves import write_curves
from vonet.figures.masks import write_mask_sheet
from vonet.training.boards import Board
from vonet.training.log import Log
from vonet.training.loop import Training, Update, collapse
from vonet.writing import DiscRefusal

PROTOCOL = "vonet"
PICTURES = "pictures"

Entry = dict[str, Any]
"""A line of the log: its update and seconds, and losses or scores."""


@runtime_checkable
class Observed(Protocol):
    """The attributes of a run that callbacks use (`training.run.Run`)."""

    training: Training
    updates: int
    """Number of updates at which the training ends."""
    seconds: float
    """Seconds of training so far, including resumed parts."""
    stepping: float
    """Seconds that updates of this process took."""


class Callback:
    """A callback that does nothing; subclasses override the methods that they need."""

    def updated(self, run: Observed, found: Update) -> None:
        """After an update."""

    def evaluated(self, run: Observed, found: Update | None) -> None:
        """Called when scores and pictures are due; `found` is None if the last update was in an earlier process."""

    def saving(self, run: Observed) -> None:
        """Called before a checkpoint is written."""

    def closed(self, run: Observed) -> None:
        """Called when the run is over."""


class Progress(Callback):
    """A progress line with losses, scores and remaining time: updated in place on a terminal, printed now and then in a
    log file."""

    def __init__(self, updates: int, done: int, minutes: float | None):
        self.updates, self.done, self.minutes = updates, done, minutes
        self.scores: dict[str, float] = {}

    @cached_property
    def bar(self) -> tqdm:
        """The progress bar, created on first use, because another bar may come before it (the replay rollout)."""
        return tqdm(total=self.updates, initial=self.done, unit="update", mininterval=seconds_between_lines())

    def say(self, sentence: str) -> None:
        """Print a sentence above the progress bar."""
        self.bar.write(sentence)

    def updated(self, run: Observed, found: Update) -> None:
        self.bar.update()
        losses = {name: f"{value:.4g}" for name, value in found.losses.items()}
        scores = {name: f"{100 * value:.1f}" for name, value in self.scores.items()}
        left = {} if self.minutes is None else {"minutes left": f"{max(0.0, self.minutes - run.seconds / 60):.0f}"}
        self.bar.set_postfix({**losses, **scores, **left}, refresh=False)

    def closed(self, run: Observed) -> None:
        self.bar.close()

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """If the disk is full, a line of the log or a picture is lost; training warns and continues."""
        try:
            yield
        except DiscRefusal as error:
            self.say(f"not written: {error}")


class Logging(Callback):
    """Writes RUN/log.jsonl, and logs to the selected boards."""

    def __init__(self, log: Log, every: int, progress: Progress, boards: Sequence[Board] = ()):
        self.log, self.every, self.progress, self.boards = log, every, progress, boards

    def updated(self, run: Observed, found: Update) -> None:
        update = run.training.update
        if update % self.every and update != run.updates:
            return
        waiting = run.training.segments.seconds_reading / max(run.stepping, 1e-9)
        entry = {"losses": found.losses, "norms": found.norms, "entropy": found.entropy}
        entry |= {"largest_slot": found.largest_slot, "waiting": waiting}
        if found.token_kinds is not None:
            entry |= {"token_kinds": found.token_kinds}
        with self.progress.refusals():
            self.write({"update": update, "seconds": run.seconds, **entry})

    def write(self, entry: Entry) -> None:
        """Append an entry to the log, and send its numbers to the boards."""
        self.log.write(entry)
        groups = {group: entry.get(group, {}) for group in ("losses", "norms", "scores")}
        numbers = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
        for board in self.boards:
            board.numbers(entry["update"], numbers)

    def saving(self, run: Observed) -> None:
        with self.progress.refusals():
            self.log.sync()

    def closed(self, run: Observed) -> None:
        for board in self.boards:
            board.close()


class Scoring(Callback):
    """Scores the same few validation videos each time, and warns about collapsed masks."""

    def __init__(self, videos: Sequence[Video], progress: Progress, write: Callable[[Entry], None]):
        self.videos, self.progress, self.write = videos, progress, write

    def evaluated(self, run: Observed, found: Update | None) -> None:
        update = run.training.update
        alarm = collapse(found) if found is not None else None
        if alarm:
            self.progress.say(f"update {update}: {alarm}")
        if not self.videos:
            return
        model = run.training.learned
        model.eval()
        rows = evaluate_model(model, model.size, self.videos, protocols.get(PROTOCOL), progress=False)
        scores = {name: mean for name, (mean, _) in summary(rows)[MODEL].items()}
        self.progress.scores = {name: scores[name] for name in HEADLINES}
        self.progress.say(f"update {update}: " + ", ".join(f"{name} {100 * scores[name]:.1f}" for name in HEADLINES))
        with self.progress.refusals():
            self.write({"update": update, "seconds": run.seconds, "scores": scores, "alarm": alarm})


class Drawing(Callback):
    """Writes masks of the same few videos to RUN/pictures and the boards, and losses and scores so far to
    RUN/curves.png."""

    def __init__(
        self,
        folder: Path,
        videos: Sequence[Video],
        log: Log,
        references: Mapping[str, Mapping[str, float]],
        progress: Progress,
        boards: Sequence[Board] = (),
    ):
        self.folder, self.videos, self.log, self.references, self.progress = folder, videos, log, references, progress
        self.boards = boards

    def evaluated(self, run: Observed, found: Update | None) -> None:
        with self.progress.refusals():
            picture = self.folder / PICTURES / f"{run.training.update:08d}.png"
            write_mask_sheet(picture, run.training.learned, self.videos)
            for board in self.boards:
                board.picture(run.training.update, picture)
            write_curves(self.folder / "curves.png", self.log.entries, self.references)


def reference_scores(model: Any, videos: Sequence[Video]) -> dict[str, dict[str, float]]:
    """Mean scores of the methods without learning on these videos, for the curves."""
    if not videos:
        return {}
    found = summary(evaluate_references(model, videos, protocols.get(PROTOCOL), progress=False))
    return {method: {name: mean for name, (mean, _) in found[method].items()} for method in REFERENCES}


def seconds_between_lines() -> float:
    """Seconds between updates of the progress line; longer for a log file than for a terminal."""
    return 0.5 if sys.stderr.isatty() else 30.0
