"""A training step of three frames at the paper's size: time, and peak memory of a process that does nothing else."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import torch

from benchmarks.measure import take_turns
from tests import plain
from vonet import experiments
from vonet.interface import Clip, total
from vonet.performance import keep_freed_memory

# Seconds and gigabytes of the authors' code on two idle cores of a Xeon, for orientation.
AUTHORS = {1: (6.1, 4.1), 4: (45.7, 11.0)}


def training() -> dict[str, float]:
    print("\nTraining step, 3 frames of 128x128, K=11: forward and backward")
    speed, memory = [], []
    for batch in (1, 4):
        ours, theirs = (_in_a_process(form, batch) for form in ("ours", "plain"))
        speed.append(theirs["seconds"] / ours["seconds"])
        memory.append(ours["gigabytes"] / theirs["gigabytes"])
        print(
            f"batch {batch}: ours {ours['seconds']:.2f} s, {ours['gigabytes']:.2f} GB; "
            f"plain {theirs['seconds']:.2f} s, {theirs['gigabytes']:.2f} GB "
            f"({speed[-1]:.2f} x faster, {memory[-1]:.0%} of the memory); "
            f"the authors' code elsewhere: {AUTHORS[batch][0]} s, {AUTHORS[batch][1]} GB"
        )
    return {"train_vs_plain": min(speed), "train_memory_share": max(memory)}  # the worse of the two batches


def _in_a_process(form: str, batch: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.training", form, str(batch)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _peak_gigabytes() -> float:
    """Of the whole process: Python, torch, the model and its gradients included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _measure(form: str, batch: int) -> None:
    keep_freed_memory()
    model = experiments.get("vonet-movi-a").build_model(seed=0)
    if form == "plain":
        model = plain.PlainVONet(model)
    clip, state = Clip(torch.rand(batch, 3, 3, 128, 128)), model.initial_state(batch).detach()

    def step() -> None:
        losses = model(clip, state).losses
        total(losses, dict.fromkeys(losses, 1.0)).backward()
        model.zero_grad()

    seconds = take_turns({form: step}, rounds=3 if batch == 1 else 2, warm_up=1)[form]
    print(json.dumps({"seconds": seconds, "gigabytes": _peak_gigabytes()}))


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]))
