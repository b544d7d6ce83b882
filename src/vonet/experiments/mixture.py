"""The experiment of the mixture tracker. It has no parameters, so there is nothing to train."""

from __future__ import annotations

from vonet.baselines.mixture import MixtureConfig
from vonet.experiments.experiment import Experiment


def mixture() -> Experiment[MixtureConfig]:
    """K = 7 at 64x64; tuned on generated level A with 3 to 6 objects."""
    return Experiment(
        name="mixture",
        summary="A mixture model that follows objects by EM: no learning, no parameters",
        dataset="any",
        cost="nothing to train",
        model=MixtureConfig(),
        training=None,
    )
