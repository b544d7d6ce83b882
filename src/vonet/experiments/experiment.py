"""The description of an experiment: model, training, data, cost and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

import torch

from vonet.data.resize import DEFAULT_FIT, Fit
from vonet.errors import BadInput, check_choice
from vonet.interface import ModelConfig, VideoModel
from vonet.training.config import TrainingConfig

ModelConfigT = TypeVar("ModelConfigT", bound=ModelConfig)


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[ModelConfigT]):
    """A model, its training, its data, its cost and its scores: everything that makes a run repeatable.

    Raises:
        BadInput: If the weights of the losses do not name exactly the model's losses.
    """

    name: str
    summary: str
    dataset: str
    model: ModelConfigT
    training: TrainingConfig | None
    """None for a method without parameters, which needs no training."""
    start: str | None = None
    """Name of the weights that training starts from, if not from random ones."""
    fit: Fit = DEFAULT_FIT
    """How frames of another shape are resized to the model's size; `vonet segment` uses the same as training."""
    grey: bool = False
    """Whether the model was trained on videos without colour."""
    cost: str = "not measured"
    """Cost of the training, as text."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Our own scores for this experiment, in percent, if we have run it (docs/log has the details)."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's scores for this experiment, in percent, if it has any."""

    def __post_init__(self) -> None:
        check_choice("fit", self.fit, Fit)
        losses, weights = set(self.model.losses), set(self.training.weights) if self.training else set()
        if losses != weights:
            raise BadInput(
                f"{self.name}: the model has the losses {sorted(losses)} but the weights name {sorted(weights)}: "
                "they must be the same names"
            )

    def build_model(self, *, seed: int | None = None) -> Any:
        """The model (a `VideoModel`) with new parameters, initialised from the seed if one is given."""
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            model = self.model.build()
        if not isinstance(model, VideoModel):
            wanted = [*VideoModel.__annotations__, *(name for name in vars(VideoModel) if not name.startswith("_"))]
            missing = [name for name in wanted if not hasattr(model, name)]
            raise BadInput(
                f"{type(model).__name__} lacks {', '.join(missing)}: vonet/interface/contract.py says what a model "
                "must offer"
            )
        return model


def parts(value: Any) -> Iterator[type]:
    """The classes of all parts of an experiment, including its own."""
    if is_dataclass(value):
        yield type(value)
        for option in fields(value):
            yield from parts(getattr(value, option.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from parts(item)
