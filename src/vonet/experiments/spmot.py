"""VONet on the public benchmark Sprites-MOT, begun from the weights of `vonet-closeup`.

From random weights the masks stay uniform: small sprites of one size on black offer no first step. A model that has
learned to hold objects on close-ups finds the sprites within 250 updates (docs/log.md).
"""

from __future__ import annotations

from dataclasses import replace

from vonet.experiments.closeup import REPLAY, SLOT_DIM, closeup_model, closeup_training
from vonet.experiments.experiment import Experiment
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.variants.object_decoder import AlignmentConfig


def vonet_spmot() -> Experiment[VONetConfig]:
    """On `vonet generate spmot`."""
    return Experiment(
        name="vonet-spmot",
        summary="VONet with an object decoder on Sprites-MOT, begun from vonet-closeup",
        dataset="spmot",
        cost="an hour on one CPU core",
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(12_000),
    )


def vonet_spmot_quick() -> Experiment[VONetConfig]:
    return Experiment(
        name="vonet-spmot-quick",
        summary="vonet-spmot with fewer updates",
        dataset="spmot",
        cost="eight minutes on one CPU core",
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(1_800),
    )


def spmot_model() -> VONetConfig:
    """As `vonet-closeup`, for frames of twice the size: the U-Net keeps its map of 8x8 cells."""
    return closeup_model(alignment=AlignmentConfig(sigma=constant(0.1)), size=(64, 64), unet_cell=8, reduction=4)


def spmot_training(updates: int) -> TrainingConfig:
    """All losses from the first update on, because the weights that it starts from hold objects already."""
    training = closeup_training(updates, ramp=(0, 1), kl=constant(0.2 / SLOT_DIM), replay=replace(REPLAY, videos=16))
    rate = Schedule(((0, 5e-5), (100, 1e-3), (updates * 6 // 10, 1e-3), (updates, 4e-5)))
    groups = {name: replace(group, learning_rate=rate) for name, group in training.optimizer.groups.items()}
    return replace(
        training,
        weights={**training.weights, "alignment": constant(0.1), "spread": constant(1.0), "area": constant(3.0)},
        optimizer=replace(training.optimizer, groups=groups),
    )
