"""Experiments by name: the only place that puts concrete parts together.

An experiment is a function that returns a complete, typed description; a variant replaces a part of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vonet.errors import BadInput
from vonet.experiments.ablations import ablations
from vonet.experiments.baselines import (
    monet_laptop_a,
    monet_movi,
    scalor_laptop_a,
    scalor_movi,
    vimon_laptop_a,
    vimon_movi,
)
from vonet.experiments.experiment import Experiment, parts
from vonet.experiments.laptop import (
    laptop_a,
    laptop_a_tokens,
    laptop_a_tokens_alone,
    laptop_ablations,
    laptop_c,
    laptop_quick,
)
from vonet.experiments.models import MODELS
from vonet.experiments.savi import savi_laptop_a, savi_movi
from vonet.experiments.simone import simone_laptop_a, simone_movi
from vonet.experiments.sprites import vonet_sprites
from vonet.experiments.steve import steve_laptop_a, steve_movi
from vonet.experiments.vonet import vonet_image_movi, vonet_movi

__all__ = ["Experiment", "add_experiment", "get", "known_parts", "names"]

_ALL = {
    experiment.name: experiment
    for experiment in (
        vonet_sprites(),
        laptop_a(),
        laptop_quick(),
        laptop_c(),
        laptop_a_tokens(),
        laptop_a_tokens_alone(),
        *laptop_ablations(),
        *(vonet_movi(level) for level in "abcde"),
        *(vonet_image_movi(level) for level in "cde"),
        monet_laptop_a(),
        vimon_laptop_a(),
        scalor_laptop_a(),
        savi_laptop_a(),
        steve_laptop_a(),
        simone_laptop_a(),
        *(make(level) for make in (monet_movi, vimon_movi, scalor_movi) for level in "abcde"),
        *(make(level) for make in (savi_movi, steve_movi, simone_movi) for level in "abcde"),
        *(variant for level in "abcde" for variant in ablations(vonet_movi(level))),
    )
}

_OWN: dict[str, Experiment] = {}
"""Those that users have added."""


def names() -> list[str]:
    return [*_ALL, *_OWN]


def get(name: str) -> Experiment:
    known = _ALL | _OWN
    if name not in known:
        import difflib

        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"perhaps you meant {' or '.join(close)}" if close else "vonet.experiments.names() lists them"
        raise BadInput(f"there is no experiment {name!r}; {hint}")
    return known[name]


def add_experiment(experiment: Experiment, model: Callable[[Any], Any] | None = None) -> None:
    """Make an experiment of one's own known by its name, to all commands and to whatever reads its weights.

    `model`: the class that is built from `experiment.model`, where that is of one's own too. Adding an experiment again
    replaces it, so that a notebook's cell may run twice; what comes with vonet is not replaced.
    """
    if experiment.name in _ALL:
        raise BadInput(f"there is an experiment {experiment.name!r} already: give yours another name")
    ours = {part.__name__: part for known in _ALL.values() for part in parts(known)}
    for part in parts(experiment):
        if ours.get(part.__name__, part) is not part:
            raise BadInput(f"there is a {part.__name__} in vonet already: give yours another name")
    kind = type(experiment.model)
    if model is not None and kind.__name__ in ours:
        raise BadInput(f"a {kind.__name__} describes a model of vonet already: give yours a description of its own")
    if model is not None:
        MODELS[kind] = model
    elif kind not in MODELS:
        raise BadInput(
            f"nobody has said which model a {kind.__name__} describes: vonet.add_experiment(experiment, MODEL)"
        )
    _OWN[experiment.name] = experiment


def known_parts() -> dict[str, type]:
    """All parts of all experiments by name: what descriptions on disc may be made of."""
    return {part.__name__: part for experiment in (_ALL | _OWN).values() for part in parts(experiment)}
