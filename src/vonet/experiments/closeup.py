"""VONet learns objects on a laptop: close-ups of a generated world, from scratch, without any label.

The structure is the paper's. Each part that replaces one of the paper's stands in `variants/` with its reason; the
comparisons are in docs/log.md.
"""

from __future__ import annotations

from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.experiment import Experiment
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig
from vonet.variants.fine_backbone import FineBackboneConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.normed_attention import NormedAttentionConfig
from vonet.variants.object_decoder import AlignmentConfig, ObjectDecoderConfig, SlotPositionsConfig
from vonet.variants.reduced_unet import ReducedUNetAttentionConfig
from vonet.variants.scale_shift import ScaleShiftConfig

SLOT_DIM = 64


def vonet_closeup() -> Experiment[VONetConfig]:
    """On `vonet generate A --camera-distance 0.6 --objects 2 4 --size 32`. The two masks begin to teach each other when
    both have something to say, at update 500."""
    updates = 16_000
    rate = Schedule(((0, 5e-5), (200, 1e-3), (updates * 6 // 10, 1e-3), (updates, 5e-5)))
    return Experiment(
        name="vonet-closeup",
        summary="VONet finds and follows the objects of close-ups of generated level A, from scratch",
        dataset="closeup-a",
        cost="90 minutes on one CPU core",
        model=VONetConfig(
            size=(32, 32),
            slots=5,
            slot_dim=SLOT_DIM,
            backbone=FineBackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64, detail=16),
            attention=ReducedUNetAttentionConfig(
                estimate=NormedAttentionConfig(scale=0.4),
                unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
                transformer=SlotTransformerConfig(head_width=64),
                conditioning=ScaleShiftConfig(),
                reduction=4,
            ),
            slot_encoder=MaskPoolingConfig(),
            sequential_vae=SequentialVAEConfig(initial_log_std=-2.0),
            decoder=ObjectDecoderConfig(positions=SlotPositionsConfig(), alignment=AlignmentConfig()),
            enlargement="bilinear",
        ),
        training=TrainingConfig(
            updates=updates,
            batch=16,
            segment=3,
            weights={
                "reconstruction": constant(1.0),
                "alignment": Schedule(((500, 0.0), (1_000, 0.1))),
                "kl": Schedule(((0, 0.0), (2_000, 0.02 / SLOT_DIM))),
            },
            optimizer=OptimizerConfig(
                groups={name: GroupConfig(learning_rate=rate, clip=10.0) for name in ("encoder", "decoder")}
            ),
            replay=ReplayConfig(
                videos=8, length=256, frames_per_update=1, frames_before_first_update=256, beginnings=0.25
            ),
        ),
    )
