"""STEVE as the VONet paper ran it, and on a laptop."""

from __future__ import annotations

from vonet.baselines.steve import STEVEConfig
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.frame_vectors import ConvStackConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.experiments.experiment import Experiment
from vonet.schedule import Product, Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig

# The VONet paper's table 1: FG-ARI and mIoU in percent.
SCORES = {"a": (47.8, 53.3), "b": (29.6, 42.7), "c": (38.1, 30.5), "d": (42.9, 23.8), "e": (49.7, 26.2)}


def _training(
    updates: int, batch: int, warm_up: int, half_life: int, dvae: float, encoder: float, decoder: float
) -> TrainingConfig:
    """The dVAE leads: it alone has no warm-up, so that tokens mean something before slots must explain them."""

    def warmed(rate: float) -> Product:
        warming = Schedule(((0, 1 / warm_up), (warm_up - 1, 1.0)))
        return Product(warming, Schedule(((0, rate), (half_life, rate / 2)), curve="halving"))

    return TrainingConfig(
        updates=updates,
        batch=batch,
        segment=3,
        weights={"tokens": constant(1.0), "pixels": constant(1.0)},
        optimizer=OptimizerConfig(
            groups={
                "encoder": GroupConfig(learning_rate=warmed(encoder), clip=None),
                "decoder": GroupConfig(learning_rate=warmed(decoder), clip=None),
                "dvae": GroupConfig(learning_rate=constant(dvae), clip=None),
            },
            eps=1e-8,
            largest=0.05,
        ),
        replay=None,
    )


def steve_movi(level: str) -> Experiment[STEVEConfig]:
    """STEVE on MOVi: its authors' values, but slots of width 64, 11 or 16 of them, as the VONet paper says; 200,000
    updates as its authors, for the paper does not say. We have not run it."""
    fg_ari, miou = SCORES[level]
    return Experiment(
        name=f"steve-movi-{level}",
        summary=f"STEVE on MOVi-{level.upper()}, as in the VONet paper",
        dataset=f"movi-{level}",
        model=STEVEConfig(slots=16 if level in "de" else 11),
        training=_training(200_000, batch=24, warm_up=30_000, half_life=250_000, dvae=3e-4, encoder=1e-4, decoder=3e-4),
        cost="not run by us",
        paper={"fg_ari": fg_ari, "miou": miou},
    )


def steve_laptop_a() -> Experiment[STEVEConfig]:
    """STEVE on `vonet generate A --objects 3 6`: half a second an update on one core. 256 tokens of 256 kinds, and the
    schedules in the same proportions as at full size."""
    updates = 2_400
    return Experiment(
        name="steve-laptop-a",
        summary="STEVE on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="20 minutes on one CPU core",
        measured={"fg_ari": -0.2, "miou": 18.5, "offline_fg_ari": 0.0, "offline_miou": 18.5},
        model=STEVEConfig(
            size=(64, 64),
            slots=7,
            backbone=ConvStackConfig(channels=(32, 32, 32, 64)),
            attention=SlotAttentionConfig(iterations=2, hidden=128),
            dvae=DVAEConfig(
                vocabulary=256,
                width=32,
                fine_layers=7,
                temperature=Schedule(((0, 1.0), (360, 0.1)), curve="cosine"),
            ),
            transformer=CausalTransformerConfig(width=64, blocks=2, dropout=0.0),
        ),
        training=_training(
            updates, batch=8, warm_up=360, half_life=updates * 5 // 4, dvae=1e-3, encoder=4e-4, decoder=1e-3
        ),
    )
