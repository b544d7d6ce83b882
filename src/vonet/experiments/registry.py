"""Experiments by name, and the names of parts that stored descriptions may contain.

Nothing is imported or built until it is needed: the tables hold names of modules. An experiment is a function that
returns a complete, typed description; an ablation replaces a part of another experiment.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from vonet.errors import BadInput
from vonet.experiments.experiment import Experiment, parts
from vonet.experiments.paper_scores import LEVELS
from vonet.experiments.settings import SMALL_WORLDS

BASELINES = ("monet", "vimon", "scalor", "savi", "steve", "simone")
"""The methods that the paper compares with."""
ABLATIONS = ("wo-unet", "kl-20", "kl-200", "kl-20k", "wo-kld", "wo-klbal", "wo-replay")
"""The paper's ablations, in its order; `experiments/ablations.py` builds them."""


@dataclass(frozen=True)
class _Entry:
    """Names a function `vonet.experiments.MODULE.FUNCTION` that builds the experiment from the arguments."""

    module: str
    function: str
    arguments: tuple[str, ...] = ()

    def __call__(self) -> Experiment:
        return getattr(importlib.import_module(f"vonet.experiments.{self.module}"), self.function)(*self.arguments)


def _entries() -> Iterator[tuple[str, _Entry]]:
    yield "vonet-sprites", _Entry("sprites", "vonet_sprites")
    yield "vonet-closeup", _Entry("closeup", "vonet_closeup")
    yield "vonet-closeup-corrected", _Entry("closeup", "vonet_closeup_corrected")
    yield "vonet-closeup-hour", _Entry("closeup", "vonet_closeup_hour")
    yield "vonet-closeup-quick", _Entry("closeup", "vonet_closeup_quick")
    yield "vonet-closeup-tokens", _Entry("closeup_tokens", "vonet_closeup_tokens")
    yield "vonet-laptop", _Entry("laptop", "vonet_laptop")
    yield "vonet-laptop-corrected", _Entry("laptop", "vonet_laptop_corrected")
    yield "vonet-spmot", _Entry("spmot", "vonet_spmot")
    yield "vonet-spmot-quick", _Entry("spmot", "vonet_spmot_quick")
    for level in LEVELS:
        yield f"vonet-movi-{level}", _Entry("vonet", "vonet_movi", (level,))
    for level in "cde":
        yield f"vonet-image-movi-{level}", _Entry("vonet", "vonet_image_movi", (level,))
    yield "mixture", _Entry("mixture", "mixture")
    for method in BASELINES:
        yield f"{method}-laptop-a", _Entry(method, f"{method}_laptop_a")
        for world in SMALL_WORLDS:
            yield f"{method}-{world}", _Entry(method, f"{method}_small", (world,))
        for level in LEVELS:
            yield f"{method}-movi-{level}", _Entry(method, f"{method}_movi", (level,))
    for base in ("vonet-closeup", "vonet-closeup-tokens", *(f"vonet-movi-{level}" for level in LEVELS)):
        for ablation in ABLATIONS:
            yield f"{base}-{ablation}", _Entry("ablations", "ablation", (base, ablation))


_OURS: dict[str, _Entry] = dict(_entries())
_OWN: dict[str, Experiment] = {}
"""Experiments that users have added."""

