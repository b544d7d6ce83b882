"""Weights and videos in, scores out: what `vonet evaluate` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

import vonet.data
from vonet import weights
from vonet.data.video import Video
from vonet.errors import BadInput, check_choice
from vonet.evaluation import protocol as protocols
from vonet.evaluation.report import Report
from vonet.evaluation.run import Row, evaluate_model, evaluate_trivial, in_all_processes
from vonet.interface import Enlargement
from vonet.performance import keep_freed_memory


def evaluate(
    path: Path,
    data: Path,
    *,
    split: str | None = "validation",
    protocol: str = "vonet",
    videos: int | None = None,
    seeds: int = 1,
    batch: int = 8,
    slots: int | None = None,
    masks: Enlargement | None = None,
    progress: bool = True,
) -> Report | None:
    """None in the processes of torchrun that only help. Arguments as those of `vonet evaluate`."""
    rules = protocols.get(protocol)
    if masks is not None:
        check_choice("masks", masks, Enlargement)
    if videos is not None and videos < 1:
        raise BadInput(f"{videos} videos were asked for; at least 1 is needed")
    keep_freed_memory()
    model, experiment = weights.load(path)
    chosen = vonet.data.open(data, split=split)[:videos]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    with _processes() as first:
        with torch.inference_mode():
            look, _ = model.step(torch.zeros(1, 3, *model.size, device=device), model.initial_state(1, slots))
        number, h, w = look.log_masks.shape[-3:]
        how = masks or look.enlargement
        show = progress and first

        def watch(share: Sequence[Video]) -> list[Row]:
            return evaluate_model(
                model, model.size, share, rules, batch=batch, seeds=seeds, slots=slots, enlargement=how, progress=show
            )

        mine = in_all_processes(watch, chosen)
        others = in_all_processes(lambda share: evaluate_trivial(share, rules, number, (h, w), how, show), chosen)
    if mine is None or others is None:
        return None
    about = {
        "experiment": experiment.name,
        "data": data.resolve().name,
        "split": split,
        "videos": len(chosen),
        "protocol": protocol,
        "seeds": seeds,
        "slots": number,
        "masks": how,
        "cells": [h, w],
    }
    return Report(about, [*mine, *others], experiment.paper if protocol == "vonet" else {})


@contextmanager
def _processes() -> Iterator[bool]:
    """Joins the other processes of torchrun, if there are any; gives whether this is the first."""
    from torch import distributed

    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        distributed.init_process_group("gloo")
    try:
        yield not several or distributed.get_rank() == 0
    finally:
        if several:
            distributed.destroy_process_group()
