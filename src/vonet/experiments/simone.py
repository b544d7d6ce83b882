"""SIMONe as the VONet paper ran it, and on a laptop."""

from __future__ import annotations

from vonet.baselines.simone import SIMONeConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import SMALL_WORLDS, laptop_rate
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig

FRAMES = 24
"""Frames of a video, and so of a segment."""


def _training(updates: int, batch: int, rate: Schedule, frames: int = FRAMES) -> TrainingConfig:
    return TrainingConfig(
        updates=updates,
        batch=batch,
        segment=frames,
        weights={"reconstruction": constant(0.2), "object_kl": constant(1e-5), "frame_kl": constant(1e-4)},
        optimizer=OptimizerConfig(groups={"model": GroupConfig(learning_rate=rate, clip=5.0)}, eps=1e-8),
        replay=None,
    )


def simone_movi(level: str) -> Experiment[SIMONeConfig]:
    """SIMONe on MOVi at 64x64 (`vonet prepare --size 64 64`): 16 slots, whole videos and batches of 40 as in the VONet
    paper, everything else as in the re-implementation that it used. The paper does not give the number of updates;
    100,000 is our choice. We have not run it."""
    return Experiment(
        name=f"simone-movi-{level}",
        summary=f"SIMONe on MOVi-{level.upper()} at 64x64, as in the VONet paper",
        dataset=f"movi-{level}",
        model=SIMONeConfig(),
        training=_training(100_000, batch=40, rate=constant(2e-4)),
        cost="not run by us",
        paper=paper_scores.of_videos("SIMONe", level),
    )


def simone_laptop_a() -> Experiment[SIMONeConfig]:
    """SIMONe on `vonet generate A --objects 3 6`: a quarter of a second per update on one core, with one video per
    update. It has eight slots, the cells of a 2x4 grid. Latents start with little noise, and one pixel in sixteen is
    decoded."""
    updates = 5_150
    return Experiment(
        name="simone-laptop-a",
        summary="SIMONe on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="22 minutes on one CPU core",
        measured={"fg_ari": 0.5, "miou": 19.6},
        model=SIMONeConfig(
            grid=(2, 4),
            channels=(32, 64, 64),
            width=128,
            heads=4,
            hidden=256,
            layers=1,
            latent_dim=16,
            latent_hidden=256,
            initial_log_std=-2.0,
            decoder=(128, 128, 128),
            pixel_stride=4,
        ),
        training=_training(updates, batch=1, rate=Schedule(((0, 5e-5), (250, 5e-4), (3_750, 5e-4), (updates, 5e-5)))),
    )


def simone_small(world: str) -> Experiment[SIMONeConfig]:
    """SIMONe on whole videos of 32x32 pixels. Slots are the cells of a grid: four on Sprites-MOT, eight on close-ups
    (five are needed). Latents begin with little noise, and one pixel of four is decoded."""
    where, updates = SMALL_WORLDS[world], 8_500
    return Experiment(
        name=f"simone-{world}",
        summary=f"SIMONe on {where.title} at 32 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=SIMONeConfig(
            size=(32, 32),
            grid=(2, 2) if where.slots <= 4 else (2, 4),
            channels=(32, 64),
            width=128,
            heads=4,
            hidden=256,
            layers=2,
            latent_dim=16,
            latent_hidden=256,
            initial_log_std=-2.0,
            decoder=(128, 128, 128),
            pixel_stride=2,
        ),
        training=_training(updates, batch=80 // where.frames, rate=laptop_rate(5e-4, updates), frames=where.frames),
    )
