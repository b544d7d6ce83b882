"""VONet on the public benchmark Sprites-MOT, begun from the weights of `vonet-closeup`.

From random weights the masks stay uniform: small sprites of one size on black offer no first step. A model that has
learned to hold objects on close-ups finds the sprites within 250 updates (docs/log/sprites-mot.md).
"""

from __future__ import annotations

from dataclasses import replace

from vonet.experiments.closeup import REPLAY, continued_training, fine_model
from vonet.experiments.experiment import Experiment
from vonet.model.vonet import VONetConfig
from vonet.schedule import constant
from vonet.training.config import TrainingConfig
from vonet.variants.object_decoder import AlignmentConfig
from vonet.variants.slot_places import SlotPlacesConfig


def vonet_spmot() -> Experiment[VONetConfig]:
    """On `vonet generate spmot --out S` and `vonet prepare S S-32 --size 32`: 32x32 pixels, each the mean of four."""
    return Experiment(
        name="vonet-spmot",
        summary="VONet with an object decoder on Sprites-MOT, begun from vonet-closeup",
        dataset="spmot",
        cost="an hour on one CPU core, after vonet-closeup",
        measured={"mota": 94.1, "motp": 80.4},
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(20_000),
    )


def vonet_spmot_quick() -> Experiment[VONetConfig]:
    """`vonet-spmot` with fewer updates."""
    return Experiment(
        name="vonet-spmot-quick",
        summary="vonet-spmot with fewer updates",
        dataset="spmot",
        cost="seven minutes on one CPU core, after vonet-closeup",
        measured={"mota": 90.6, "motp": 83.1},
        start="vonet-closeup",
        model=spmot_model(),
        training=spmot_training(2_000),
    )


def spmot_model() -> VONetConfig:
    """As `vonet-closeup`, with masks as fine as the frames, and a slot for each of at most three sprites
    and the background: a fifth slot takes pieces of sprites.

    Without a signature, empty slots become equal and share sprites. Without a place, slots confuse sprites of the same
    colour (docs/log/sprites-mot.md)."""
    model = fine_model(AlignmentConfig(sigma=constant(0.1)), slots=4)
    return replace(model, signature_dim=8, places=SlotPlacesConfig())


def spmot_training(updates: int) -> TrainingConfig:
    """The weight of the area loss is higher than on close-ups, because sprites are smaller than most objects there."""
    replay = replace(REPLAY, videos=16, length=160)
    return replace(continued_training(updates, rate=1e-3, hold=0.4, area=8.0, replay=replay), average=300)
