"""`vonet report` as a function: writes a run as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

import vonet.data
from vonet.data.video import Video, Videos
from vonet.errors import BadInput
from vonet.evaluation import protocol as protocols
from vonet.evaluation.evaluate import evaluate
from vonet.evaluation.report import EVALUATION, read_evaluation
from vonet.experiments import paper_scores, weights
from vonet.experiments.experiment import Experiment
from vonet.figures.page import Contents, Method, write_page
from vonet.figures.watched import Watched, watch
from vonet.performance import keep_freed_memory
from vonet.training import checkpoint, log

PROTOCOL = "vonet"
LOG = "log.jsonl"


def report(
    run: Path,
    data: Path | None = None,
    *,
    split: str | None = None,
    videos: int = 4,
    frames: int = 48,
    scored: int = 16,
    out: Path | None = None,
    progress: bool = True,
) -> Path:
    """Write the HTML page of a run: `vonet report` as a function.

    Args:
        run: A run's folder, a file of weights, or the name of shipped weights or of `mixture`.
        data: Videos to show and score; None: those of the training.
        split: Which of the videos; None: `validation`, where there is one, else all.
        videos: Number of videos to show.
        frames: Largest number of frames of each video.
        scored: Number of videos to score, if `vonet evaluate` has not scored these weights on them.
        out: The file; None: `report.html` in the run's folder, or here.
        progress: Whether to show a progress bar.

    Returns:
        The path of the page.

    Raises:
        BadInput: If a number is less than 1, or the weights or videos cannot be read.
    """
    for name, number in (("videos", videos), ("frames", frames), ("scored", scored)):
        if number < 1:
            raise BadInput(f"--{name} is {number}; it must be 1 or more")
    keep_freed_memory()
    model, experiment = weights.load(run)
    folder = run if run.is_dir() else None
    data = data or run_data(folder)
    chosen = validation_or_all(vonet.data.open(data), split)
    evaluation = _evaluation(run, folder, data, chosen, model.slots, scored, progress)
    entries = log.read(folder / LOG) if folder else []
    path = out or (folder or Path()) / "report.html"
    contents = Contents(
        title=experiment.name,
        summary=_summary(experiment, folder),
        verdict=evaluation.get("verdict", ""),
        facts=_facts(experiment, model, data, chosen, evaluation, entries),
        methods=_methods(experiment, evaluation) if evaluation else (),
        log=entries,
        videos=watched_videos(model, [chosen[i] for i in range(min(videos, len(chosen)))], frames, progress),
        protocol=PROTOCOL,
    )
    write_page(path, contents)
    return path


def _summary(experiment: Experiment, folder: Path | None) -> str:
    """Summary of the run; a run on the user's own videos is described by these videos."""
    about = checkpoint.latest(folder) if folder else None
    if about is None or "path" not in about:
        return experiment.summary
    model, path = experiment.summary.partition(" on ")[0], Path(about["path"])
    try:
        videos = vonet.data.open(path, split="train")
    except BadInput:  # they have moved
        return f"{model}, trained on {path.name}"
    return f"{model}, trained on {_told(videos)} ({path.name})"


def _told(videos: Videos) -> str:
    made_by, number = videos.made_by, f"{len(videos)} {{}}video{'' if len(videos) == 1 else 's'}"
    if made_by.get("command") == "prepare":
        return number.format("prepared ")
    if "level" in made_by:
        return f"{number.format('generated ')} of level {made_by['level']}"
    return number.format("generated ") if made_by else f"{number.format('')} in {videos.layout}"


def run_data(folder: Path | None) -> Path:
    """The path of the videos on which a run was trained, from its checkpoint."""
    about = checkpoint.latest(folder) if folder else None
    path = Path(about["path"]) if about and "path" in about else None
    if path is None or not path.exists():
        moved = f"{path} no longer exists" if path else "which videos it was trained on is not known"
        raise BadInput(f"{folder or 'this file of weights'}: {moved}; add --data VIDEOS")
    return path


def validation_or_all(videos: Videos, split: str | None) -> Videos:
    """The videos of a split; by default of `validation`, or all if there is no such split."""
    return videos.in_split(split or ("validation" if "validation" in videos.splits else None))


