"""The first minutes with vonet: a small model learns from unlabelled videos which pixels belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from vonet import experiments, weights
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation import protocol as protocols
from vonet.evaluation.report import Report
from vonet.evaluation.run import evaluate_model, evaluate_trivial
from vonet.figures.sheet import coloured, write_sheet
from vonet.interface import Clip
from vonet.model.vonet import VONet
from vonet.performance import keep_freed_memory
from vonet.training.config import TrainingConfig
from vonet.training.loop import Training
from vonet.training.segments import Footage

TRAINING_VIDEOS, TRAINING_SEED, SCORED_VIDEOS, SHOWN_SEED = 256, 1, 32, 2


def run(out: Path, updates: int | None, seed: int) -> None:
    keep_freed_memory()
    experiment = experiments.get("vonet-sprites")
    model = experiment.build_model(seed=seed)
    updates = experiment.training.updates if updates is None else updates
    if updates < 1:
        raise BadInput(f"{updates} updates were asked for; at least 1 is needed")
    pixels, _ = sprite_videos(TRAINING_VIDEOS, seed=TRAINING_SEED)
    shown_pixels, shown_ids = sprite_videos(1, seed=SHOWN_SEED)
    shown = Clip(_frames(shown_pixels))
    print(f"Learning objects from {len(pixels)} videos of sprites, without labels ({experiment.name}).")

    history = [_segments(model, shown)]
    progress = tqdm(train(model, experiment.training, pixels, updates, seed), total=updates, unit="update")
    for update, losses in enumerate(progress, start=1):
        progress.set_postfix({name: f"{value:.0f}" for name, value in losses.items()}, refresh=False)
        if update % max(updates // 6, 1) == 0:
            history.append(_segments(model, shown))
            write_sheet(out / "learning.png", [shown_pixels[0], *history])

    model.eval()
    with torch.no_grad():
        output = model.unroll(shown, _fixed_state(model))
    pictures = [_pixels(model.pictures(output, source)[0]) for source in ("posterior", "prior")]
    write_sheet(out / "objects.png", [shown_pixels[0], coloured(shown_ids[0]), _segments(model, shown), *pictures])
    print(f"Look at {out / 'learning.png'}: a video never trained on, then its masks as they were learned, row by row.")
    print(
        f"Look at {out / 'objects.png'}: the video, the truth, the masks found, the frames as the slots see them, "
        "and as they were forecast before each was seen."
    )
    weights.save(out, model, experiment)
    print(_report(model))
    print(f"The weights are in {out}. Next: vonet generate A; vonet evaluate {out} worlds/A-64; README.md.")


def _report(model: VONet) -> str:
    """The model on videos never trained on, beside methods that know nothing of objects."""
    pixels, ids = sprite_videos(SCORED_VIDEOS, seed=SHOWN_SEED)
    videos = [ArrayVideo(f"sprites {i}", *pair) for i, pair in enumerate(zip(pixels, ids, strict=True))]
    rules = protocols.get("vonet")
    rows = evaluate_model(model, model.size, videos, rules)
    rows += evaluate_trivial(videos, rules, model.slots, model.cells, model.enlargement)
    report = Report({}, rows, {})
    return f"{report.table()}\nOn {len(videos)} videos never trained on, {report.verdict()}."


def train(model: VONet, config: TrainingConfig, pixels: np.ndarray, updates: int, seed: int = 0):
    """One update after another; yields the losses of each."""
    videos = [ArrayVideo(f"sprites {i}", video) for i, video in enumerate(pixels)]
    training = Training(model, config, Footage(videos, model.size), seed)
    for _ in range(updates):
        yield training.step().losses


def _frames(pixels: np.ndarray) -> Float[Tensor, "B T 3 H W"]:
    return torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).float() / 255


def _pixels(frames: Float[Tensor, "T 3 H W"]) -> np.ndarray:
    return (frames.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()


def _fixed_state(model: VONet):
    return model.initial_state(1, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _segments(model: VONet, clip: Clip) -> np.ndarray:
    """The clip's masks as colours, from the same initial slots each time."""
    return coloured(model.unroll(clip, _fixed_state(model)).masks.argmax(dim=2)[0].numpy())
