"""Experiments for a laptop: generated worlds, two CPU cores, an hour or less.

The structure is the paper's; the parts that differ, and why, are in docs/deviations.md and docs/log.md.
"""

from __future__ import annotations

from vonet.blocks.broadcast import ShadedColourConfig
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.experiment import Experiment
from vonet.model.attention import DotAttentionConfig, ScaleShiftConfig, UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.broadcast_decoder import BroadcastDecoderConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.slots import ContextConfig, SlotEncoderConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig


def laptop_a() -> Experiment[VONetConfig]:
    """VONet on `vonet generate A --objects 3 6`: half an hour on one core."""
    updates = 5_000
    rate = Schedule(((0, 7e-5), (200, 7e-4), (1_750, 7e-4), (updates, 2e-5)))
    slot_dim = 64
    return Experiment(
        name="laptop-a",
        summary="VONet on generated level A with few objects, on a laptop (in the making)",
        dataset="laptop-a",
        cost="half an hour on one CPU core",
        measured={"fg_ari": 43.8, "miou": 48.9},
        model=VONetConfig(
            size=(64, 64),
            slots=7,
            slot_dim=slot_dim,
            backbone=BackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64),
            attention=UNetAttentionConfig(
                estimate=DotAttentionConfig(norm="layer", scale=1.0),
                unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
                transformer=SlotTransformerConfig(head_width=64),
                conditioning=ScaleShiftConfig(),
                reduction=2,
            ),
            context=ContextConfig(residual=True),
            slot_encoder=SlotEncoderConfig(pooling="mask"),
            sequential_vae=SequentialVAEConfig(initial_log_std=-3.0),
            decoder=BroadcastDecoderConfig(
                painter=ShadedColourConfig(), reading="blend", sigma=0.05, brightness=0.3, reduction=2
            ),
            compact=True,
            enlargement="bilinear",
        ),
        training=TrainingConfig(
            updates=updates,
            batch=8,
            segment=3,
            weights={
                "reconstruction": constant(1.0),
                "kl": Schedule(((0, 0.0), (1_500, 0.2 / slot_dim))),
                "scatter": Schedule(((0, 0.0), (200, 0.0), (1_200, 0.05))),
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
