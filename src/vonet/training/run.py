"""`vonet train` as a function: trains an experiment on videos and writes a run.

Users load RUN/model.safetensors and config.json; log.jsonl, curves.png and pictures/ show the training. `--resume`
reads checkpoints/.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

import vonet.data
from vonet.data.colour import are_grey
from vonet.data.video import Video, Videos
from vonet.data.work import stop_signals
from vonet.errors import BadInput, check_choice
from vonet.experiments import weights
from vonet.experiments.experiment import Experiment
from vonet.performance import keep_freed_memory
from vonet.training import checkpoint
from vonet.training.boards import Board, TensorBoard, WeightsAndBiases
from vonet.training.callbacks import (
    PICTURES,
    Callback,
    Drawing,
    Logging,
    Progress,
    Scoring,
    reference_scores,
    seconds_between_lines,
)
from vonet.training.config import TrainingConfig
from vonet.training.distributed import Processes, all_the_same, any_process, joined_processes
from vonet.training.log import Log
from vonet.training.loop import NotFinite, Training, Update
from vonet.training.precision import Choice, choose
from vonet.training.segments import Footage
from vonet.writing import DiscRefusal, only_writer, remove_abandoned

MAY_CHANGE = ("experiment.training.optimizer.groups.", "experiment.training.optimizer.largest ")
"""Options that may change when a run goes back to its good checkpoint: learning rates and clipping."""

SCRATCH = "scratch"
"""Stands for random initial weights."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of a run, besides its experiment.

    Attributes:
        seed: Seed of weights and batches.
        updates: Stop at this update; None: the experiment's number.
        minutes: Stop after this much training in total, resumed parts included.
        accumulate: Number of parts in which each batch is computed, one after the other. More parts need less memory.
        precision: "float32", "bfloat16", or "auto": the one that is faster here. None: float32, or that of the resumed
            run.
        evaluate_every: Updates between evaluations; None: a tenth of the updates.
        videos: Number of validation videos to score.
        pictures: Number of validation videos whose masks are drawn.
        log_every: Updates between entries of the log.
        save_minutes: Time between checkpoints. A crash costs at most this much training.
        keep: Number of checkpoints that are kept.
        tensorboard: Whether logs are also written for TensorBoard.
        wandb: Whether logs are also sent to Weights & Biases.
        start: Initial weights. None: those that the experiment names, or random ones; "scratch": random ones.
    """

    seed: int = 0
    updates: int | None = None
    minutes: float | None = None
    accumulate: int = 1
    precision: Choice | None = None
    evaluate_every: int | None = None
    videos: int = 16
    pictures: int = 4
    log_every: int = 10
    save_minutes: float = 5.0
    keep: int = 2
    tensorboard: bool = False
    wandb: bool = False
    start: Path | str | None = None

    def __post_init__(self) -> None:
        positive = ("updates", "minutes", "evaluate_every", "log_every", "videos", "keep", "accumulate", "save_minutes")
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"{name.replace('_', '-')} is {value}; it must be more than 0")
        if self.seed < 0:
            raise BadInput(f"the seed is {self.seed}; it must be 0 or more")
        if self.precision is not None:
            check_choice("precision", self.precision, Choice)


BackTo = Literal["good"]
"""Where a run resumes, if not from its last checkpoint: the last checkpoint before the loss left its band."""


def train(
    experiment: Experiment,
    data: Path,
    out: Path,
    options: TrainOptions,
    resume: bool = False,
    back_to: BackTo | None = None,
) -> None:
    """Train until the updates or minutes are done or a signal asks to stop, then save.

    Args:
        experiment: The model and how it is trained.
        data: Videos; a store is best (`vonet prepare`). The split `train` is trained on, and `validation` is scored.
        out: Folder of the run. One process, or one group of processes of torchrun, may write to it at a time.
        options: Seed, limits, evaluations, checkpoints.
        resume: Continue the run in `out` from its last checkpoint.
        back_to: "good" resumes from the last checkpoint before the loss left its band.

    Raises:
        BadInput: If the options, the data or the folder do not fit, or the loss or a gradient is not finite.
    """
    if back_to is not None:
        check_choice("back-to", back_to, BackTo)
        if not resume:
            raise BadInput(f"--back-to {back_to} is for a run that is resumed: add --resume")
    keep_freed_memory()
    with joined_processes() as processes, stop_signals() as stop, _only_training(out, processes):
        if _restarted(out, processes):
            resume, back_to = True, None
        Run(experiment, data, out, options, processes, resume, back_to).learn(stop)


@contextmanager
def _only_training(out: Path, processes: Processes) -> Iterator[None]:
    """The first process locks the run's folder for all processes; if it cannot, all of them end."""
    with ExitStack() as held:
        refusal: BadInput | None = None
        if processes.is_first:
            try:
                held.enter_context(only_writer(out))
            except BadInput as error:
                refusal = error
        if any_process(refusal is not None, processes):
            raise refusal or BadInput(f"the first process may not write to {out}; its message says why")
        yield


