"""`vonet reproduce`: rerun our results or the paper's, and print expected scores beside found ones."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from vonet.commands.jobs import Command, Data, Job
from vonet.errors import BadInput

ABOUT = "rerun our results or the paper's, and compare scores"
DESCRIPTION = (
    "Makes the data, trains, scores, and prints expected beside found scores. An interrupted command continues when it "
    "is run again, and finished data and trainings are reused. `paper` is Table 1 of the VONet paper: it needs MOVi "
    "(docs/tutorials/reproduce.md) and, with the paper's own hardware, days on four GPUs for each training. `table1` "
    "is a small version of that table: close-ups of generated levels A to C, about an hour on one core for each "
    "training."
)

SCORES = ("fg_ari", "miou", "offline_fg_ari", "offline_miou")
PLACES = ("local", "slurm")
SMALL_LEVELS = tuple("abc")
"""The generated levels of `table1`."""
TABLE1_VONET = "vonet-closeup-hour"
"""The VONet of `table1`, whose number of slots the methods without learning have too."""
REFERENCES = ("mixture (no learning)", "k-means", "blocks")
GPUS = 4
"""The paper trained on four GPUs."""
BUCKET = "gs://kubric-public/tfds"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="closeup (half an hour per seed on one core), corrected (20 minutes per seed), tokens (40 minutes), "
        "laptop (an hour: three trainings), spmot (an hour), sprites (minutes), ablations (four hours), methods "
        "(hours), table1 (21 trainings of about an hour) or paper (days)",
    )
    parser.add_argument("--only", metavar="EXPERIMENT", help="only this experiment")
    parser.add_argument("--level", help="paper, table1: only this level, a to e")
    parser.add_argument("--seeds", type=int, metavar="N", help="this many seeds, from 0 on (default: as reported)")
    parser.add_argument("--seed", type=int, nargs="+", metavar="SEED", help="only these seeds")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="where runs go (default: reproduced)")
    parser.add_argument("--data", type=Path, default=Path("movi"), help="paper: folder of MOVi (default: movi)")
    parser.add_argument("--gpus", type=int, help=f"paper: processes of each training, one per GPU (default: {GPUS})")
    parser.add_argument("--on", default="local", metavar="PLACE", help="local (default) or slurm, through submitit")
    parser.add_argument("--workers", type=int, default=1, help="local: trainings at a time (default: 1)")
    parser.add_argument(
        "--slurm", nargs="+", default=[], metavar="NAME=VALUE", help="options of the jobs, such as partition=gpu"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the commands that are left to do")
    parser.add_argument("--table", action="store_true", help="only print the scores so far")


def run(arguments: Namespace) -> None:
    from vonet.commands import jobs as work

    if arguments.on not in PLACES:
        raise BadInput(f"--on is {arguments.on!r}; expected one of {', '.join(PLACES)}")
    jobs = chosen_jobs(arguments)
    if arguments.dry_run:
        fetched = [fetch for job in jobs for fetch in _fetch(job)]
        for command in (*dict.fromkeys(fetched), *work.plan(jobs), _table_command(arguments)):
            print(shlex.join(command))
        return
    if not arguments.table:
        _check_data(jobs)
        if arguments.on == "slurm":
            numbers = work.submit(jobs, arguments.out / "slurm", arguments.slurm)
            for name, number in numbers.items():
                print(f"{number}  {name}")
            print(f"{len(numbers)} jobs were submitted. Add --table to this command to see the scores so far.")
            return
        work.run_here(jobs, arguments.workers)
    print(levels_table(jobs) if arguments.what == "table1" else table(jobs))


@dataclass(frozen=True)
class Reported:
    """An experiment, and the command (without its `--out`) that generates its videos.

    Attributes:
        experiment: Name of the experiment.
        make: The command.
        store: Name of the videos' folder.
        seeds: Seeds of the trainings.
        level: Level of the videos, if the table has a column for each level.
        movi: Folder with MOVi's files below --data, if the videos are MOVi's.
        updates: Number of updates, if it differs from the experiment's.
        size: Size to which videos are resized for training; they are scored at their own size.
        scoring: Options of `vonet evaluate`.
        start: Experiment among those before it whose first seed gives the initial weights.
    """

    experiment: str
    make: Command
    store: str
    seeds: tuple[int, ...]
    level: str | None = None
    movi: str | None = None
    updates: int | None = None
    size: int | None = None
    scoring: Command = ()
    start: str | None = None


def reported() -> dict[str, tuple[Reported, ...]]:
    """The results that can be reproduced, by name."""
    from vonet.experiments.paper_scores import LEVELS, METHODS
    from vonet.experiments.registry import BASELINES

    def near(level: str) -> Command:
        options = ("--camera-distance", "0.6", "--objects", "2", "4", "--size", "32")
        return ("vonet", "generate", level.upper(), *options, "--train", "3000", "--validation", "128")

    counts = ("--train", "300", "--validation", "64")
    sprites = ("vonet", "generate", "sprites", *counts)
    level_a = ("vonet", "generate", "A", "--objects", "3", "6", *counts)
    closeup = near("a")
    laptop = ("vonet", "generate", "A", "--objects", "3", "6", "--train", "3000", "--validation", "128")
    few = ("vonet", "generate", "A", "--objects", "3", "6", "--train", "1000", "--validation", "128")
    movi = {level: f"movi_{level}/128x128/1.0.0" for level in LEVELS}
    return {
        "closeup": (Reported("vonet-closeup", closeup, "world-closeup", seeds=(0, 1, 2)),),
        "corrected": (Reported("vonet-closeup-corrected", closeup, "world-closeup", seeds=(0, 1)),),
        "tokens": (Reported("vonet-closeup-tokens", closeup, "world-closeup", seeds=(0, 1), scoring=("--pictures",)),),
        "ablations": (
            Reported("vonet-closeup-wo-unet", closeup, "world-closeup", seeds=(0,)),
            *(
                Reported(
                    f"vonet-closeup-tokens-{ablation}",
                    closeup,
                    "world-closeup",
                    seeds=(0, 1),
                    scoring=("--pictures",),
                    start="vonet-closeup-wo-unet" if ablation == "wo-unet" else None,
                )
                for ablation in ("wo-unet", "wo-klbal", "wo-replay")
            ),
        ),
        "laptop": (
            Reported("vonet-laptop", laptop, "world-laptop", seeds=(0,)),
            Reported("vonet-laptop-corrected", few, "world-laptop-1000", seeds=(0, 1)),
        ),
        "spmot": tuple(
            Reported(
                experiment,
                ("vonet", "generate", "spmot"),
                "world-spmot",
                seeds=(0, 1),
                size=32,
                scoring=("--split", "test", "--protocol", "spmot"),
            )
            for experiment in ("vonet-spmot", "vonet-spmot-quick")
        ),
        "sprites": (Reported("vonet-sprites", sprites, "world-sprites", seeds=(0, 1, 2)),),
        "methods": tuple(Reported(f"{method}-laptop-a", level_a, "world-A", seeds=(0,)) for method in BASELINES),
        "table1": tuple(
            Reported(
                experiment,
                near(level),
                f"world-closeup-{level}",
                seeds=(0,),
                level=level,
                size=64 if experiment.startswith("scalor") else None,
            )
            for level in SMALL_LEVELS
            for experiment in (TABLE1_VONET, *(f"{method}-closeup" for method in BASELINES))
        ),
        "paper": tuple(
            Reported(
                f"{method.lower()}-movi-{level}", (), f"movi-{level}", seeds=(0, 1, 2), level=level, movi=movi[level]
            )
            for level in LEVELS
            for method in METHODS
        ),
    }


def chosen_jobs(arguments: Namespace) -> list[Job]:
    """The trainings that the options select."""
    known = reported()
    if arguments.what not in known:
        raise BadInput(f"there are no results {arguments.what!r}; expected one of {', '.join(known)}")
    if arguments.gpus is not None and arguments.what != "paper":
        raise BadInput(f"--gpus is for the paper's trainings: vonet reproduce paper --gpus {arguments.gpus}")
    levels = dict.fromkeys(one.level for one in known[arguments.what] if one.level is not None)
    if arguments.level is not None and not levels:
        raise BadInput(f"--level is for paper and table1, such as vonet reproduce paper --level {arguments.level}")
    if arguments.seeds is not None and (arguments.seed or arguments.seeds < 1):
        raise BadInput("Give --seeds a number of seeds above 0, or --seed the seeds themselves.")
    level = None if arguments.level is None else arguments.level.lower()
    if level is not None and level not in levels:
        raise BadInput(f"--level is {arguments.level!r}; expected one of {', '.join(levels)}")
    of_level = [one for one in known[arguments.what] if level in (None, one.level)]
    chosen = [one for one in of_level if arguments.only in (None, one.experiment)]
    if not chosen:
        possible = ", ".join(one.experiment for one in of_level)
        raise BadInput(f"{arguments.only!r} is not among the experiments: {possible}")
    processes = (GPUS if arguments.gpus is None else arguments.gpus) if arguments.what == "paper" else 1
    if processes < 1:
        raise BadInput(f"{processes} GPUs were asked for; at least 1 process is needed")
    first = {one.start for one in chosen}
    starts = [one for one in known[arguments.what] if one.experiment in first and one not in chosen]
    jobs = []
    for one in (*starts, *chosen):
        store = arguments.out / one.store
        make = (*one.make, "--out", str(store))
        if one.movi is not None:
            make = ("vonet", "prepare", str(arguments.data / one.movi), str(store), "--size", "128")
        data = Data(store, make)
        if one.size is not None:
            small = store.with_name(f"{store.name}-{one.size}")
            data = Data(small, ("vonet", "prepare", str(store), str(small), "--size", str(one.size)), source=data)
        seeds = arguments.seed or (one.seeds if arguments.seeds is None else range(arguments.seeds))
        for seed in (0,) if one.experiment in first else seeds:  # others start from the first seed
            videos = "" if one.level is None or one.movi is not None else f"-{one.level}"
            out = arguments.out / f"{one.experiment}{videos}-seed{seed}"
            start = None if one.start is None else arguments.out / f"{one.start}-seed0"
            jobs.append(
                Job(one.experiment, seed, out, data, processes, one.updates, store, one.scoring, one.level, start)
            )
    return jobs


def _table_command(arguments: Namespace) -> Command:
    """The command that prints the table at the end."""
    words = ["vonet", "reproduce", arguments.what, "--table", "--out", str(arguments.out)]
    for option in ("only", "level", "seeds"):
        if (value := getattr(arguments, option)) is not None:
            words += [f"--{option}", str(value)]
    return (*words, *(("--seed", *map(str, arguments.seed)) if arguments.seed else ()))


def _fetch(job: Job) -> list[Command]:
    """The commands that download MOVi, if a store still has to be made from it and its files are missing."""
    _, kind, source, *_ = job.data.make
    if kind != "prepare" or job.data.source is not None or Path(source).exists() or not job.data.commands():
        return []
    folder = Path(source).parent
    public = f"{BUCKET}/{folder.parent.name}/{folder.name}"
    return [("mkdir", "-p", str(folder.parent)), ("gcloud", "storage", "cp", "--recursive", public, str(folder.parent))]


def _check_data(jobs: Sequence[Job]) -> None:
    """Refuse to start without MOVi; nothing is downloaded unless the user asks for it."""
    for job in jobs:
        if fetch := _fetch(job):
            raise BadInput(
                f"MOVi is not at {job.data.make[2]}: fetch it first, with {shlex.join(fetch[-1])}, or say with --data "
                "where it is (docs/tutorials/reproduce.md)"
            )


def table(jobs: Sequence[Job]) -> str:
    """Expected and found scores of every experiment, in percent."""
    from vonet import experiments

    lines = ["| experiment | score | expected | found (each seed) |", "|---|---|---|---|"]
    for name in dict.fromkeys(job.experiment for job in jobs):
        expected = _expected(experiments.get(name))
        found = [job.evaluation() for job in jobs if job.experiment == name]
        for score in expected or SCORES:
            told = _told([_score(evaluation, score) for evaluation in found if evaluation is not None])
            missing = sum(evaluation is None for evaluation in found)
            told += f"; {missing} of {len(found)} not finished" if missing else ""
            lines.append(f"| {name} | {score} | {expected.get(score, 'not measured')} | {told} |")
    return "\n".join(lines)


def levels_table(jobs: Sequence[Job]) -> str:
    """A small version of Table 1 in the paper's layout, FG-ARI / mIoU in percent: trainings, methods without learning,
    and below the paper's own numbers on MOVi, which has other videos."""
    from vonet.experiments import paper_scores
    from vonet.experiments.registry import BASELINES

    levels = list(dict.fromkeys(job.level for job in jobs if job.level is not None))
    found: dict[tuple[str, str | None], list[Mapping[str, float]]] = defaultdict(list)
    for job in jobs:
        if (evaluation := job.evaluation()) is not None:
            found[job.experiment, job.level].append(evaluation)
            if job.experiment == TABLE1_VONET:
                found |= {(method, job.level): [evaluation["trivial"][method]] for method in REFERENCES}

    def cell(scores: Sequence[Mapping[str, float]], scale: float = 100.0) -> str:
        means = [scale * fmean(one[score] for one in scores) for score in ("fg_ari", "miou") if scores]
        return " / ".join(f"{mean:.1f}" for mean in means) or "–"

    def row(words: Sequence[str]) -> str:
        return f"| {' | '.join(words)} |"

    line = row(["---"] * (1 + len(levels)))
    names = [*dict.fromkeys(job.experiment for job in jobs), *REFERENCES]
    lines = [row(["close-ups", *(level.upper() for level in levels)]), line]
    lines += [row([name, *(cell(found[name, level]) for level in levels)]) for name in names]
    lines += ["", row(["the paper", *(f"MOVi-{level.upper()}" for level in levels)]), line]
    for method in sorted(paper_scores.METHODS, key=lambda name: ("vonet", *BASELINES).index(name.lower())):
        lines.append(row([method, *(cell([paper_scores.of_videos(method, level)], scale=1.0) for level in levels)]))
    return "\n".join(lines)


def _expected(experiment: Any) -> Mapping[str, str]:
    """The paper's scores with their standard deviation over three seeds, or our own."""
    from vonet.experiments import paper_scores

    if "-movi-" not in experiment.name:
        return {score: f"{value:.1f}" for score, value in experiment.measured.items()}
    method, _, level = experiment.name.partition("-movi-")
    named = next(known for known in paper_scores.METHODS if known.lower() == method)
    scores = paper_scores.scores(named, level)
    return {score: f"{100 * mean:.1f} ± {100 * std:.1f}" for score, (mean, std) in scores.items()}


def _score(evaluation: Mapping[str, Any], score: str) -> float:
    from vonet.evaluation.spmot import TRACKING_SCORES

    if score in TRACKING_SCORES:
        return evaluation[score]  # in percent already
    offline = score.removeprefix("offline_")
    return 100 * (evaluation[score] if offline == score else evaluation["offline"][offline])


def _told(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{sum(values) / len(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"