def watched_videos(model: Any, videos: Sequence[Video], frames: int, progress: bool = True) -> list[Watched]:
    """Runs the model on the videos under the conditions of scoring: the same slots, and null pixels if the protocol has
    them."""
    min_probability = protocols.get(PROTOCOL).min_probability
    bar = tqdm(videos, desc="segmenting", unit="video", disable=None if progress else True)
    return [watch(model, video, longest=frames, min_probability=min_probability) for video in bar]


def _evaluation(
    run: Path, folder: Path | None, data: Path, videos: Videos, slots: int, scored: int, progress: bool
) -> Mapping[str, Any]:
    """The evaluation that `vonet evaluate` wrote for these weights and videos. If there is none, the first few videos
    are evaluated; without true ids the result is empty."""
    chosen = videos[:scored]
    if not all(video.has_ids for video in chosen):
        return {}
    split = chosen[0].split
    earlier = _earlier(folder, data, split, slots) if folder else None
    if earlier is not None:
        return earlier
    found = evaluate(run, data, split=split, protocol=PROTOCOL, videos=scored, progress=progress)
    assert found is not None, "a report is made by one process"
    if folder:
        found.write_beside(folder)
    return found.as_json()


def _earlier(folder: Path, data: Path, split: str, slots: int) -> dict[str, Any] | None:
    """The evaluation with the most videos of exactly these weights, with the same number of slots. Weights are compared
    by checksum, because file times are not reliable for copied runs."""
    wanted = {
        "checksum": weights.checksum(folder),
        "found_at": str(data.resolve()),
        "split": split,
        "protocol": PROTOCOL,
        "slots": slots,
    }
    evaluations = [read_evaluation(path) for path in sorted((folder / EVALUATION).glob("*.json"))]
    found = [about for about in evaluations if wanted.items() <= about.items()]
    return max(found, key=lambda about: (about["videos"], about["seeds"]), default=None)


def _methods(experiment: Experiment, evaluation: Mapping[str, Any]) -> list[Method]:
    names = [name for name in protocols.SCORES if name in evaluation]
    methods = [Method("this model", "model", {name: evaluation[name] for name in names}, evaluation["std"])]
    if evaluation["offline"]:
        methods.append(Method("offline", "offline", evaluation["offline"]))
    methods += [Method(name, "trivial", scores) for name, scores in evaluation["trivial"].items()]
    if evaluation["ceiling"]:
        methods.append(Method("perfect masks", "ceiling", evaluation["ceiling"]))
    return methods + _papers(experiment, evaluation)


def _papers(experiment: Experiment, evaluation: Mapping[str, Any]) -> list[Method]:
    """The paper's table if the videos are MOVi's; otherwise only its VONet score on the corresponding level of MOVi."""
    *_, level = experiment.dataset.split("-")
    if level not in paper_scores.LEVELS:
        return []
    exact = bool(evaluation["paper"])
    where = f"MOVi-{level.upper()}"
    note = (
        "" if exact else f"The paper's score is of its own setting on {where}, not of this one: for orientation only."
    )
    found = []
    for name in reversed(paper_scores.METHODS) if exact else ("VONet",):
        scores = paper_scores.scores(name, level)
        means, std = ({score: both[i] for score, both in scores.items()} for i in (0, 1))
        found.append(Method(f"{name}, paper" if exact else f"{name}, paper, {where}", "paper", means, std, note))
    return found


def _facts(
    experiment: Experiment,
    model: Any,
    data: Path,
    videos: Videos,
    evaluation: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
) -> dict[str, str]:
    parameters = sum(p.numel() for p in model.parameters())
    facts = {
        "experiment": experiment.name,
        "parameters": f"{parameters / 1e6:.2f} million",
        "slots": str(model.slots),
        "frames": f"{model.size[0]} x {model.size[1]} pixels",
        "videos": f"{data} ({videos.layout})",
    }
    if entries:
        facts["trained"] = f"{entries[-1]['update']} updates in {_duration(entries[-1]['seconds'])}"
    if evaluation:
        seeds = f", {evaluation['seeds']} draws of the slots' noise" if evaluation["seeds"] > 1 else ""
        facts["scored"] = f"{evaluation['videos']} videos of split {evaluation['split']}{seeds}"
        facts["protocol"] = evaluation["protocol"]
    return {**facts, "made by": f"vonet {vonet.__version__}"}


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.0f} minutes"
