"""SAVi as the VONet paper ran it, and on a laptop."""

from __future__ import annotations

from vonet.baselines.savi import SAViConfig
from vonet.blocks.broadcast import SpatialBroadcastConfig
from vonet.blocks.frame_vectors import ConvStackConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import SMALL_WORLDS, movi_slots
from vonet.schedule import Product, Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig


def _training(updates: int, batch: int, segment: int, peak: float, warm_up: int) -> TrainingConfig:
    """The error is summed over the frames of a segment, and gradients are clipped to a norm of 0.05, which is nearly
    always exceeded."""
    rate = Product(Schedule(((0, 0.0), (warm_up, 1.0))), Schedule(((warm_up, peak), (updates, 0.0)), curve="cosine"))
    return TrainingConfig(
        updates=updates,
        batch=batch,
        segment=segment,
        weights={"reconstruction": constant(float(segment))},
        optimizer=OptimizerConfig(groups={"model": GroupConfig(learning_rate=rate, clip=0.05)}, eps=1e-8),
        replay=None,
    )


def savi_movi(level: str) -> Experiment[SAViConfig]:
    """SAVi on MOVi: 11 or 16 slots, segments of 6 or 3 frames and batches of 32 as in the VONet paper. The paper does
    not give the number of updates; we use 100,000, as in SAVi's released settings of this size. We have not run it."""
    many_objects = level in "de"
    return Experiment(
        name=f"savi-movi-{level}",
        summary=f"SAVi without conditioning on MOVi-{level.upper()}, as in the VONet paper",
        dataset=f"movi-{level}",
        model=SAViConfig(slots=movi_slots(level)),
        training=_training(100_000, batch=32, segment=3 if many_objects else 6, peak=2e-4, warm_up=2_500),
        cost="not run by us",
        paper=paper_scores.of_videos("SAVi", level),
    )


def savi_laptop_a() -> Experiment[SAViConfig]:
    """SAVi on `vonet generate A --objects 3 6`: a quarter of a second per update on one core. It uses two iterations,
    reportedly as in the SAVi paper without conditioning, and reconstructs frames at half their size."""
    return Experiment(
        name="savi-laptop-a",
        summary="SAVi on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="25 minutes on one CPU core",
        model=SAViConfig(
            size=(64, 64),
            slots=7,
            slot_dim=64,
            backbone=ConvStackConfig(channels=(32, 32, 32, 32), strides=(2, 1, 1, 1), kernel=3),
            attention=SlotAttentionConfig(iterations=2, hidden=128),
            predictor_hidden=128,
            decoder=SpatialBroadcastConfig(channels=(32, 32, 32)),
            reduction=2,
            enlargement="bilinear",
        ),
        training=_training(4_600, batch=4, segment=4, peak=2e-4, warm_up=300),
    )


def savi_small(world: str) -> Experiment[SAViConfig]:
    """SAVi on videos of 32x32 pixels. The feature map has the size of the frame, because the
    sprites of Sprites-MOT are only five pixels wide."""
    where, updates = SMALL_WORLDS[world], {"spmot": 18_000, "closeup": 16_000}[world]
    return Experiment(
        name=f"savi-{world}",
        summary=f"SAVi on {where.title} at 32 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=SAViConfig(
            size=(32, 32),
            slots=where.slots,
            slot_dim=64,
            backbone=ConvStackConfig(channels=(32, 32, 32, 32), strides=(1, 1, 1, 1), kernel=5),
            attention=SlotAttentionConfig(iterations=2, hidden=128),
            predictor_hidden=128,
            decoder=SpatialBroadcastConfig(channels=(32, 32, 32)),
        ),
        training=_training(updates, batch=8, segment=4, peak=4e-4, warm_up=updates // 20),
    )
