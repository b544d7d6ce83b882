"""Settings that several experiments share."""

from __future__ import annotations

from collections.abc import Mapping

from vonet.schedule import Schedule
from vonet.training.optimizer import GroupConfig

NOT_RUN = "not run by us; the paper does not say"

SPMOT_SLOTS = 4
"""One for each of at most three sprites, and the background."""


def movi_slots(level: str) -> int:
    """The paper's number of slots on MOVi: levels D and E have up to 23 objects, A to C up to 10."""
    return 16 if level in "de" else 11


def one_group(rate: Schedule, clip: float) -> Mapping[str, GroupConfig]:
    """All parameters with one learning rate, gradients clipped to the given norm."""
    return {"model": GroupConfig(learning_rate=rate, clip=clip)}


def laptop_rate(peak: float, updates: int) -> Schedule:
    """Warm-up over a twentieth of the training, constant to half of it, then linear decay to a tenth."""
    return Schedule(((0, peak / 10), (updates // 20, peak), (updates // 2, peak), (updates, peak / 10)))
