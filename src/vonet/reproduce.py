"""Rerun what we report: make the worlds, train, score, and print what is found beside what is expected.

Interrupted and started again it goes on; worlds and trainings that are done already are used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vonet import experiments
from vonet.data.scenes.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.work import cores
from vonet.errors import BadInput
from vonet.evaluate import evaluate, file_name
from vonet.evaluation.report import EVALUATION, Report
from vonet.train import TrainOptions, train_to_the_end


@dataclass(frozen=True)
class Reported:
    """An experiment, and the generated world in which we ran it."""

    experiment: str
    world: WorldConfig
    videos: Mapping[str, int]
    seeds: tuple[int, ...] = (0, 1, 2)


LAPTOP_WORLD = WorldConfig("A", size=64, frames=24, seed=0, objects=(3, 6))
TEXTURED_WORLD = WorldConfig("C", size=64, frames=24, seed=0, objects=(3, 6))
MANY, FEW, TEXTURED = ({"train": n, "validation": m} for n, m in ((2_000, 128), (300, 64), (500, 128)))
REPORTED = {
    "laptop": (
        Reported("laptop-quick", LAPTOP_WORLD, FEW),
        Reported("laptop-a", LAPTOP_WORLD, MANY),
        Reported("laptop-c", TEXTURED_WORLD, TEXTURED, seeds=(0,)),
        Reported("laptop-a-tokens", LAPTOP_WORLD, MANY, seeds=(0,)),
    ),
    "ablations": tuple(
        Reported(name, LAPTOP_WORLD, FEW, seeds=(0, 1))
        for name in experiments.names()
        if name.startswith("laptop-quick-")
    ),
    "methods": tuple(
        Reported(f"{method}-laptop-a", LAPTOP_WORLD, FEW, seeds=(0,))
        for method in ("monet", "vimon", "scalor", "savi", "steve", "simone")
    ),
}

SCORES = ("fg_ari", "miou", "offline_fg_ari", "offline_miou")


def reproduce(name: str, out: Path, only: str | None = None, seeds: Sequence[int] | None = None) -> str:
    """The table of what was expected and found."""
    if name not in REPORTED:
        raise BadInput(f"nothing is reported as {name!r}; possible: {', '.join(REPORTED)}")
    chosen = [reported for reported in REPORTED[name] if only in (None, reported.experiment)]
    if not chosen:
        known = ", ".join(reported.experiment for reported in REPORTED[name])
        raise BadInput(f"{only!r} is not among the experiments of {name!r}: {known}")
    lines = ["| experiment | score | expected | found (each seed) |", "|---|---|---|---|"]
    for reported in chosen:
        lines += _rows(reported, out, tuple(seeds) if seeds else reported.seeds)
    return "\n".join(lines)


def _rows(reported: Reported, out: Path, seeds: Sequence[int]) -> list[str]:
    experiment = experiments.get(reported.experiment)
    world = out / f"world-{reported.world.level}-{sum(reported.videos.values())}"
    generate(reported.world, dict(reported.videos), world, cores())
    reports = [_run(reported, world, out / f"{reported.experiment}-seed{seed}", seed) for seed in seeds]
    found = [{**report.as_json(), **_offline(report)} for report in reports]
    rows = []
    for score in experiment.measured or SCORES:
        values = [100 * scores[score] for scores in found]
        each = ", ".join(f"{value:.1f}" for value in values)
        expected = f"{experiment.measured[score]:.1f}" if score in experiment.measured else "docs/ablations.md"
        rows.append(f"| {experiment.name} | {score} | {expected} | {np.mean(values):.1f} ({each}) |")
    return rows


def _offline(report: Report) -> dict[str, float]:
    return {f"offline_{name}": value for name, value in report.as_json()["offline"].items()}


def _run(reported: Reported, world: Path, folder: Path, seed: int) -> Report:
    train_to_the_end(experiments.get(reported.experiment), world, folder, TrainOptions(seed=seed, videos=8))
    report = evaluate(folder, world)
    assert report is not None, "one process reproduces"
    report.write(folder / EVALUATION, file_name(report))
    return report
