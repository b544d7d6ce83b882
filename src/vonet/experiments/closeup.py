"""VONet on close-ups of a generated world: the main experiment in which it learns objects on a laptop.

The structure of the model is the paper's. Each replaced part is in `variants/`, with the reason; docs/log/closeup.md
compares them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.experiment import Experiment
from vonet.model.backbone import BackboneConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig
from vonet.variants.detailed_backbone import DetailedBackboneConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.normed_attention import NormedAttentionConfig
from vonet.variants.object_decoder import (
    AlignmentConfig,
    AreaPriceConfig,
    ObjectDecoderConfig,
    SlotPositionsConfig,
    SpreadConfig,
)
from vonet.variants.reduced_unet import ReducedUNetAttentionConfig
from vonet.variants.scale_shift import ScaleShiftConfig
from vonet.variants.slot_colours import CorrectionConfig
from vonet.variants.slot_places import SlotPlacesConfig

SLOT_DIM = 64
BACKBONE: dict[str, Any] = {"channels": (32, 32, 32), "strides": (2, 1, 1), "feature_dim": 64}
REPLAY = ReplayConfig(videos=8, length=256, frames_per_update=1, frames_before_first_update=256, beginnings=0.25)


def vonet_closeup() -> Experiment[VONetConfig]:
    """Trained on `vonet generate A --camera-distance 0.6 --objects 2 4 --size 32 --train 3000`."""
    updates = 12_000
    return Experiment(
        name="vonet-closeup",
        summary="VONet with an object decoder on close-ups of generated level A",
        dataset="closeup-a",
        cost="half an hour on one CPU core",
        measured={"fg_ari": 79.6, "miou": 69.1},
        model=closeup_model(),
        training=closeup_training(
            updates,
            ramp=(1_000, 2_500),
            kl=Schedule(((0, 0.0), (6_000, 0.2 / SLOT_DIM))),
        ),
    )


def vonet_closeup_corrected() -> Experiment[VONetConfig]:
    """`vonet-closeup` with masks at the frame's size that are corrected by colours. The attention learns the corrected
    masks. Slots have a signature and a place."""
    return Experiment(
        name="vonet-closeup-corrected",
        summary="vonet-closeup with fine masks that are corrected by colours, begun from its weights",
        dataset="closeup-a",
        cost="22 minutes on one CPU core, after vonet-closeup",
        measured={"fg_ari": 82.7, "miou": 80.8},
        start="vonet-closeup",
        model=with_correction_and_places(fine_model(AlignmentConfig(correction=CorrectionConfig()))),
        training=replace(continued_training(2_000, rate=1e-3, hold=0.5, area=3.0, replay=REPLAY), average=300),
    )


def vonet_closeup_hour() -> Experiment[VONetConfig]:
    """`vonet-closeup` with the parts of `vonet-closeup-corrected`, except for fine masks, in one training. For the
    comparison with other methods, which get the same hour (`vonet reproduce table1`)."""
    updates = 8_000
    return Experiment(
        name="vonet-closeup-hour",
        summary="vonet-closeup with masks that are corrected by colours, in one training",
        dataset="closeup-a",
        cost="about an hour on one CPU core; not run yet",
        model=with_correction_and_places(closeup_model(alignment=AlignmentConfig(correction=CorrectionConfig()))),
        training=closeup_training(
            updates,
            ramp=(1_000, 2_000),
            kl=Schedule(((0, 0.0), (updates // 2, 0.2 / SLOT_DIM))),
        ),
    )


def with_correction_and_places(model: VONetConfig) -> VONetConfig:
    """The model with corrected masks, signatures and places."""
    assert isinstance(model.decoder, ObjectDecoderConfig)
    decoder = replace(model.decoder, correction=CorrectionConfig())
    return replace(model, decoder=decoder, signature_dim=8, places=SlotPlacesConfig())


def fine_model(
    alignment: AlignmentConfig, size: tuple[int, int] = (32, 32), slots: int = 5, unet_cell: int = 4, reduction: int = 2
) -> VONetConfig:
    """The close-up model with masks at the frame's size. With a `sigma` or a `correction` of the alignment,
    the attention learns the outlines of objects from the decoder's colours."""
    return closeup_model(
        DetailedBackboneConfig(**BACKBONE),
        alignment,
        cell=1,
        unet_cell=unet_cell,
        reduction=reduction,
        size=size,
        slots=slots,
    )


