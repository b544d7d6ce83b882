"""SCALOR: the model (`scalor`) and the blocks that only it uses."""

from vonet.baselines.scalor.scalor import SCALOR, SCALORConfig

__all__ = ["SCALOR", "SCALORConfig"]
