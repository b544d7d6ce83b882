"""Settings that several experiments share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vonet.schedule import Schedule
from vonet.training.optimizer import GroupConfig

NOT_RUN = "not run by us; the paper does not say"


@dataclass(frozen=True)
class SmallWorld:
    """Videos of 32x32 pixels on which all methods are compared.

    Attributes:
        title: What tables call them.
        dataset: Name of the dataset in the description of an experiment.
        slots: One for each object, and one for the background.
        frames: Frames of a video.
    """

    title: str
    dataset: str
    slots: int
    frames: int


SMALL_WORLDS: Mapping[str, SmallWorld] = {
    "spmot": SmallWorld("Sprites-MOT", "spmot", slots=4, frames=10),
    "closeup": SmallWorld("close-ups", "closeup-a", slots=5, frames=24),
}
"""By the last part of an experiment's name. Sprites-MOT is reduced to 32 px, or used at 64 px by SCALOR; close-ups are
`vonet generate LEVEL --camera-distance 0.6 --objects 2 4 --size 32`."""


def movi_slots(level: str) -> int:
    """The paper's number of slots on MOVi: levels D and E have up to 23 objects, A to C up to 10."""
    return 16 if level in "de" else 11


def one_group(rate: Schedule, clip: float) -> Mapping[str, GroupConfig]:
    """All parameters with one learning rate, gradients clipped to the given norm."""
    return {"model": GroupConfig(learning_rate=rate, clip=clip)}


def laptop_rate(peak: float, updates: int) -> Schedule:
    """Warm-up over a twentieth of the training, constant to half of it, then linear decay to a tenth."""
    return Schedule(((0, peak / 10), (updates // 20, peak), (updates // 2, peak), (updates, peak / 10)))
