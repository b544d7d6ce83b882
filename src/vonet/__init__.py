"""vonet: find objects in videos, without labels.

>>> import vonet
>>> experiment = vonet.experiments.get("vonet-movi-a")
>>> model = experiment.build_model()
>>> output = model(vonet.Clip(frames), model.initial_state(batch=1))  # frames: B T 3 H W in [0, 1]
"""

import importlib
from typing import Any

__version__ = "1.0.0.dev0"

_HOMES = {
    "Clip": "vonet.interface",
    "BadInput": "vonet.errors",
    "VONet": "vonet.model.vonet",
    "VONetConfig": "vonet.model.vonet",
    "Segmenter": "vonet.serving.segmenter",
    "add_experiment": "vonet.experiments",
    "add_layout": "vonet.data",
    "add_score": "vonet.evaluation.protocol",
    "evaluate": "vonet.evaluation.evaluate",
    "export": "vonet.serving.export",
    "load": "vonet.experiments.weights",
    "push": "vonet.experiments.weights",
    "save": "vonet.experiments.weights",
    "segment": "vonet.serving.segment",
    "total": "vonet.interface",
}

_MODULES = ("data", "experiments", "performance")

__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `vonet --help` does not wait for torch."""
    if name in _MODULES:
        return importlib.import_module(f"vonet.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'vonet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
