"""An experiment and videos in, a run out: what `vonet train` does.

RUN/model.safetensors and config.json are what a user loads; log.jsonl, curves.png and pictures/ show how it learned;
checkpoints/ is what `--resume` goes on from.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import vonet.data
from vonet import weights
from vonet.data.video import Video, Videos
from vonet.errors import BadInput
from vonet.evaluation import protocol as protocols
from vonet.evaluation.report import HEADLINES
from vonet.evaluation.run import MODEL, evaluate_model, evaluate_trivial, summary
from vonet.evaluation.trivial import TRIVIAL
from vonet.experiments.experiment import Experiment
from vonet.figures.curves import write_curves
from vonet.figures.masks import write_mask_sheet
from vonet.performance import compile_encoder, keep_freed_memory
from vonet.stopping import stop_signals
from vonet.training import checkpoint
from vonet.training.distributed import Processes, all_the_same, any_process, joined_processes
from vonet.training.log import Log
from vonet.training.loop import NotFinite, Training, Update, collapse
from vonet.training.segments import Footage
from vonet.writing import PART, DiscRefusal

PROTOCOL = "vonet"
PICTURES = "pictures"


@dataclass(frozen=True)
class TrainOptions:
    """How a training is run, which does not change what is learned (but for `seed`).

    minutes: stop after so much training in all, resumed parts included.
    evaluate_every, videos: score the first so many validation videos every so many updates (None: ten times).
    save_minutes: how much work a crash may cost.
    start: weights to begin with, instead of fresh ones.
    """

    seed: int = 0
    updates: int | None = None
    minutes: float | None = None
    accumulate: int = 1
    compile: bool = False
    evaluate_every: int | None = None
    videos: int = 16
    pictures: int = 4
    log_every: int = 10
    save_minutes: float = 5.0
    keep: int = 2
    tensorboard: bool = False
    start: Path | None = None

    def __post_init__(self) -> None:
        positive = ("updates", "minutes", "evaluate_every", "log_every", "videos", "keep", "accumulate", "save_minutes")
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"{name.replace('_', '-')} is {value}; it must be more than 0")
        if self.seed < 0:
            raise BadInput(f"the seed is {self.seed}; possible are 0 and above")


def train(experiment: Experiment, data: Path, out: Path, options: TrainOptions, resume: bool = False) -> None:
    """Train until the updates or minutes are used up, or a signal asks to stop; then everything is saved."""
    keep_freed_memory()
    with joined_processes() as processes, stop_signals() as stop:
        resume = resume or _restarted(out, processes)
        Run(experiment, data, out, options, processes, resume).learn(stop)


def train_to_the_end(experiment: Experiment, data: Path, out: Path, options: TrainOptions) -> bool:
    """Begin, or go on where `out` stands; False where there was nothing left to do."""
    updates = options.updates or experiment.training.updates
    done = (checkpoint.latest(out) or {"update": 0})["update"]
    if done < updates:
        train(experiment, data, out, options, resume=done > 0)
    return done < updates


def _restarted(out: Path, processes: Processes) -> bool:
    """Whether torchrun has started these processes again after one died, and there is something to go on with. Only
    the machine on which it died counts a restart, and a shared folder may show a new file late, so one process that
    knows of it is enough."""
    found = checkpoint.latest(out)
    counted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    ours = found is not None and found["job"] == _job()
    return any_process(counted, processes) and any_process(ours, processes)


def _job() -> str:
    """The name of the torchrun that started this process: it restarts its own runs only."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")


