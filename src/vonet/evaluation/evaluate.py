"""`vonet evaluate` as a function: scores weights on videos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import vonet.data
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.video import Video
from vonet.errors import BadInput, check_choice
from vonet.evaluation import protocol as protocols
from vonet.evaluation.painting import check_paints, score_pictures
from vonet.evaluation.references import evaluate_references
from vonet.evaluation.report import Report
from vonet.evaluation.run import Row, evaluate_model, frames_of, in_all_processes
from vonet.experiments import weights
from vonet.interface import Enlargement
from vonet.performance import keep_freed_memory, milliseconds_per_frame
from vonet.training.distributed import joined_processes

TIMED = 24
"""Number of frames of the first video on which the time per frame is measured."""


def evaluate(
    path: Path | str,
    data: Path | str,
    *,
    split: str | None = "validation",
    protocol: str = "vonet",
    videos: int | None = None,
    seeds: int = 1,
    batch: int = 8,
    slots: int | None = None,
    masks: Enlargement | None = None,
    pictures: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: bool = True,
) -> Report | None:
    """Score a model on videos with true ids, beside methods without learning.

    Args:
        path: What `vonet.load` takes: a run's folder, a file of weights, or a name.
        data: What `vonet.data.open` takes, with true ids.
        split: Split of the data; None: all videos.
        protocol: The protocol: "vonet", "savi", "steve", "videosaur" or "spmot".
        videos: Use only the first N videos.
        seeds: Number of draws of the slots' noise; scores are means over them.
        batch: Number of videos processed at a time. It does not change scores.
        slots: Number of slots; by default the model's.
        masks: How masks are enlarged, "nearest" or "bilinear"; by default the model's way.
        pictures: Whether the model's reconstructions are scored too: the shares of object and of background pixels with
            the right colour.
        limits: Memory limits for reading.
        progress: Whether a progress bar is drawn.

    Returns:
        Scores of every video and their means. Under torchrun only the first process gets them, the others get None.

    Raises:
        BadInput: If weights, data or options cannot be used.
    """
    rules = protocols.get(protocol)
    if masks is not None:
        check_choice("masks", masks, Enlargement)
    if videos is not None and videos < 1:
        raise BadInput(f"{videos} videos were asked for; at least 1 is needed")
    keep_freed_memory()
    model, experiment = weights.load(path)
    if pictures:
        check_paints(model)
    checksum = weights.checksum(path)  # now: a training may replace the file meanwhile
    everything = vonet.data.open(data, split, limits)
    chosen = everything[:videos]
    with joined_processes() as processes:
        model.to(processes.device)
        number, cells = model.slots if slots is None else slots, model.cells
        how = masks or model.enlargement
        show = progress and processes.is_first

        def watch(share: Sequence[Video]) -> list[Row]:
            return evaluate_model(
                model,
                model.size,
                share,
                rules,
                batch=batch,
                seeds=seeds,
                slots=slots,
                enlargement=how,
                offline=True,
                progress=show,
            )

        mine = in_all_processes(watch, chosen)
        shown = frames_of(chosen[0], model.size, TIMED).to(processes.device)
        milliseconds = milliseconds_per_frame(model, shown, slots)

        def compare(share: Sequence[Video]) -> list[Row]:
            return evaluate_references(model, share, rules, slots=slots, enlargement=how, progress=show)

        others = in_all_processes(compare, chosen)
        painted = score_pictures(model, chosen, slots) if pictures and processes.is_first else None
    if mine is None or others is None:
        return None
    about = {
        "experiment": experiment.name,
        "dataset": experiment.dataset,
        "weights": str(path),
        "checksum": checksum,
        "data": str(data),
        "found_at": str(Path(data).resolve()),
        "layout": everything.layout,
        "split": split,
        "videos": len(chosen),
        "protocol": protocol,
        "seeds": seeds,
        "slots": number,
        "masks": how,
        "cells": list(cells),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "milliseconds": milliseconds,
        "problems": everything.problems,
        **({} if painted is None else {"painted": painted}),
    }
    as_the_paper = (
        protocol == "vonet"
        and split == "validation"
        and experiment.dataset.replace("-", "_") in everything.layout
        and (len(chosen), number, how) == (len(everything), model.slots, model.enlargement)
    )
    return Report(about, [*mine, *others], experiment.paper if as_the_paper else {})
