"""Experiments: the only room that puts concrete parts together. `registry` has them by name."""

from vonet.experiments.experiment import Experiment
from vonet.experiments.registry import add_experiment, get, names

__all__ = ["Experiment", "add_experiment", "get", "names"]