def trainable(experiment: Experiment) -> TrainingConfig:
    """The training options of the experiment; refuses a method without parameters."""
    if experiment.training is None:
        raise BadInput(
            f"{experiment.name} has no parameters to train: use it as it is, with vonet evaluate {experiment.name} "
            f"DATA or vonet segment VIDEO --weights {experiment.name}"
        )
    return experiment.training


def train_to_the_end(experiment: Experiment, data: Path, out: Path, options: TrainOptions) -> bool:
    """Start or resume the run in `out`. Returns False if the run was already complete."""
    updates = options.updates or trainable(experiment).updates
    done = updates_done(out)
    if done < updates:
        train(experiment, data, out, options, resume=done > 0)
    return done < updates


def updates_done(out: Path) -> int:
    """Number of updates of the run in `out`; 0 if there is none."""
    return (checkpoint.latest(out) or {"update": 0})["update"]


def _restarted(out: Path, processes: Processes) -> bool:
    """Whether torchrun restarted these processes after one died, and a checkpoint exists. Only the machine on which a
    process died counts a restart, and a shared folder may show a new file late, so one process that knows about the
    restart is enough."""
    found = checkpoint.latest(out)
    counted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    ours = found is not None and found.get("job", "") == _job()
    return any_process(counted, processes) and any_process(ours, processes)


