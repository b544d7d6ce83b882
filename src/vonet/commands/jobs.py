"""Trainings as jobs of ordinary commands, which are printed, run locally or submitted to Slurm.

A job knows which of its commands are left to do, so an interrupted job continues when it is started again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vonet.errors import BadInput, missing_package

Command = tuple[str, ...]

PROGRAMS: Mapping[str, Command] = {
    "vonet": (sys.executable, "-m", "vonet"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
}
"""How the first word of a command is run: with this Python, whatever the shell would find."""
MINUTES = 2 * 24 * 60
"""Time limit of a Slurm job, unless --slurm gives another; a job that runs out of time is queued again and resumes."""
CORES_PER_PROCESS = 4


@dataclass(frozen=True)
class Data:
    """A store, and the command that makes it. `source`: Another store that the command reads."""

    store: Path
    make: Command
    source: Data | None = None

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def processes(self) -> int:
        return 1

    def commands(self) -> list[Command]:
        from vonet.data.store import INDEX

        if (self.store / INDEX).is_file():  # an unfinished store continues
            return []
        return [*(self.source.commands() if self.source is not None else ()), self.make]


@dataclass(frozen=True)
class Job:
    """A training and its evaluation.

    Attributes:
        experiment: Name of the experiment.
        seed: Seed of the training.
        out: Folder of the run.
        data: Store to train on.
        processes: Processes of torchrun, one per GPU.
        updates: Number of updates, if it differs from the experiment's.
        scored: Store to score on, if it differs from the training store.
        scoring: Options of `vonet evaluate`.
        level: Level of the videos.
        start: Run whose weights the training starts from, instead of those that the experiment names.
    """

    experiment: str
    seed: int
    out: Path
    data: Data
    processes: int = 1
    updates: int | None = None
    scored: Path | None = None
    scoring: Command = ()
    level: str | None = None
    start: Path | None = None

    @property
    def name(self) -> str:
        return self.out.name

    def commands(self) -> list[Command]:
        """The commands that are left to do."""
        if self.evaluation() is not None:
            return []
        evaluate: Command = ("vonet", "evaluate", str(self.out), str(self._scored), *self.scoring)
        if self.is_trained:
            return [evaluate]
        start: Command = ("vonet", "train")
        if self.processes > 1:
            start = ("torchrun", "--standalone", "--nproc-per-node", str(self.processes), "-m", *start)
        train = (*start, self.experiment, "--data", str(self.data.store), "--out", str(self.out))
        train += ("--seed", str(self.seed))
        train += () if self.updates is None else ("--updates", str(self.updates))
        start_from = () if self.start is None else ("--from", str(self.start))
        return [(*train, "--resume") if self._updates_done else (*train, *start_from), evaluate]

    def evaluation(self) -> dict[str, Any] | None:
        """The scores of the finished training; None if there are none yet."""
        from vonet.evaluation.report import EVALUATION, read_evaluation
        from vonet.experiments import weights

        if not self.is_trained:
            return None
        of_these = weights.checksum(self.out)
        for file in sorted((self.out / EVALUATION).glob("*.json")):
            found = read_evaluation(file)
            if found.get("checksum") == of_these and found.get("data") == str(self._scored):
                return found
        return None

    @property
    def _scored(self) -> Path:
        return self.scored or self.data.store

    @property
    def is_trained(self) -> bool:
        from vonet import experiments
        from vonet.training.run import trainable

        return self._updates_done >= (self.updates or trainable(experiments.get(self.experiment)).updates)

    @property
    def _updates_done(self) -> int:
        from vonet.training.run import updates_done

        return updates_done(self.out)


def plan(jobs: Sequence[Job]) -> list[Command]:
    """All commands that are left to do, in order, each once."""
    return list(dict.fromkeys(command for work in _with_data(jobs) for command in work.commands()))


def run_here(jobs: Sequence[Job], workers: int) -> None:
    """Run the commands that are left to do, `workers` jobs at a time. With more than one worker, each job writes to a
    log beside its run."""
    if workers < 1:
        raise BadInput(f"{workers} workers were asked for; at least 1 is needed")
    for data in _data(jobs):
        _run(data, log=None)
    if workers == 1:
        for job in jobs:
            _run(job, log=None)
        return
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    run = partial(_run, environment={"OMP_NUM_THREADS": threads, **os.environ})
    started: dict[Path, Future[None]] = {}

    def after_its_start(job: Job) -> None:
        if job.start in started and started[job.start].exception() is not None:  # waits for it
            raise BadInput(f"{job.name} was not begun, because it starts from {job.start.name}")
        run(job, job.out.with_name(f"{job.name}.log"))

    pool = ThreadPoolExecutor(workers)
    try:
        for job in jobs:  # a job comes after the one that it starts from
            started[job.out] = pool.submit(after_its_start, job)
        wait(started.values())
    finally:  # after Ctrl-C the trainings that run save and end, and no other begins
        pool.shutdown(cancel_futures=True)
    failed = sorted(str(error) for future in started.values() if (error := future.exception()) is not None)
    if failed:
        raise BadInput("; ".join(failed))


def submit(jobs: Sequence[Job], folder: Path, options: Sequence[str]) -> dict[str, str]:
    """Submit the commands that are left to do to Slurm, one job per training, and return the number of each job by its
    name. Logs and Slurm's files are in `folder`, which all machines must share."""
    try:
        import submitit
    except ImportError:
        raise missing_package("--on slurm", "submitit") from None
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise BadInput("--on slurm needs sbatch and srun: run it where jobs are submitted, or add --dry-run")
    executor = submitit.SlurmExecutor(folder, max_num_timeout=100)
    numbers: dict[str, str] = {}
    for work in _with_data(jobs):
        if not work.commands():
            continue
        before = [work.source] if isinstance(work, Data) else [work.data, work.start]
        needed = [numbers[one.name] for one in before if one is not None and one.name in numbers]
        executor.parameters.clear()
        _describe(executor, work, {"dependency": ":".join(["afterok", *needed])} if needed else {}, options)
        try:
            numbers[work.name] = executor.submit(Resumable(), work).job_id
        except submitit.core.utils.FailedJobError as error:
            raise BadInput(f"Slurm refuses {work.name}: {str(error).strip().splitlines()[-1]}") from None
    return numbers


