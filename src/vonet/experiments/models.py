"""Which model a description describes: the only place where the two meet."""

from __future__ import annotations

from typing import Any

from vonet.errors import BadInput
from vonet.interface import ModelConfig
from vonet.model.vonet import VONet, VONetConfig

MODELS: dict[type, type] = {
    VONetConfig: VONet,
}


def build(config: ModelConfig) -> Any:
    """The model, with fresh parameters."""
    if type(config) not in MODELS:
        known = ", ".join(sorted(part.__name__ for part in MODELS))
        raise BadInput(f"{type(config).__name__} describes no model; those that do are {known}")
    return MODELS[type(config)](config)
