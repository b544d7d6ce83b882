"""The paper's ablations: each replaces one part of an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vonet.experiments.experiment import Experiment
from vonet.model.attention import DotAttentionConfig
from vonet.model.sequential_vae import PlainKLConfig, PriorConfig
from vonet.model.vonet import VONetConfig
from vonet.training.config import TrainingConfig


def ablations(base: Experiment[VONetConfig]) -> Iterator[Experiment[VONetConfig]]:
    yield without_unet(base)
    yield from (with_weaker_kl(base, divisor, label) for divisor, label in ((20, "20"), (200, "200"), (20_000, "20k")))
    yield without_kl(base)
    yield without_kl_balancing(base)
    yield without_replay(base)


def variant(
    base: Experiment[VONetConfig],
    label: str,
    summary: str,
    *,
    model: VONetConfig | None = None,
    training: TrainingConfig | None = None,
) -> Experiment[VONetConfig]:
    """The base with a part replaced. The paper shows its ablations as bars without numbers, so there is no score."""
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
    return variant(
        base, "wo-unet", "masks from scalar products alone", model=replace(base.model, attention=DotAttentionConfig())
    )


def with_weaker_kl(base: Experiment[VONetConfig], divisor: int, label: str) -> Experiment[VONetConfig]:
    weights = {**base.training.weights, "kl": base.training.weights["kl"].scaled(1 / divisor)}
    training = replace(base.training, weights=weights)
    return variant(base, f"kl-{label}", f"the divergence weighing {label} times less", training=training)


def without_kl(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    """No forecast and no divergence at all. The paper reports that this crashes in the end."""
    model = replace(base.model, sequential_vae=replace(base.model.sequential_vae, prior=None))
    weights = {name: weight for name, weight in base.training.weights.items() if name != "kl"}
    training = replace(base.training, weights=weights)
    return variant(base, "wo-kld", "without the divergence", model=model, training=training)


def without_kl_balancing(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    prior = base.model.sequential_vae.prior or PriorConfig()
    vae = replace(base.model.sequential_vae, prior=replace(prior, kl=PlainKLConfig()))
    return variant(base, "wo-klbal", "with the plain divergence", model=replace(base.model, sequential_vae=vae))


def without_replay(base: Experiment[VONetConfig]) -> Experiment[VONetConfig]:
    return variant(base, "wo-replay", "each segment from fresh slots", training=replace(base.training, replay=None))
