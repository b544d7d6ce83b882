"""The precision of a training: float32, or bfloat16 where the machine gains from it.

In bfloat16 the convolutions and the large products are computed with 8 significant bits. Parameters, norms, softmaxes,
divergences, losses and the optimiser stay in float32.
"""

from __future__ import annotations

import copy
import time
from typing import Any, Literal

import torch

from vonet.errors import BadInput, check_choice
from vonet.interface import Clip, total
from vonet.training.config import TrainingConfig
from vonet.training.distributed import Processes, any_process

Precision = Literal["float32", "bfloat16"]
Choice = Literal["auto", "float32", "bfloat16"]
WORTH_IT = 1.1
"""Smallest speed-up for which `auto` chooses bfloat16."""
SEGMENTS = 8
"""Largest number of segments in the batch of the speed test."""


def choose(choice: Choice, model: Any, config: TrainingConfig, processes: Processes) -> Precision:
    """Chooses the precision for training. `auto` selects bfloat16 if the forward and backward pass of the model are
    faster in it; all processes use the same."""
    check_choice("precision", choice, Choice)
    possible = can_compute_bfloat16(processes.device)
    if choice == "bfloat16" and not possible:
        raise BadInput(f"this machine ({processes.device}) has no instructions for bfloat16: use --precision float32")
    if choice != "auto":
        return choice
    gains = possible and gain(model, config, processes.device) > WORTH_IT
    return "bfloat16" if any_process(gains, processes) else "float32"


def can_compute_bfloat16(device: str) -> bool:
    """On CPUs bfloat16 needs hardware instructions: without them torch may crash or take many times as long."""
    if device != "cpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())


def gain(model: Any, config: TrainingConfig, device: str, rounds: int = 2) -> float:
    """Speed-up of bfloat16 over float32, measured on a copy of the model with random frames. The state of the random
    generators is restored."""
    batch, learner = min(config.batch, SEGMENTS), copy.deepcopy(model).train()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        clip = Clip(torch.rand(batch, config.segment, 3, *model.size, device=device))
        for turn in range(rounds + 1):
            for half, times in seconds.items():
                took = _seconds(learner, clip, half)
                if turn > 0:  # the first turn warms up
                    times.append(took)
    return min(seconds[False]) / min(seconds[True])


def _seconds(model: Any, clip: Clip, half: bool) -> float:
    """Time of a forward and backward pass: CPU time on a CPU, because other programs may use it too."""
    device = clip.frames.device.type
    clock = time.process_time if device == "cpu" else _synchronised
    begin = clock()
    with torch.autocast(device, torch.bfloat16, enabled=half):
        losses = model(clip, model.initial_state(len(clip.frames)), 0).losses
    total(losses, dict.fromkeys(losses, 1.0)).backward()
    took = clock() - begin
    model.zero_grad()
    return took


def _synchronised() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()