class Run:
    def __init__(
        self, experiment: Experiment, data: Path, out: Path, options: TrainOptions, processes: Processes, resume: bool
    ):
        self.experiment, self.out, self.options, self.processes = experiment, out, options, processes
        self.path = str(data.resolve())
        self.updates = experiment.training.updates if options.updates is None else options.updates
        self.evaluate_every = options.evaluate_every or max(1, self.updates // 10)
        everything, videos = vonet.data.open(data), vonet.data.open(data, split="train")
        self.validation = _validation(everything, options.videos)
        self.shown = _shown(everything, videos, options.pictures)
        self.about = {
            "experiment": weights.described(experiment),
            "seed": options.seed,
            "accumulate": options.accumulate,
            "data": _fingerprint(videos),
        }
        found = checkpoint.latest(out)
        if found is None and (out / weights.WEIGHTS).exists() and not resume:
            raise BadInput(f"{out} holds a run or weights already: choose another folder")
        if found is not None and not resume:
            raise BadInput(
                f"{out} holds a run already, at update {found['update']}: add --resume, or choose another folder"
            )
        if resume:
            _check_same(found, self.about, out)
        processes.wait()
        if processes.is_first:
            for folder in (out, out / checkpoint.FOLDER, out / PICTURES):
                for abandoned in folder.glob(f"*{PART}"):
                    abandoned.unlink(missing_ok=True)
        model = experiment.build_model(seed=options.seed).to(processes.device)
        if options.start is not None and not resume:
            _begin_with(model, options.start)
        if options.compile:
            compile_encoder(model)
        half = processes.device != "cpu" and torch.cuda.is_bf16_supported()
        footage = Footage(videos, model.size, processes.device)
        self.training = Training(model, experiment.training, footage, options.seed, processes, options.accumulate, half)
        self.seconds, self.stepping = 0.0, 0.0
        self.scored: dict[str, float] = {}
        if resume:
            memory = checkpoint.load(out, processes)
            self.training.recall(memory)
            self.seconds = memory[1]["seconds"]
            if not all_the_same(self.training.update, processes):
                raise BadInput(f"the processes see different checkpoints in {out}: is it a folder that they share?")
            if processes.is_first:
                weights.save(out, model, experiment)  # a crash may have come between the checkpoint and these
        self.board = _tensorboard(out, self.training.update) if options.tensorboard and processes.is_first else None
        self.log = Log(out / "log.jsonl", self.training.update) if processes.is_first else None
        self.trivial = self._trivial() if processes.is_first and self.validation else {}

    def learn(self, stop: dict[str, bool]) -> None:
        """The loop. Saves at its end, when asked to stop, and every few minutes."""
        training = self.training
        begun, earlier, saved = time.monotonic(), self.seconds, time.monotonic()
        ended = training.update >= self.updates or self._time_is_up() or not self._begin(stop)
        with self._bar() as bar:
            if training.update == self.updates and not self._is_scored():  # it was killed before its last evaluation
                self._evaluate(bar, None)
            while not ended:
                found = self._step()
                self.seconds = earlier + time.monotonic() - begun
                stopped = any_process(stop["asked"], self.processes)
                ended = training.update == self.updates or self._time_is_up() or stopped
                self._show(bar, found)
                due = any_process(time.monotonic() - saved > 60 * self.options.save_minutes, self.processes)
                if ended or due:
                    self._save(bar, must=ended)
                    saved = time.monotonic()
                if not stopped and (ended or training.update % self.evaluate_every == 0):
                    self._evaluate(bar, found)
        if self.board is not None:
            self.board.close()
        self._say(f"{self.out} is at update {training.update} of {self.updates}. {self._what_next()}")

    def _begin(self, stop: dict[str, bool]) -> bool:
        """Watch what is to be watched before the first update. False where the time is up or a signal asks to stop
        meanwhile: so far nothing is learned, and nothing is saved."""
        frames = tqdm(
            range(self.training.segments.frames_to_begin),
            desc="watching",
            unit="frame",
            mininterval=_between_lines(),
            disable=not self.processes.is_first or self.training.segments.frames_to_begin < 100,
        )
        earlier, begun = self.seconds, time.monotonic()
        for _ in frames:
            if any_process(stop["asked"], self.processes) or self._time_is_up():
                return False
            self.training.segments.watch(self.training.model, frames=1)
            self.stepping = time.monotonic() - begun
            self.seconds = earlier + self.stepping
        return True

    def _what_next(self) -> str:
        if self.training.update >= self.updates:
            return f"Next: vonet report {self.out}, or vonet evaluate {self.out} DATA"
        return "Go on with --resume." if self.training.update else "Nothing was learned yet, and nothing is saved."

    def _save(self, bar: tqdm, must: bool) -> None:
        """A disc that is full in between is no reason to stop learning; at the end it is an error."""
        try:
            self.save()
        except DiscRefusal as error:
            if must or self.processes.count > 1:
                raise
            bar.write(f"not saved: {error}")

    def _step(self) -> Update:
        begin = time.monotonic()
        try:
            found = self.training.step()
            self.stepping += time.monotonic() - begin
            return found
        except NotFinite as error:
            latest = checkpoint.latest(self.out)
            good = f"the last checkpoint is of update {latest['update']}" if latest else "there is no checkpoint yet"
            again = f" with --from {self.out}" if latest else ""
            raise BadInput(
                f"{error}; {good}. Begin a new run{again}, with lower learning rates or more clipping (--set)"
            ) from None

    def _time_is_up(self) -> bool:
        minutes = self.options.minutes
        return any_process(minutes is not None and self.seconds >= 60 * minutes, self.processes)

    def save(self) -> None:
        tensors, facts = self.training.remember()
        memory = tensors, {**facts, "seconds": self.seconds}
        about = {**self.about, "job": _job(), "path": self.path}
        checkpoint.save(self.out, memory, about, self.processes, self.options.keep)
        if self.processes.is_first:
            weights.save(self.out, self.training.model, self.experiment)

    # ---- what one sees ---------------------------------------------------------------------------------------------

    def _bar(self) -> tqdm:
        return tqdm(
            total=self.updates,
            initial=self.training.update,
            unit="update",
            mininterval=_between_lines(),
            disable=not self.processes.is_first,
        )

    def _show(self, bar: tqdm, found: Update) -> None:
        if self.log is None:
            return
        update = self.training.update
        bar.update()
        scored = {name: f"{100 * value:.1f}" for name, value in self.scored.items()}
        losses = {name: f"{value:.4g}" for name, value in found.losses.items()}
        minutes = self.options.minutes
        left = {} if minutes is None else {"minutes left": f"{max(0.0, minutes - self.seconds / 60):.0f}"}
        bar.set_postfix({**losses, **scored, **left}, refresh=False)
        if update % self.options.log_every == 0 or update == self.updates:
            waiting = self.training.segments.seconds_reading / max(self.stepping, 1e-9)
            entry = {"losses": found.losses, "norms": found.norms, "entropy": found.entropy}
            entry |= {"largest_slot": found.largest_slot, "waiting": waiting}
            with _saying_if_refused(bar):
                self._write({"update": update, "seconds": self.seconds, **entry})

    def _write(self, entry: dict[str, Any]) -> None:
        assert self.log is not None
        self.log.write(entry)
        if self.board is not None:
            for group in ("losses", "norms", "scores"):
                for name, value in entry.get(group, {}).items():
                    self.board.add_scalar(f"{group}/{name}", value, entry["update"])

    def _is_scored(self) -> bool:
        """Whether the log has the scores of the last update, where there is something to score."""
        scored = [entry["update"] for entry in self.log.entries if "scores" in entry] if self.log else []
        return self.log is None or not self.validation or self.training.update in scored

    def _evaluate(self, bar: tqdm, found: Update | None) -> None:
        """Scores on the same few validation videos each time, and their masks as pictures."""
        if self.log is not None:
            with _saying_if_refused(bar):
                self._score_and_draw(bar, self.log, found)

    def _score_and_draw(self, bar: tqdm, log: Log, found: Update | None) -> None:
        alarm = collapse(found) if found is not None else None
        if alarm:
            bar.write(f"update {self.training.update}: {alarm}")
        if self.validation:
            model = self.training.model
            model.eval()
            rows = evaluate_model(model, model.size, self.validation, protocols.get(PROTOCOL), progress=False)
            scores = {name: mean for name, (mean, _) in summary(rows)[MODEL].items()}
            self.scored = {name: scores[name] for name in HEADLINES}
            said = ", ".join(f"{name} {100 * scores[name]:.1f}" for name in HEADLINES)
            bar.write(f"update {self.training.update}: {said}")
            self._write({"update": self.training.update, "seconds": self.seconds, "scores": scores, "alarm": alarm})
        write_mask_sheet(self.out / PICTURES / f"{self.training.update:08d}.png", self.training.model, self.shown)
        write_curves(self.out / "curves.png", log.entries, self.trivial)

    def _trivial(self) -> dict[str, dict[str, float]]:
        """Of the methods that know nothing of objects, for the curves."""
        model = self.training.model
        rows = evaluate_trivial(
            self.validation, protocols.get(PROTOCOL), model.slots, model.cells, model.enlargement, progress=False
        )
        means = {method: {name: mean for name, (mean, _) in found.items()} for method, found in summary(rows).items()}
        return {method: means[method] for method in TRIVIAL}

    def _say(self, sentence: str) -> None:
        if self.processes.is_first:
            print(sentence)


def _validation(videos: Videos, count: int) -> list[Video]:
    """The first few videos to score; none where the data have no validation split with true ids."""
    if "validation" not in videos.splits:
        return []
    chosen = videos.in_split("validation")
    return [video for video in (chosen[i] for i in range(min(count, len(chosen)))) if video.has_ids]


def _shown(videos: Videos, training: Videos, count: int) -> list[Video]:
    """The videos whose masks are drawn: of the validation split where there is one, labelled or not."""
    chosen = videos.in_split("validation") if "validation" in videos.splits else training
    return [chosen[i] for i in range(min(count, len(chosen)))]


def _fingerprint(videos: Videos) -> str:
    """Changes when the training videos do, by name or length."""
    names = "\n".join(f"{video.name} {len(video)}" for video in videos)
    return f"{len(videos)} videos, {hashlib.sha256(names.encode()).hexdigest()[:12]}"


def _check_same(found: Mapping[str, Any] | None, about: Mapping[str, Any], out: Path) -> None:
    if found is None:
        raise BadInput(f"there is no checkpoint in {out} to resume from; without --resume a new run begins")
    differences = list(_differences({key: found.get(key) for key in about}, about, ""))
    if differences:
        more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise BadInput(
            f"{out} was begun differently: {'; '.join(differences[:4])}{more}. Resume with the same, or begin a new run"
        )


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path} was {old!r} and is {new!r}"


def _between_lines() -> float:
    """Seconds between two states of a progress line; a log file wants fewer than a terminal."""
    return 0.5 if sys.stderr.isatty() else 30.0


@contextmanager
def _saying_if_refused(bar: tqdm) -> Iterator[None]:
    """A full disc is no reason to stop learning: a line of the log or a picture is lost, and that is said."""
    try:
        yield
    except DiscRefusal as error:
        bar.write(f"not written: {error}")


def _begin_with(model: Any, path: Path) -> None:
    other, _ = weights.load(path)
    try:
        model.load_state_dict(other.state_dict())
    except RuntimeError:
        raise BadInput(f"the weights in {path} are of another model than the experiment's") from None


def _tensorboard(out: Path, update: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput("--tensorboard needs the package tensorboard: pip install vonet[tensorboard]") from None
    return SummaryWriter(str(out / "tensorboard"), purge_step=update)
