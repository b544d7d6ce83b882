"""What a training needs to know besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vonet.schedule import Schedule
from vonet.training.optimizer import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Segments start from stored slot states (paper, "Training from replayed video segments")."""

    videos: int = 16
    """Watched in parallel."""
    length: int = 10_000
    """Frames remembered of each of them."""
    frames_per_update: int = 2
    """Watched, of each video, before every update."""
    frames_before_first_update: int = 50_000


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    updates: int
    batch: int
    """Segments in an update."""
    segment: int
    """Frames in a segment."""
    weights: Mapping[str, Schedule]
    """Of the losses, by the model's names for them, exactly."""
    optimizer: OptimizerConfig
    replay: ReplayConfig | None
    """None: each segment is a random window of a video and starts with fresh slots."""
