"""Experiments by name: the only place that puts concrete parts together.

An experiment is a function that returns a complete, typed description; a variant replaces a part of another.
"""

from __future__ import annotations

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
from vonet.experiments.experiment import Experiment
from vonet.experiments.laptop import (
    laptop_a,
    laptop_a_tokens,
    laptop_a_tokens_alone,
    laptop_ablations,
    laptop_c,
    laptop_quick,
)
from vonet.experiments.savi import savi_laptop_a, savi_movi
from vonet.experiments.simone import simone_laptop_a, simone_movi
from vonet.experiments.sprites import vonet_sprites
from vonet.experiments.steve import steve_laptop_a, steve_movi
from vonet.experiments.vonet import vonet_image_movi, vonet_movi

__all__ = ["Experiment", "get", "names"]

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


def names() -> list[str]:
    return list(_ALL)


def get(name: str) -> Experiment:
    if name not in _ALL:
        import difflib

        close = difflib.get_close_matches(name, _ALL, n=3, cutoff=0.5)
        hint = f"perhaps you meant {' or '.join(close)}" if close else "vonet.experiments.names() lists them"
        raise BadInput(f"there is no experiment {name!r}; {hint}")
    return _ALL[name]
