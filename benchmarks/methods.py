"""Every method with its full-size settings, on frames of 64x64 and 128x128: what learning and watching cost a frame."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.measure import take_turns
from vonet import experiments
from vonet.experiments.registry import BASELINES
from vonet.interface import Clip, StreamingModel, total

METHODS = ("vonet", *BASELINES)
"""Whose settings for MOVi-A are taken, at another size of the frames."""
SIZES = (64, 128)
FRAMES = 3
"""Of the clip that is learned from, and that a method without a step watches."""


def methods() -> dict[str, float]:
    for size in SIZES:
        print(f"\nMethods on frames of {size}x{size}, settings for MOVi-A: milliseconds a frame, of one video")
        print(f"{'method':>8} {'slots':>6} {'parameters':>12} {'learning':>10} {'watching':>10}")
        models = {name: _model(name, size) for name in METHODS}
        clip = Clip(torch.rand(1, FRAMES, 3, size, size))
        learning = take_turns({name: partial(_learn, model, clip) for name, model in models.items()}, 3, warm_up=1)
        watching = take_turns({name: partial(_watch, model, clip) for name, model in models.items()}, 5, warm_up=1)
        for name, model in models.items():
            count = sum(p.numel() for p in model.parameters())
            times = f"{1e3 * learning[name] / FRAMES:10.1f} {1e3 * watching[name] / FRAMES:10.1f}"
            print(f"{name:>8} {model.slots:>6} {count:>12,} {times}")
    return {}  # costs of different things have no targets


def _model(name: str, size: int) -> Any:
    torch.manual_seed(0)
    return replace(experiments.get(f"{name}-movi-a").model, size=(size, size)).build()


def _learn(model: Any, clip: Clip) -> None:
    losses = model.train()(clip, model.initial_state(1)).losses
    total(losses, dict.fromkeys(losses, 1.0)).backward()
    model.zero_grad()


@torch.no_grad()
def _watch(model: Any, clip: Clip) -> None:
    """Frame by frame where the method can."""
    state = model.eval().initial_state(1)
    if not isinstance(model, StreamingModel):
        model.unroll(clip, state)
        return
    for frame in clip.frames.unbind(1):
        _, state = model.step(frame, state)
