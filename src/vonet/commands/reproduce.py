"""`vonet reproduce`: rerun what we report, and print expected beside found scores."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vonet.errors import BadInput

if TYPE_CHECKING:
    from vonet.data.generate import World
    from vonet.evaluation.report import Report

ABOUT = "rerun what we report, and compare"
DESCRIPTION = (
    "Generates the world, trains, scores, and prints expected beside found scores. An interrupted command continues "
    "when it is run again; finished worlds and trainings are used again."
)

SCORES = ("fg_ari", "miou", "offline_fg_ari", "offline_miou")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="closeup (an hour per seed on one core), sprites (a quarter of an hour) or methods (hours)",
    )
    parser.add_argument("--only", metavar="EXPERIMENT", help="just this experiment")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="just these seeds")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="where runs go (default: reproduced)")


def run(arguments: Namespace) -> None:
    print(reproduce(arguments.what, arguments.out, arguments.only, arguments.seeds))


@dataclass(frozen=True)
class Reported:
    """An experiment, and the generated world in which we ran it."""

    experiment: str
    world: World
    videos: Mapping[str, int]
    seeds: tuple[int, ...]


def reported() -> dict[str, tuple[Reported, ...]]:
    """What can be rerun, by name."""
    from vonet.data.scenes.video import WorldConfig
    from vonet.data.sprites import SpritesConfig
    from vonet.experiments.registry import BASELINES

    videos = {"train": 300, "validation": 64}
    level_a = WorldConfig("A", size=64, frames=24, seed=0, objects=(3, 6))
    closeup = WorldConfig("A", size=32, frames=24, seed=0, objects=(2, 4), camera_distance=0.6)
    return {
        "closeup": (Reported("vonet-closeup", closeup, {"train": 3_000, "validation": 128}, seeds=(0, 1)),),
        "sprites": (Reported("vonet-sprites", SpritesConfig(), videos, seeds=(0, 1, 2)),),
        "methods": tuple(Reported(f"{method}-laptop-a", level_a, videos, seeds=(0,)) for method in BASELINES),
    }


def reproduce(name: str, out: Path, only: str | None = None, seeds: Sequence[int] | None = None) -> str:
    """The table of expected and found scores."""
    known = reported()
    if name not in known:
        raise BadInput(f"nothing is reported as {name!r}; possible: {', '.join(known)}")
    chosen = [one for one in known[name] if only in (None, one.experiment)]
    if not chosen:
        possible = ", ".join(one.experiment for one in known[name])
        raise BadInput(f"{only!r} is not among the experiments of {name!r}: {possible}")
    lines = ["| experiment | score | expected | found (each seed) |", "|---|---|---|---|"]
    for one in chosen:
        lines += _rows(one, out, tuple(seeds) if seeds else one.seeds)
    return "\n".join(lines)


def _rows(one: Reported, out: Path, seeds: Sequence[int]) -> list[str]:
    import numpy as np

    from vonet import experiments
    from vonet.data.generate import generate
    from vonet.data.work import cores

    experiment = experiments.get(one.experiment)
    world = out / f"world-{one.world.name}-{sum(one.videos.values())}"
    generate(one.world, dict(one.videos), world, cores())
    reports = [_run(one, world, out / f"{one.experiment}-seed{seed}", seed) for seed in seeds]
    found = [{**report.as_json(), **_offline(report)} for report in reports]
    rows = []
    for score in experiment.measured or SCORES:
        values = [100 * scores[score] for scores in found]
        each = ", ".join(f"{value:.1f}" for value in values)
        expected = f"{experiment.measured[score]:.1f}" if score in experiment.measured else "not measured"
        rows.append(f"| {experiment.name} | {score} | {expected} | {np.mean(values):.1f} ({each}) |")
    return rows


def _offline(report: Report) -> dict[str, float]:
    return {f"offline_{name}": value for name, value in report.as_json()["offline"].items()}


def _run(one: Reported, world: Path, folder: Path, seed: int) -> Report:
    from vonet import experiments
    from vonet.evaluation.evaluate import evaluate
    from vonet.training.run import TrainOptions, train_to_the_end

    train_to_the_end(experiments.get(one.experiment), world, folder, TrainOptions(seed=seed, videos=8))
    report = evaluate(folder, world)
    assert report is not None, "one process reproduces"
    report.write_beside(folder)
    return report
