"""Experiments: complete descriptions of models and their training. `registry` lists them by name."""

from vonet.experiments.experiment import Experiment
from vonet.experiments.registry import add_experiment, get, names

__all__ = ["Experiment", "add_experiment", "get", "names"]
