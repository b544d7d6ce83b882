"""A small experiment that trains in minutes on two CPU cores: moving sprites, no download."""

from __future__ import annotations

from vonet.blocks.broadcast import SpatialBroadcastConfig
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.experiment import Experiment
from vonet.model.attention import UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.variants.broadcast_decoder import BroadcastDecoderConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.scale_shift import ScaleShiftConfig


def vonet_sprites() -> Experiment[VONetConfig]:
    """VONet with the broadcast decoder on moving sprites. Cost: four minutes on two cores. Scores:
    docs/log/sprites.md."""
    updates = 1_000
    rate = Schedule(((0, 1e-4), (100, 1e-3), (700, 1e-3), (updates, 1e-4)))
    return Experiment(
        name="vonet-sprites",
        summary="VONet with a broadcast decoder on moving sprites, in minutes on a laptop",
        dataset="sprites",
        cost="four minutes on two CPU cores",
        measured={"fg_ari": 66.4, "miou": 75.5},
        model=VONetConfig(
            size=(32, 32),
            slots=5,
            slot_dim=64,
            backbone=BackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64),
            attention=UNetAttentionConfig(
                unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
                transformer=SlotTransformerConfig(head_width=64),
                conditioning=ScaleShiftConfig(),
            ),
            slot_encoder=MaskPoolingConfig(),
            sequential_vae=SequentialVAEConfig(initial_log_std=-2.0),
            decoder=BroadcastDecoderConfig(
                painter=SpatialBroadcastConfig(grid=8, channels=(32, 32, 32)), reading="blend"
            ),
            enlargement="bilinear",
        ),
        training=TrainingConfig(
            updates=updates,
            batch=8,
            segment=4,
            weights={"reconstruction": constant(1.0), "kl": Schedule(((0, 0.0), (500, 0.02 / 64)))},
            optimizer=OptimizerConfig(
                groups={
                    "encoder": GroupConfig(learning_rate=rate, clip=10.0),
                    "decoder": GroupConfig(learning_rate=rate, clip=10.0),
                }
            ),
            replay=None,
        ),
    )
