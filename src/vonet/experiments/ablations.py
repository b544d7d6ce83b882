"""The paper's ablations (its figure of ablations): each replaces one part of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vonet.errors import BadInput
from vonet.experiments import registry
from vonet.experiments.experiment import Experiment
from vonet.model.attention import UNetAttentionConfig
from vonet.model.sequential_vae import PlainKLConfig, PriorConfig
from vonet.model.vonet import VONetConfig
from vonet.training.config import TrainingConfig


def variant(
    base: Experiment[VONetConfig],
    label: str,
    summary: str,
    *,
    model: VONetConfig | None = None,
    training: TrainingConfig | None = None,
) -> Experiment[VONetConfig]:
    """The base experiment with a part replaced. The paper shows its ablations as bars without numbers, so they have no
    expected score."""
    return replace(
        base,
        name=f"{base.name}-{label}",
        summary=f"{base.summary}, {summary}",
        model=model or base.model,
        training=training or base.training,
        measured={},
        paper={},
    )


def without_unet(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    """The estimated masks alone, from scalar products (paper, figure 6, "wo-UNet"). A training that starts from other
    weights starts from those of their own ablation."""
    attention = base.model.attention
    assert isinstance(attention, UNetAttentionConfig), "there is no U-Net to leave out"
    found = variant(
        base,
        "wo-unet",
        "without the U-Net: masks from scalar products alone",
        model=replace(base.model, attention=attention.estimate),
    )
    return found if base.start is None else replace(found, start=f"{base.start}-wo-unet")


def with_weaker_kl(base: Experiment[VONetConfig], divisor: int, label: str) -> Experiment[VONetConfig]:
    """The KL weight divided by `divisor`; `label` is its form in the name."""
    training = _training(base)
    training = replace(training, weights={**training.weights, "kl": training.weights["kl"].scaled(1 / divisor)})
    return variant(base, f"kl-{label}", f"KL weight divided by {label}", training=training)


def without_kl(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    """No prior and no KL divergence. The paper reports that this training crashes in the end."""
    model = replace(base.model, sequential_vae=replace(base.model.sequential_vae, prior=None))
    training = _training(base)
    weights = {name: weight for name, weight in training.weights.items() if name != "kl"}
    training = replace(training, weights=weights)
    return variant(base, "wo-kld", "without KL divergence", model=model, training=training)


def without_kl_balancing(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    """The plain KL divergence (paper, figure 6, "wo-KLBal")."""
    prior = base.model.sequential_vae.prior or PriorConfig()
    vae = replace(base.model.sequential_vae, prior=replace(prior, kl=PlainKLConfig()))
    return variant(base, "wo-klbal", "without KL balancing", model=replace(base.model, sequential_vae=vae))


def without_replay(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    """Each segment starts from fresh slots (paper, figure 6, "wo-Replay")."""
    return variant(
        base,
        "wo-replay",
        "without replay: each segment starts from fresh slots",
        training=replace(_training(base), replay=None),
    )


def _training(base: Experiment[VONetConfig]) -> TrainingConfig:
    assert base.training is not None, "VONet has parameters"
    return base.training


_MAKERS: dict[str, Callable[[Experiment[VONetConfig]], Experiment[VONetConfig]]] = {
    "wo-unet": without_unet,
    "kl-20": partial(with_weaker_kl, divisor=20, label="20"),
    "kl-200": partial(with_weaker_kl, divisor=200, label="200"),
    "kl-20k": partial(with_weaker_kl, divisor=20_000, label="20k"),
    "wo-kld": without_kl,
    "wo-klbal": without_kl_balancing,
    "wo-replay": without_replay,
}


def ablation(base: str, label: str) -> Experiment[VONetConfig]:
    """The ablation with this label of the experiment with this name."""
    if label not in _MAKERS:
        raise BadInput(f"the ablation is {label!r}; it must be one of {', '.join(_MAKERS)}")
    return _MAKERS[label](registry.get(base))
