"""What each method costs: a training step and a frame of streaming, at 64 pixels (laptop) and 128 (the paper's)."""

from __future__ import annotations

import torch

from benchmarks.measure import take_turns
from vonet import experiments
from vonet.interface import Clip, StreamingModel, total
from vonet.performance import milliseconds_per_frame

EXPERIMENTS = {
    "VONet": ("laptop-a", "vonet-movi-a"),
    "MONet": ("monet-laptop-a", "monet-movi-a"),
    "ViMON": ("vimon-laptop-a", "vimon-movi-a"),
    "SCALOR": ("scalor-laptop-a", "scalor-movi-a"),
}
"""Of each method: at 64 pixels, and at 128."""
FRAMES = 6
"""Streamed; the first two warm up."""


def models() -> dict[str, float]:
    print("\nEach method: a training step for one segment, and a frame of streaming")
    for name, chosen in EXPERIMENTS.items():
        said = []
        for experiment in map(experiments.get, chosen):
            model = experiment.build_model(seed=0)
            side, slots = experiment.model.size[0], experiment.model.slots
            learn = take_turns({name: _training_step(experiment, model)}, rounds=2, warm_up=1)[name]
            frames = torch.rand(FRAMES, 3, side, side)
            stream = milliseconds_per_frame(model.eval(), frames)
            how = "a frame" if isinstance(model, StreamingModel) else "a frame of a whole clip"
            said.append(
                f"{side} pixels, K={slots}: {learn:.2f} s for {experiment.training.segment} frames, "
                f"{stream:.0f} ms {how}"
            )
        print(f"{name:7} " + "; ".join(said))
    return {}


def _training_step(experiment, model):
    side, length = experiment.model.size[0], experiment.training.segment
    clip, state = Clip(torch.rand(1, length, 3, side, side)), model.initial_state(1).detach()

    def step() -> None:
        losses = model.train()(clip, state).losses
        total(losses, dict.fromkeys(losses, 1.0)).backward()
        model.zero_grad()

    return step
