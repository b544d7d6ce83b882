"""SCALOR: the model (`scalor`) and the blocks that only it uses."""

from vonet.baselines.scalor.scalor import SCALOR, BoxConfig, SCALORConfig

__all__ = ["SCALOR", "BoxConfig", "SCALORConfig"]
