"""VONet on the public benchmark Sprites-MOT, begun from the weights of `vonet-closeup`.

From random weights the masks stay uniform: small sprites of one size on black offer no first step. A model that has
learned to hold objects on close-ups finds the sprites within 250 updates (docs/log.md).
"""

from __future__ import annotations

from dataclasses import replace

from vonet.experiments.closeup import REPLAY, SLOT_DIM, closeup_training, fine_model
from vonet.experiments.experiment import Experiment
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.variants.object_decoder import AlignmentConfig


def vonet_spmot() -> Experiment[VONetConfig]:
    """On `vonet generate spmot --out S` and `vonet prepare S S-32 --size 32`: 32x32 pixels, each the mean of four."""
    return Experiment(
        name="vonet-spmot",
        summary="VONet with an object decoder on Sprites-MOT, begun from vonet-closeup",
        dataset="spmot",
        cost="40 minutes on one CPU core",
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(11_000),
    )


def vonet_spmot_quick() -> Experiment[VONetConfig]:
    return Experiment(
        name="vonet-spmot-quick",
        summary="vonet-spmot with fewer updates",
        dataset="spmot",
        cost="eight minutes on one CPU core",
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(2_000),
    )


def spmot_model() -> VONetConfig:
    """As `vonet-closeup`, with masks as fine as the frames of 32x32 pixels."""
    return fine_model(AlignmentConfig(sigma=constant(0.1)))


def spmot_training(updates: int) -> TrainingConfig:
    """All losses from the first update on, because the weights that it starts from hold objects already. The price of
    area is higher than on close-ups, because sprites are smaller than most objects there."""
    training = closeup_training(
        updates, ramp=(0, 1), kl=constant(0.2 / SLOT_DIM), replay=replace(REPLAY, videos=16, length=160)
    )
    rate = Schedule(((0, 5e-5), (100, 1e-3), (updates * 4 // 10, 1e-3), (updates, 4e-5)))
    groups = {name: replace(group, learning_rate=rate) for name, group in training.optimizer.groups.items()}
    weights = {"alignment": constant(0.1), "spread": constant(1.0), "area": constant(5.0)}
    return replace(
        training,
        weights={**training.weights, **weights},
        optimizer=replace(training.optimizer, groups=groups),
        average=300,
    )
