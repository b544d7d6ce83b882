"""Experiments for a laptop: generated worlds, two CPU cores, an hour or less.

The structure is the paper's; the parts that differ, and why, are in docs/deviations.md and docs/log.md.
"""

from __future__ import annotations

from vonet.blocks.broadcast import ShadedColourConfig
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.experiment import Experiment
from vonet.model.attention import ScaleShiftConfig, UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.broadcast_decoder import BroadcastDecoderConfig
from vonet.model.regions import RegionsConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.slots import SlotEncoderConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig


def _laptop(
    name: str, summary: str, cost: str, updates: int, measured: tuple[float, float, float, float]
) -> Experiment[VONetConfig]:
    """On `vonet generate A --objects 3 6`."""
    rate = Schedule(((0, 1e-4), (100, 1e-3), (max(101, updates // 3), 1e-3), (updates, 5e-5)))
    slot_dim = 64
    return Experiment(
        name=name,
        summary=summary,
        dataset="laptop-a",
        cost=cost,
        measured=dict(zip(("fg_ari", "miou", "offline_fg_ari", "offline_miou"), measured, strict=True)),
        model=VONetConfig(
            size=(64, 64),
            slots=7,
            slot_dim=slot_dim,
            backbone=BackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64),
            attention=UNetAttentionConfig(
                unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
                transformer=SlotTransformerConfig(head_width=64),
                conditioning=ScaleShiftConfig(),
                reduction=2,
            ),
            regions=RegionsConfig(),
            slot_encoder=SlotEncoderConfig(pooling="mask"),
            sequential_vae=SequentialVAEConfig(initial_log_std=-3.0),
            decoder=BroadcastDecoderConfig(painter=ShadedColourConfig(), reading="blend", sigma=0.05, reduction=2),
            enlargement="bilinear",
        ),
        training=TrainingConfig(
            updates=updates,
            batch=8,
            segment=3,
            weights={
                "reconstruction": constant(1.0),
                "kl": Schedule(((0, 0.0), (updates * 2 // 3, 0.2 / slot_dim))),
                "regions": constant(0.1),
            },
            optimizer=OptimizerConfig(
                groups={
                    "encoder": GroupConfig(learning_rate=rate, clip=10.0),
                    "decoder": GroupConfig(learning_rate=rate, clip=10.0),
                }
            ),
            replay=ReplayConfig(videos=8, length=64, frames_per_update=1, frames_before_first_update=64),
        ),
    )


def laptop_a() -> Experiment[VONetConfig]:
    return _laptop(
        "laptop-a",
        summary="VONet on generated level A with few objects",
        cost="8 minutes on one CPU core",
        updates=600,
        measured=(77.0, 72.5, 80.6, 74.7),
    )


def laptop_quick() -> Experiment[VONetConfig]:
    return _laptop(
        "laptop-quick",
        summary="The same in half the time, for make demo",
        cost="4 minutes on one CPU core",
        updates=300,
        measured=(75.0, 71.6, 78.0, 72.3),
    )