def _job() -> str:
    """An id of the torchrun that started this process, which restarts only its own runs."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")


class Run:
    """A training with its folder: started or resumed, trained, saved. Callbacks show, log, score and draw
    (callbacks.py)."""

    def __init__(
        self,
        experiment: Experiment,
        data: Path,
        out: Path,
        options: TrainOptions,
        processes: Processes,
        resume: bool,
        back_to: BackTo | None = None,
    ):
        config = trainable(experiment)
        self.out, self.options, self.processes = out, options, processes
        self.path = str(data.resolve())
        self.updates = config.updates if options.updates is None else options.updates
        self.evaluate_every = options.evaluate_every or max(1, self.updates // 10)
        everything, videos = vonet.data.open(data), vonet.data.open(data, split="train")
        self.about = {
            "experiment": weights.described(experiment),
            "seed": options.seed,
            "accumulate": options.accumulate,
            "data": _fingerprint(videos),
        }
        if resume:
            stored = (checkpoint.latest(out) or {}).get("precision", "float32")
            self.about["precision"] = stored if options.precision in (None, "auto") else options.precision
        self._check_folder(resume, back_to)
        if back_to is not None:
            checkpoint.go_back(out, self._description(), processes)
        self.experiment = _as_trained(experiment, videos)
        model = experiment.build_model(seed=options.seed).to(processes.device)
        start = options.start or experiment.start
        if start not in (None, SCRATCH) and not resume:
            fresh = _begin_with(model, start)
            if fresh and processes.is_first:
                print(f"{start} has no weights for {', '.join(fresh)}: these start as in a new model.")
        if not resume:
            self.about["precision"] = choose(options.precision or "float32", model, config, processes)
        half = self.about["precision"] == "bfloat16"
        footage = Footage(videos, model.size, processes.device)
        self.training = Training(model, config, footage, options.seed, processes, options.accumulate, half)
        self.seconds, self.stepping = 0.0, 0.0
        self._saved: dict[str, int] | None = None
        self._good: dict[str, int] | None = None
        if resume:
            self._recall()
        self.progress: Progress | None = None
        self.callbacks: list[Callback] = []
        self._scored_updates: set[int] | None = None
        if processes.is_first:
            self._show_and_score(everything, videos)

    def _show_and_score(self, everything: Videos, videos: Videos) -> None:
        """The callbacks of the first process."""
        options, update = self.options, self.training.update
        validation = _validation(everything, options.videos)
        shown = _shown(everything, videos, options.pictures)
        log = Log(self.out / "log.jsonl", update)
        if validation:
            self._scored_updates = {entry["update"] for entry in log.entries if "scores" in entry}
        references = reference_scores(self.training.model, validation)
        self.progress = Progress(self.updates, update, options.minutes)
        boards: list[Board] = [TensorBoard(self.out, update)] if options.tensorboard else []
        boards += [WeightsAndBiases(self.out, self.about)] if options.wandb else []
        logging = Logging(log, options.log_every, self.progress, boards)
        scoring = Scoring(validation, self.progress, logging.write)
        drawing = Drawing(self.out, shown, log, references, self.progress, boards)
        self.callbacks = [self.progress, logging, scoring, drawing]

    def _check_folder(self, resume: bool, back_to: BackTo | None) -> None:
        """Refuse a folder that holds another run, and remove what a crash left half-written."""
        out, found = self.out, checkpoint.latest(self.out)
        if found is None and (out / weights.WEIGHTS).exists() and not resume:
            raise BadInput(f"{out} holds a run or weights already: choose another folder")
        if found is not None and not resume:
            raise BadInput(
                f"{out} holds a run already, at update {found['update']}: add --resume, or choose another folder"
            )
        if resume:
            _check_same(found, self.about, out, MAY_CHANGE if back_to is not None else ())
        self.processes.wait()
        if self.processes.is_first:
            for folder in (out, out / checkpoint.FOLDER, out / PICTURES):
                remove_abandoned(folder)

    def _recall(self) -> None:
        found = checkpoint.latest(self.out) or {}
        memories = checkpoint.load(self.out, self.processes)
        of_others = found["processes"] != self.processes.count
        self.seconds = checkpoint.recall(self.training, memories, self.out, of_others)
        if of_others:
            self._tell_other_number(found["processes"])
        self._saved = {"update": found["update"], "processes": found["processes"]}
        self._good = found.get("good")
        if not all_the_same(self.training.update, self.processes):
            raise BadInput(f"the processes see different checkpoints in {self.out}: is it a folder that they share?")
        if self.processes.is_first:
            weights.save(self.out, self.training.learned, self.experiment)  # a crash may have come before these

    def _tell_other_number(self, before: int) -> None:
        if self.processes.is_first:
            print(
                f"{self.out} was trained by {before} processes and continues with {self.processes.count}: parameters "
                "and optimiser are the same, replay is dealt out anew and random numbers start anew, so the result is "
                "not that of the same number of processes"
            )

    def learn(self, stop: dict[str, bool]) -> None:
        """The loop. Saves at the end, when a signal asks to stop, and every few minutes."""
        try:
            self._loop(stop)
        except NotFinite as error:
            raise BadInput(f"{error}; {self._way_back()}") from None
        finally:
            for callback in self.callbacks:
                callback.closed(self)
        if self.processes.is_first:
            print(f"{self.out} is at update {self.training.update} of {self.updates}. {self._what_next()}")

    def _loop(self, stop: dict[str, bool]) -> None:
        training = self.training
        begun, earlier, saved = time.monotonic(), self.seconds, time.monotonic()
        ended = training.update >= self.updates or self._time_is_up() or not self._begin(stop)
        killed_before_scores = self._scored_updates is not None and training.update not in self._scored_updates
        if training.update == self.updates and killed_before_scores:
            self._call("evaluated", None)
        while not ended:
            found = self._step()
            self.seconds = earlier + time.monotonic() - begun
            stopped = any_process(stop["asked"], self.processes)
            ended = training.update == self.updates or self._time_is_up() or stopped
            self._call("updated", found)
            scored = not stopped and (ended or training.update % self.evaluate_every == 0)
            due = any_process(time.monotonic() - saved > 60 * self.options.save_minutes, self.processes)
            if ended or due or scored:
                training.check_parameters()
            if ended or due:
                self._save(must=ended)
                saved = time.monotonic()
            if scored:
                self._call("evaluated", found)

    def _call(self, what: Literal["updated", "evaluated"], found: Update | None) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(self, found)

    def _begin(self, stop: dict[str, bool]) -> bool:
        """The replay rollout before the first update. Returns False if the time is up or a signal asks to stop
        meanwhile; then nothing is saved, because nothing was trained."""
        frames = tqdm(
            range(self.training.segments.frames_to_begin),
            desc="replay rollout",
            unit="frame",
            mininterval=seconds_between_lines(),
            disable=not self.processes.is_first or self.training.segments.frames_to_begin < 100,
        )
        earlier, begun = self.seconds, time.monotonic()
        for _ in frames:
            if any_process(stop["asked"], self.processes) or self._time_is_up():
                return False
            self.training.roll_out(frames=1)
            self.stepping = time.monotonic() - begun
            self.seconds = earlier + self.stepping
        return True

    def _what_next(self) -> str:
        if self.training.update >= self.updates and self._scored_updates is None:  # no labels to score with
            return f"Next: vonet report {self.out}, or vonet segment VIDEO --weights {self.out}"
        if self.training.update >= self.updates:
            return f"Next: vonet report {self.out}, or vonet evaluate {self.out} DATA"
        return "Go on with --resume." if self.training.update else "Nothing was learned yet, and nothing is saved."

    def _step(self) -> Update:
        begin = time.monotonic()
        found = self.training.step()
        self.stepping += time.monotonic() - begin
        return found

    def _way_back(self) -> str:
        """Advice after a divergence: the checkpoint from before it."""
        good = self._good_checkpoint()
        if self.processes.is_first and self._saved is not None:
            checkpoint.mark_good(self.out, good)
        left = self.training.band.left_at
        left_at = "" if left is None or left == self.training.update else f"the loss left its band at update {left}; "
        if good is None:
            return (
                f"{left_at}there is no checkpoint from before. Start a new run with lower learning rates or more "
                "clipping (--set)"
            )
        return (
            f"{left_at}the last checkpoint from before is of update {good['update']}. Continue from it with --resume "
            "--back-to good, with lower learning rates or more clipping (--set)"
        )

    def _good_checkpoint(self) -> dict[str, int] | None:
        """The last checkpoint whose parameters had a loss inside the band, in all processes. The last saved checkpoint
        is good only if the updates after it confirm it (band.py)."""
        if self._saved is None:
            return None
        doubtful = not self.training.band.confirms(self._saved["update"])
        return self._good if any_process(doubtful, self.processes) else self._saved

    def _time_is_up(self) -> bool:
        minutes = self.options.minutes
        return any_process(minutes is not None and self.seconds >= 60 * minutes, self.processes)

    def _save(self, must: bool) -> None:
        """If the disk fills up, training warns and continues without that checkpoint; at the end of training this is an
        error."""
        try:
            self.save()
        except DiscRefusal as error:
            if must or self.processes.count > 1 or self.progress is None:
                raise
            self.progress.say(f"not saved: {error}")

    def save(self) -> None:
        """Writes a checkpoint of all processes, and the weights that a user loads."""
        for callback in self.callbacks:
            callback.saving(self)
        tensors, facts = self.training.remember()
        memory = tensors, {**facts, "seconds": self.seconds}
        good = self._good_checkpoint()
        checkpoint.save(self.out, memory, self._description(), self.processes, self.options.keep, good)
        self._saved = {"update": self.training.update, "processes": self.processes.count}
        self._good = good
        if self.processes.is_first:
            weights.save(self.out, self.training.learned, self.experiment)

    def _description(self) -> dict[str, Any]:
        return {**self.about, "job": _job(), "path": self.path}


def _as_trained(experiment: Experiment, videos: Videos) -> Experiment:
    """The experiment with properties of the training videos: how they were resized, and whether they are grey."""
    made_by = videos.made_by
    fit = made_by.get("fit") if made_by.get("size") else None
    return replace(experiment, fit=fit or experiment.fit, grey=are_grey(videos))


def _validation(videos: Videos, count: int) -> list[Video]:
    """The first few validation videos, for scoring; empty if the data have no validation split with true ids."""
    if "validation" not in videos.splits:
        return []
    chosen = videos.in_split("validation")
    return [video for video in (chosen[i] for i in range(min(count, len(chosen)))) if video.has_ids]


def _shown(videos: Videos, training: Videos, count: int) -> list[Video]:
    """The videos whose masks are drawn: from the validation split if there is one, with or without true ids."""
    chosen = videos.in_split("validation") if "validation" in videos.splits else training
    return [chosen[i] for i in range(min(count, len(chosen)))]


def _fingerprint(videos: Videos) -> str:
    """A fingerprint that changes with the names or lengths of the training videos."""
    names = "\n".join(f"{video.name} {len(video)}" for video in videos)
    return f"{len(videos)} videos, {hashlib.sha256(names.encode()).hexdigest()[:12]}"


def _check_same(
    found: Mapping[str, Any] | None, about: Mapping[str, Any], out: Path, may_change: tuple[str, ...] = ()
) -> None:
    """may_change: Prefixes of options that need not agree."""
    if found is None:
        raise BadInput(f"{out} holds no checkpoint. Omit --resume to start a new run.")
    found = {"precision": "float32", **found}  # older checkpoints do not say
    told = _differences(_decisive({key: found.get(key) for key in about}), _decisive(about), "")
    differences = [difference for difference in told if not (may_change and difference.startswith(may_change))]
    if differences:
        more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise BadInput(
            f"{out} was started with other settings: {'; '.join(differences[:4])}{more}. "
            "Use the same, or start a new run"
        )


def _decisive(about: Mapping[str, Any]) -> dict[str, Any]:
    """Only the parts of an experiment that affect the training, without descriptive ones such as its cost."""
    experiment = about["experiment"] or {}
    return {**about, "experiment": {part: experiment.get(part) for part in ("name", "model", "training")}}


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path} was {old!r} and is {new!r}"


def _begin_with(model: Any, path: Path | str) -> list[str]:
    """Copy the weights at `path` into the model. Returns the parts of the model that the weights lack, which keep their
    initial values; weights that do not fit the model are refused."""
    other, _ = weights.load(path)
    try:
        missing, unexpected = model.load_state_dict(other.state_dict(), strict=False)
    except RuntimeError:
        unexpected = True
    if unexpected:
        raise BadInput(f"the weights in {path} are of another model than the experiment's: choose others with --from")
    return sorted({".".join(name.split(".")[:2]) for name in missing})
