"""The paper's experiments: VONet on MOVi-A to E, on videos and on single images."""

from __future__ import annotations

from dataclasses import replace

from vonet.blocks.unet import UNetConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import movi_slots
from vonet.model.attention import UNetAttentionConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig

FIVE_LEVELS = (32, 64, 64, 128, 128)
SIX_LEVELS = (*FIVE_LEVELS, 128)


def vonet_movi(level: str) -> Experiment[VONetConfig]:
    """VONet on MOVi, every hyper-parameter as in the paper's appendix.

    Cost according to the paper: 150,000 updates, 36 hours on four RTX 3090. We have not run it.
    """
    many_objects, textured = level in "de", level in "cde"
    model = VONetConfig(
        size=(128, 128),
        slots=movi_slots(level),
        slot_dim=128,
        attention=UNetAttentionConfig(unet=UNetConfig(channels=SIX_LEVELS if textured else FIVE_LEVELS)),
    )
    beta = 20 / model.slot_dim
    training = TrainingConfig(
        updates=150_000,
        batch=24 if many_objects else 32,
        segment=3,
        weights={"tokens": constant(1.0), "pixels": constant(1.0), "kl": Schedule(((0, 0.0), (50_000, beta)))},
        optimizer=OptimizerConfig(
            groups={
                "encoder": GroupConfig(
                    learning_rate=Schedule(((0, 1e-5), (5_000, 1e-4), (100_000, 1e-4), (150_000, 1e-5))), clip=0.1
                ),
                "decoder": GroupConfig(learning_rate=constant(3e-4), clip=0.1),
                "dvae": GroupConfig(learning_rate=constant(1e-3), clip=None),
            }
        ),
        replay=ReplayConfig(),
    )
    return Experiment(
        name=f"vonet-movi-{level}",
        summary=f"VONet on MOVi-{level.upper()}, as in the paper",
        dataset=f"movi-{level}",
        model=model,
        training=training,
        cost="36 hours on four RTX 3090 by the paper; not run by us",
        paper=paper_scores.of_videos("VONet", level),
    )


def vonet_image_movi(level: str) -> Experiment[VONetConfig]:
    """VONet on single frames of MOVi: segments of one frame, always from fresh slots (paper, "Single-frame")."""
    video = vonet_movi(level)
    assert video.training is not None, "VONet has parameters"
    return replace(
        video,
        name=f"vonet-image-movi-{level}",
        summary=f"VONet on single frames of MOVi-{level.upper()}, as in the paper",
        training=replace(video.training, segment=1, replay=None),
        paper=paper_scores.of_single_frames("VONet", level),
    )
