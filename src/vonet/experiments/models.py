"""Which model a description describes: the only place where the two meet."""

from __future__ import annotations

from typing import Any

from vonet.baselines.monet import MONet, MONetConfig
from vonet.baselines.savi import SAVi, SAViConfig
from vonet.baselines.scalor import SCALOR, SCALORConfig
from vonet.baselines.simone import SIMONe, SIMONeConfig
from vonet.baselines.steve import STEVE, STEVEConfig
from vonet.baselines.vimon import ViMON, ViMONConfig
from vonet.errors import BadInput
from vonet.interface import ModelConfig
from vonet.model.vonet import VONet, VONetConfig

MODELS: dict[type, type] = {
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
    return MODELS[type(config)](config)
