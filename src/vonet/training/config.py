"""Training options of an experiment: updates, batch, weights of the losses, optimiser, replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vonet.errors import BadInput
from vonet.schedule import Schedule
from vonet.training.optimizer import OptimizerConfig
from vonet.training.replay import ReplayConfig


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained: number and size of updates, weights of the losses, optimiser, replay.

    Raises:
        BadInput: If a number is less than one.
    """

    updates: int
    batch: int
    """Segments per update."""
    segment: int
    """Frames per segment."""
    weights: Mapping[str, Schedule]
    """Weight of each loss. The names must be exactly those of the model's losses."""
    optimizer: OptimizerConfig
    replay: ReplayConfig | None
    """None: each segment is a random window of a video and starts with fresh slots."""
    average: int | None = None
    """Number of updates over which the saved and scored weights are averaged (exponentially); more is smoother but lags
    behind. None: the weights of the last update."""

    def __post_init__(self) -> None:
        if self.average is not None and self.average < 1:
            raise BadInput(f"average is {self.average} updates; it must be 1 or more, or None")
        if min(self.updates, self.batch, self.segment) < 1:
            raise BadInput(
                f"{self.updates} updates of {self.batch} segments of {self.segment} frames: each must be 1 or more"
            )