def vonet_closeup_quick() -> Experiment[VONetConfig]:
    """`vonet-closeup` with fewer updates, used by `make demo`."""
    updates = 2_500
    return Experiment(
        name="vonet-closeup-quick",
        summary="vonet-closeup with fewer updates, for make demo",
        dataset="closeup-a",
        cost="five minutes on two CPU cores, with data and scores",
        model=closeup_model(),
        training=closeup_training(
            updates,
            ramp=(1_000, 1_500),
            kl=Schedule(((0, 0.0), (updates, 0.1 / SLOT_DIM))),
        ),
    )


def closeup_model(
    backbone: BackboneConfig | None = None,
    alignment: AlignmentConfig | None = None,
    *,
    cell: int = 2,
    unet_cell: int = 4,
    reduction: int = 2,
    size: tuple[int, int] = (32, 32),
    slots: int = 5,
) -> VONetConfig:
    """cell, unet_cell: Side of a cell of the backbone's features and of the U-Net's map, in pixels. The U-Net's weights
    are for maps of 8x8 cells. reduction: The decoder paints every N-th pixel of a row and a column."""
    return VONetConfig(
        size=size,
        slots=slots,
        slot_dim=SLOT_DIM,
        backbone=backbone or BackboneConfig(**BACKBONE),
        attention=ReducedUNetAttentionConfig(
            estimate=NormedAttentionConfig(scale=0.4),
            unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
            transformer=SlotTransformerConfig(head_width=64),
            conditioning=ScaleShiftConfig(),
            reduction=unet_cell // cell,
        ),
        slot_encoder=MaskPoolingConfig(smallest_area=8 / cell**2),
        sequential_vae=SequentialVAEConfig(initial_log_std=-2.0),
        decoder=ObjectDecoderConfig(
            reduction=reduction,
            hidden=(64, 64, 64),
            positions=SlotPositionsConfig(),
            alignment=alignment or AlignmentConfig(),
            spread=SpreadConfig(),
            price=AreaPriceConfig(),
        ),
        enlargement="bilinear",
    )


def closeup_training(
    updates: int, *, ramp: tuple[int, int], kl: Schedule, replay: ReplayConfig = REPLAY
) -> TrainingConfig:
    """ramp: Updates between which the weights of the losses "spread" and "area" rise from zero.

    The alignment of attention and decoder masks starts at update 750, when both show objects; before, it makes the
    masks uniform. The area loss makes unused slots stop sharing objects, and leaves the background in one slot. Alone
    it would shrink the masks; the spread loss prevents that (docs/log/closeup.md).
    """
    rate = Schedule(((0, 5e-5), (200, 1e-3), (updates * 6 // 10, 1e-3), (updates, 5e-5)))
    return TrainingConfig(
        updates=updates,
        batch=16,
        segment=3,
        weights={
            "reconstruction": constant(1.0),
            "alignment": Schedule(((750, 0.0), (1_250, 0.1))),
            "spread": Schedule(((ramp[0], 0.0), (ramp[1], 1.0))),
            "area": Schedule(((ramp[0], 0.0), (ramp[1], 3.0))),
            "kl": kl,
        },
        optimizer=OptimizerConfig(
            groups={name: GroupConfig(learning_rate=rate, clip=10.0) for name in ("encoder", "decoder")}
        ),
        replay=replay,
    )


def continued_training(
    updates: int, *, rate: float, hold: float, area: float, replay: ReplayConfig, kl: float = 0.2
) -> TrainingConfig:
    """All losses are active from the first update on, because the initial weights already hold objects.

    rate: Learning rate after a short warm-up, constant for this share of the updates (hold). area: Weight of the area
    loss, which should be higher for smaller objects. kl: Weight of the KL divergence per dimension.
    """
    training = closeup_training(updates, ramp=(0, 1), kl=constant(kl / SLOT_DIM), replay=replay)
    rates = Schedule(((0, rate / 20), (100, rate), (round(updates * hold), rate), (updates, rate / 25)))
    groups = {name: replace(group, learning_rate=rates) for name, group in training.optimizer.groups.items()}
    weights = {"alignment": constant(0.1), "spread": constant(1.0), "area": constant(area)}
    return replace(
        training,
        weights={**training.weights, **weights},
        optimizer=replace(training.optimizer, groups=groups),
    )
