"""Which model a description describes: the only place where the two meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vonet.baselines.monet import MONet, MONetConfig
from vonet.baselines.savi import SAVi, SAViConfig
from vonet.baselines.scalor import SCALOR, SCALORConfig
from vonet.baselines.simone import SIMONe, SIMONeConfig
from vonet.baselines.steve import STEVE, STEVEConfig
from vonet.baselines.vimon import ViMON, ViMONConfig
from vonet.errors import BadInput
from vonet.interface import ModelConfig, VideoModel
from vonet.model.vonet import VONet, VONetConfig

MODELS: dict[type, Callable[[Any], Any]] = {
    VONetConfig: VONet,
    MONetConfig: MONet,
    ViMONConfig: ViMON,
    SCALORConfig: SCALOR,
    SAViConfig: SAVi,
    STEVEConfig: STEVE,
    SIMONeConfig: SIMONe,
}


def build(config: ModelConfig) -> Any:
    """The model, with fresh parameters."""
    if type(config) not in MODELS:
        known = ", ".join(sorted(part.__name__ for part in MODELS))
        raise BadInput(f"{type(config).__name__} describes no model; those that do are {known}")
    model = MODELS[type(config)](config)
    if not isinstance(model, VideoModel):
        wanted = [*VideoModel.__annotations__, *(name for name in vars(VideoModel) if not name.startswith("_"))]
        missing = [name for name in wanted if not hasattr(model, name)]
        raise BadInput(f"{type(model).__name__} lacks {', '.join(missing)}: interface.py says what a model must offer")
    return model