_PARTS = {
    "model.vonet": ("VONetConfig",),
    "model.backbone": ("BackboneConfig",),
    "model.attention": ("DotAttentionConfig", "ContextMapConfig", "UNetAttentionConfig"),
    "model.slots": ("InitialSlotsConfig", "SlotEncoderConfig", "TrajectoryConfig", "ContextConfig"),
    "model.sequential_vae": ("BalancedKLConfig", "PlainKLConfig", "PriorConfig", "SequentialVAEConfig"),
    "model.decoder": ("TokenDecoderConfig",),
    "variants.scale_shift": ("ScaleShiftConfig",),
    "variants.reduced_unet": ("ReducedUNetAttentionConfig",),
    "variants.mask_pooling": ("MaskPoolingConfig",),
    "variants.detailed_backbone": ("DetailedBackboneConfig",),
    "variants.broadcast_decoder": ("BroadcastDecoderConfig",),
    "variants.normed_attention": ("NormedAttentionConfig",),
    "variants.object_decoder": (
        *("ObjectDecoderConfig", "PicturePositionsConfig", "SlotPositionsConfig", "AlignmentConfig", "AreaPriceConfig"),
        "SpreadConfig",
    ),
    "variants.slot_colours": ("CorrectionConfig", "PaintedColoursConfig", "MeanColoursConfig"),
    "variants.slot_places": ("SlotPlacesConfig", "ToldPlacesConfig"),
    "variants.taught_tokens": ("TaughtTokensConfig",),
    "baselines.mixture": ("MixtureConfig",),
    "baselines.monet": ("MONetConfig",),
    "baselines.vimon": ("ViMONConfig",),
    "baselines.scalor": ("SCALORConfig", "BoxConfig"),
    "baselines.savi": ("SAViConfig",),
    "baselines.steve": ("STEVEConfig",),
    "baselines.simone": ("SIMONeConfig",),
    "blocks.autoregressive": ("CausalTransformerConfig",),
    "blocks.broadcast": ("SpatialBroadcastConfig",),
    "blocks.component": ("ComponentDecoderConfig", "ComponentEncoderConfig"),
    "blocks.dvae": ("DVAEConfig",),
    "blocks.frame_vectors": ("ConvStackConfig", "ResNetConfig"),
    "blocks.slot_attention": ("SlotAttentionConfig",),
    "blocks.transformer": ("SlotTransformerConfig",),
    "blocks.unet": ("UNetConfig",),
    "schedule": ("Schedule", "Product"),
    "training.config": ("TrainingConfig",),
    "training.optimizer": ("GroupConfig", "OptimizerConfig", "RMSpropConfig"),
    "training.replay": ("ReplayConfig",),
    "experiments.experiment": ("Experiment",),
}
"""The parts that descriptions may contain, by module. Weights are loaded by these names."""

_HOMES = {part: module for module, names_ in _PARTS.items() for part in names_}

RENAMED_PARTS = {"FineBackboneConfig": "DetailedBackboneConfig", "RegionsConfig": "MixtureConfig"}
"""Former names of parts."""
RENAMED_OPTIONS = {
    "DetailedBackboneConfig": {"detail": "detail_channels"},
    "MixtureConfig": {
        **{"hue": "chroma_std", "brightness": "brightness_std", "dark": "brightness_offset"},
        **{"surest": "min_relative_std", "habit": "std_prior_mass", "order": "shading_order"},
        **{"stiffness": "shading_ridge", "extent": "min_position_std", "toll": "min_component_mass"},
        **{"inertia": "velocity_prior_mass", "rounds": "em_iterations", "grain": "seed_window"},
        **{"surprise": "seed_threshold", "doubt": "uniform_share"},
    },
}
"""Former names of options, by the present name of their part."""


def names(ablations: bool = True) -> list[str]:
    """All experiments, ours first. Without `ablations`, the ablations of the paper's figure are left out."""
    ours = [name for name, entry in _OURS.items() if ablations or entry.module != "ablations"]
    return [*ours, *_OWN]


def get(name: str) -> Experiment:
    """The experiment of this name.

    Args:
        name: One of `names()`.

    Raises:
        BadInput: If there is no such experiment; the message lists similar names.
    """
    if name in _OWN:
        return _OWN[name]
    if name not in _OURS:
        close = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"perhaps you meant {' or '.join(close)}" if close else "vonet list shows them"
        raise BadInput(f"there is no experiment {name!r}; {hint}")
    return _OURS[name]()


def part(name: str) -> type | None:
    """The part of this name, from vonet or from an added experiment; None if there is none."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"vonet.{_HOMES[name]}"), name)
    return {kind.__name__: kind for experiment in _OWN.values() for kind in parts(experiment)}.get(name)


def is_ours(kind: type) -> bool:
    """Whether this class is a part of vonet."""
    return kind.__name__ in _HOMES and part(kind.__name__) is kind


def add_experiment(experiment: Experiment) -> None:
    """Register your own experiment by its name, for all commands and for reading its weights.

    Adding an experiment again replaces it, so that a notebook cell can be run twice.

    Args:
        experiment: Its `model` must have a method `build()` that returns the model.

    Raises:
        BadInput: If vonet already has an experiment or a part of that name.
    """
    if experiment.name in _OURS:
        raise BadInput(f"there is an experiment {experiment.name!r} already: give yours another name")
    for kind in parts(experiment):
        if kind.__name__ in _HOMES and part(kind.__name__) is not kind:
            raise BadInput(f"there is a {kind.__name__} in vonet already: give yours another name")
    if not hasattr(experiment.model, "build"):
        kind_name = type(experiment.model).__name__
        raise BadInput(f"{kind_name} has no method build(), which must return the model that it describes: add one")
    _OWN[experiment.name] = experiment
