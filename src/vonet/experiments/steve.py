"""STEVE as the VONet paper ran it, and on a laptop."""

from __future__ import annotations

from vonet.baselines.steve import STEVEConfig
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.frame_vectors import ConvStackConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import SMALL_WORLDS, movi_slots
from vonet.schedule import Product, Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig

Rate = Schedule | Product


def _training(updates: int, batch: int, encoder: Rate, decoder: Rate, dvae: Rate) -> TrainingConfig:
    rates = {"encoder": encoder, "decoder": decoder, "dvae": dvae}
    groups = {name: GroupConfig(learning_rate=rate, clip=None) for name, rate in rates.items()}
    return TrainingConfig(
        updates=updates,
        batch=batch,
        segment=3,
        weights={"tokens": constant(1.0), "pixels": constant(1.0)},
        optimizer=OptimizerConfig(groups=groups, eps=1e-8, largest=0.05),
        replay=None,
    )


def _warmed(rate: float) -> Product:
    """Warm-up over 30,000 updates, then half the learning rate every 250,000."""
    warming = Schedule(((0, 1 / 30_000), (29_999, 1.0)))
    return Product(warming, Schedule(((0, rate), (250_000, rate / 2)), curve="halving"))


def _late(begin: int, warm_up: int, rate: float, updates: int) -> Schedule:
    """Zero until `begin`, then warm-up, constant, and linear decay to a tenth in the second half."""
    return Schedule(((0, 0.0), (begin, 0.0), (begin + warm_up, rate), (updates // 2, rate), (updates, rate / 10)))


def steve_movi(level: str) -> Experiment[STEVEConfig]:
    """STEVE on MOVi: its authors' values, except for 11 or 16 slots of width 64 as in the VONet paper. The paper does
    not give the number of updates; we use the authors' 200,000. Only the dVAE has no warm-up, so that tokens are
    meaningful before the slots have to explain them. We have not run it."""
    return Experiment(
        name=f"steve-movi-{level}",
        summary=f"STEVE on MOVi-{level.upper()}, as in the VONet paper",
        dataset=f"movi-{level}",
        model=STEVEConfig(slots=movi_slots(level)),
        training=_training(200_000, 24, encoder=_warmed(1e-4), decoder=_warmed(3e-4), dvae=constant(3e-4)),
        cost="not run by us",
        paper=paper_scores.of_videos("STEVE", level),
    )


def steve_laptop_a() -> Experiment[STEVEConfig]:
    """STEVE on `vonet generate A --objects 3 6`: a third of a second per update on one core, with 256 tokens from a
    vocabulary of 64. The dVAE learns first and then hardly changes, so that tokens keep their meaning. Then the
    transformer learns from untrained slots, and the slots learn last."""
    updates = 5_000
    tokens_from, slots_from = 400, 600
    return Experiment(
        name="steve-laptop-a",
        summary="STEVE on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="25 minutes on one CPU core",
        model=STEVEConfig(
            size=(64, 64),
            slots=7,
            backbone=ConvStackConfig(channels=(32, 32, 32, 64), kernel=3),
            attention=SlotAttentionConfig(iterations=2, hidden=128),
            dvae=DVAEConfig(
                vocabulary=64,
                width=32,
                fine_layers=7,
                temperature=Schedule(((0, 1.0), (tokens_from, 0.1)), curve="cosine"),
            ),
            transformer=CausalTransformerConfig(width=64, blocks=2, dropout=0.0),
        ),
        training=_training(
            updates,
            batch=4,
            encoder=_late(slots_from, 500, 3e-4, updates),
            decoder=_late(tokens_from, 100, 1e-3, updates),
            dvae=Schedule(((0, 1e-3), (tokens_from, 1e-3), (slots_from, 1e-5))),
        ),
    )


def steve_small(world: str) -> Experiment[STEVEConfig]:
    """STEVE on videos of 32x32 pixels: 64 tokens of 64 kinds. The features have the frame's size, because sprites are
    five pixels wide. The dVAE learns first, then the transformer, then the slots."""
    where, updates = SMALL_WORLDS[world], {"spmot": 12_000, "closeup": 11_000}[world]
    tokens_from, slots_from = 1_000, 1_500
    return Experiment(
        name=f"steve-{world}",
        summary=f"STEVE on {where.title} at 32 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=STEVEConfig(
            size=(32, 32),
            slots=where.slots,
            backbone=ConvStackConfig(channels=(32, 32, 32, 64), strides=(1, 1, 1, 1), kernel=5),
            attention=SlotAttentionConfig(iterations=2, hidden=128),
            dvae=DVAEConfig(
                vocabulary=64,
                width=32,
                fine_layers=7,
                temperature=Schedule(((0, 1.0), (tokens_from, 0.1)), curve="cosine"),
            ),
            transformer=CausalTransformerConfig(width=64, blocks=4),
        ),
        training=_training(
            updates,
            batch=8,
            encoder=_late(slots_from, 500, 3e-4, updates),
            decoder=_late(tokens_from, 100, 1e-3, updates),
            dvae=Schedule(((0, 1e-3), (tokens_from, 1e-3), (slots_from, 1e-5))),
        ),
    )