class Resumable:
    """The job that Slurm runs; submitit calls `checkpoint` when the time is up, and queues the job again."""

    def __call__(self, work: Data | Job) -> None:
        _run(work, log=None)

    def checkpoint(self, work: Data | Job) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, work)


def _describe(executor: Any, work: Data | Job, more: Mapping[str, str], options: Sequence[str]) -> None:
    """The job's resources, as submitit names them; the user's options override ours."""
    needs: dict[str, Any] = {"job_name": work.name, "time": MINUTES, "nodes": 1, "ntasks_per_node": 1}
    needs["cpus_per_task"] = CORES_PER_PROCESS * work.processes
    if isinstance(work, Job):
        needs["gpus_per_node"] = work.processes
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise BadInput(f"--slurm is {option!r}; it must be NAME=VALUE, such as partition=gpu")
        needs[name] = int(value) if value.isdigit() else value
    try:
        executor.update_parameters(**needs, additional_parameters=dict(more))
    except ValueError as error:
        raise BadInput(f"--slurm: {str(error).splitlines()[0]}") from None


def _with_data(jobs: Sequence[Job]) -> list[Data | Job]:
    """The stores, each once, followed by the jobs."""
    return [*_data(jobs), *jobs]


def _data(jobs: Sequence[Job]) -> list[Data]:
    return list(dict.fromkeys(job.data for job in jobs))


def _run(work: Data | Job, log: Path | None, environment: Mapping[str, str] | None = None) -> None:
    for command in work.commands():
        if log is None:
            print(shlex.join(command), flush=True)
            code = _exit_code(command, env=environment)
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                print(shlex.join(command), file=file, flush=True)
                code = _exit_code(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        seen = f"; {log} says why" if log is not None else ""
        if code:
            raise BadInput(f"{work.name} ended with exit code {code}{seen}. The same command continues")
        if isinstance(work, Job) and not work.is_trained:
            raise BadInput(f"{work.name} was stopped before its end{seen}. The same command continues")


def _exit_code(command: Command, **options: Any) -> int:
    """Exit code of a command. Ctrl-C reaches the command too, and it gets the time to save, where `subprocess.run`
    would kill it."""
    program, *words = command
    interrupted = False
    with subprocess.Popen([*PROGRAMS[program], *words], **options) as process:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return code
