"""`vonet figures` as a function: draws figures for papers from runs and evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vonet.data
from vonet.errors import BadInput
from vonet.evaluation.report import read_evaluation
from vonet.experiments import weights
from vonet.experiments.descriptions import fits
from vonet.figures.comparison import compared, method_name, write_bars, write_tables
from vonet.figures.efficiency import write_attention, write_efficiency
from vonet.figures.names import distinct_names, spoken_method
from vonet.figures.report import EVALUATION, LOG, run_data, validation_or_all, watched_videos
from vonet.figures.strips import write_divergence, write_foreground, write_masks, write_reconstructions
from vonet.performance import keep_freed_memory
from vonet.training import log


@dataclass
class Sources:
    """The given sources by kind."""

    runs: dict[str, Path] = field(default_factory=dict)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    benchmarks: list[dict[str, Any]] = field(default_factory=list)


def draw(
    sources: Sequence[Path],
    out: Path,
    *,
    data: Path | None = None,
    split: str | None = None,
    videos: int = 2,
    frames: int = 24,
    progress: bool = True,
) -> list[Path]:
    """Draw every figure that the sources allow: `vonet figures` as a function.

    Args:
        sources: Folders of runs, and JSON files of `vonet evaluate` or `make bench`.
        out: Folder for the figures, each as PDF and PNG.
        data: Videos to show; None: those that the first run was trained on.
        split: Which of the videos; None: `validation`, where there is one, else all.
        videos: Number of videos to show.
        frames: Largest number of frames of each video.
        progress: Whether to show a progress bar.

    Returns:
        The written files.

    Raises:
        BadInput: If a number is less than 1, or the sources have nothing to draw.
    """
    for name, number in (("videos", videos), ("frames", frames)):
        if number < 1:
            raise BadInput(f"--{name} is {number}; it must be 1 or more")
    found = _sorted_out(sources)
    spoken = _spoken(found)
    written = _of_models(found, spoken, out, data, split, videos, frames, progress) if found.runs else []
    written += write_efficiency(out / "efficiency", {spoken.get(name, name): log for name, log in found.logs.items()})
    if found.evaluations:
        comparison = compared(found.evaluations)
        written += write_tables(out / "comparison", comparison) + write_bars(out / "ablation", comparison)
    for benchmark in found.benchmarks:
        written += write_attention(out / "attention", benchmark["slots"], benchmark["milliseconds"])
    if not written:
        raise BadInput(
            f"there is nothing to draw in {', '.join(map(str, sources))}: no weights, scores or log; "
            "give folders of runs, or files that vonet evaluate or make bench wrote"
        )
    return written


def _of_models(
    found: Sources,
    spoken: Mapping[str, str],
    out: Path,
    data: Path | None,
    split: str | None,
    videos: int,
    frames: int,
    progress: bool,
) -> list[Path]:
    keep_freed_memory()
    trained = [run for run in found.runs.values() if not weights.is_method(run)]
    everything = validation_or_all(vonet.data.open(data or run_data(next(iter(trained), None))), split)
    chosen = [everything[i] for i in range(min(videos, len(everything)))]
    seen = {}
    for name, run in found.runs.items():
        model, _ = weights.load(run)
        seen[name] = watched_videos(model, chosen, frames, progress)
    named = {spoken[name]: watched for name, watched in seen.items()}
    written = write_masks(out / "masks", named) + write_foreground(out / "foreground", named)
    for name, watched in seen.items():
        written += write_reconstructions(out / f"{name}-reconstruction", watched)
        written += write_divergence(out / f"{name}-kld", watched)
    return written


def _spoken(found: Sources) -> dict[str, str]:
    """Names of the runs for figures: the names of their methods, if these are different."""
    spoken = {}
    for name, run in found.runs.items():
        _, experiment = weights.load(run)
        about = {"experiment": experiment.name, "dataset": experiment.dataset}
        spoken[name] = spoken_method(method_name(about))
    return distinct_names(spoken)


def _sorted_out(sources: Sequence[Path]) -> Sources:
    found = Sources()
    for source in sources:
        if weights.is_method(source):
            found.runs[str(source)] = source
        elif source.is_dir():
            name = _fresh_name(source, found)
            if (source / weights.WEIGHTS).is_file():
                found.runs[name] = source
            found.logs[name] = log.read(source / LOG)
            found.evaluations += [read_evaluation(path) for path in sorted((source / EVALUATION).glob("*.json"))]
        elif (benchmark := _benchmark(source)) is not None:
            found.benchmarks.append(benchmark)
        elif source.exists():
            found.evaluations.append(read_evaluation(source))
        else:
            raise BadInput(f"there is nothing at {source}; give run folders and JSON files of vonet evaluate")
    return found


def _fresh_name(folder: Path, found: Sources) -> str:
    """The folder's name or, if another folder has the same name, as many parts of its path as needed."""
    parts = folder.resolve().parts[1:]
    names = ("-".join(parts[-count:]) for count in range(1, len(parts) + 1))
    name = next((name for name in names if name not in found.logs), None)
    if name is None:
        raise BadInput(f"{folder} was given twice")
    return name


def _benchmark(path: Path) -> dict[str, Any] | None:
    """The times of attention that `make bench` measured, if the file holds such times."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or {"slots", "milliseconds"} != found.keys():
        return None
    slots, times = found["slots"], found["milliseconds"]
    whole = fits(slots, list[int]) and fits(times, Mapping[str, list[float]])
    if not whole or any(len(of_method) != len(slots) for of_method in times.values()):
        raise BadInput(f"{path} has damaged times; expected a time for each number of slots: run make bench again")
    return found
