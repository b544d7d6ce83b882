"""Experiments for a laptop: generated worlds, two CPU cores, an hour or less.

The structure is the paper's; the parts that differ, and why, are in docs/deviations.md and docs/log.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.broadcast import ShadedColourConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments.ablations import ablations, variant
from vonet.experiments.experiment import Experiment
from vonet.model.attention import ContextMapConfig, ScaleShiftConfig, UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.broadcast_decoder import BroadcastDecoderConfig
from vonet.model.decoder import TokenDecoderConfig
from vonet.model.regions import RegionsConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.slots import SlotEncoderConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.replay import ReplayConfig

SLOT_DIM = 64


def _laptop(
    name: str, summary: str, cost: str, updates: int, measured: dict[str, float], dataset: str = "laptop-a"
) -> Experiment[VONetConfig]:
    """On `vonet generate A --objects 3 6`, or another level."""
    return Experiment(
        name=name,
        summary=summary,
        dataset=dataset,
        cost=cost,
        measured=measured,
        model=VONetConfig(
            size=(64, 64),
            slots=7,
            slot_dim=SLOT_DIM,
            backbone=BackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64),
            attention=UNetAttentionConfig(
                unet=UNetConfig(channels=(16, 32, 32), bottleneck=(128, 128)),
                transformer=SlotTransformerConfig(head_width=64),
                conditioning=ScaleShiftConfig(),
                reduction=2,
            ),
            regions=RegionsConfig(),
            slot_encoder=SlotEncoderConfig(pooling="mask"),
            sequential_vae=SequentialVAEConfig(initial_log_std=-3.0),
            decoder=BroadcastDecoderConfig(painter=ShadedColourConfig(), reading="blend", sigma=0.05, reduction=2),
            enlargement="bilinear",
        ),
        training=TrainingConfig(
            updates=updates,
            batch=8,
            segment=3,
            weights={"reconstruction": constant(1.0), **_weights(updates)},
            optimizer=OptimizerConfig(groups={"encoder": _group(updates), "decoder": _group(updates)}),
            replay=ReplayConfig(videos=8, length=64, frames_per_update=1, frames_before_first_update=64),
        ),
    )


def _weights(updates: int) -> dict[str, Schedule]:
    """Of all losses but the decoder's."""
    return {"kl": Schedule(((0, 0.0), (updates * 2 // 3, 0.2 / SLOT_DIM))), "regions": constant(0.1)}


def _group(updates: int) -> GroupConfig:
    rate = Schedule(((0, 3e-5), (updates // 6, 3e-4), (updates // 3, 3e-4), (updates, 3e-5)))
    return GroupConfig(learning_rate=rate, clip=10.0)


def laptop_a() -> Experiment[VONetConfig]:
    return _laptop(
        "laptop-a",
        summary="VONet on generated level A with few objects",
        cost="2 minutes on one CPU core",
        updates=150,
        measured={"fg_ari": 80.4, "miou": 76.2, "offline_fg_ari": 82.8, "offline_miou": 77.9},
    )


def laptop_quick() -> Experiment[VONetConfig]:
    return _laptop(
        "laptop-quick",
        summary="The same in less time, for make demo",
        cost="80 seconds on one CPU core",
        updates=100,
        measured={"fg_ari": 79.4, "miou": 76.4, "offline_fg_ari": 81.2, "offline_miou": 77.8},
    )


def laptop_c() -> Experiment[VONetConfig]:
    """On `vonet generate C --objects 3 6`. Textures scatter hue and brightness, so a region reckons with more of it."""
    base = _laptop(
        "laptop-c",
        summary="VONet on generated level C (textures) with few objects",
        cost="2 minutes on one CPU core",
        updates=150,
        measured={"fg_ari": 51.6, "miou": 59.6, "offline_fg_ari": 56.6, "offline_miou": 62.1},
        dataset="laptop-c",
    )
    return replace(base, model=replace(base.model, regions=RegionsConfig(hue=0.12, brightness=0.25)))


def laptop_a_tokens() -> Experiment[VONetConfig]:
    """The paper's decoder, small: 256 tokens of 64 kinds, one after the other from the slots. It does not ask where a
    slot counts, so the masks learn from the regions, and from it only through what the slots see."""
    updates = 300
    base = _laptop(
        "laptop-a-tokens",
        summary="laptop-a with the paper's decoder: tokens, one by one",
        cost="5 minutes on one CPU core",
        updates=updates,
        measured={"fg_ari": 81.8, "miou": 76.3, "offline_fg_ari": 82.9, "offline_miou": 77.0},
    )
    dvae = DVAEConfig(vocabulary=64, width=32, temperature=Schedule(((0, 1.0), (updates // 2, 0.1))))
    transformer = CausalTransformerConfig(width=64, blocks=2, dropout=0.0)
    groups = {**base.training.optimizer.groups, "dvae": GroupConfig(learning_rate=constant(1e-3), clip=None)}
    return replace(
        base,
        model=replace(base.model, decoder=TokenDecoderConfig(dvae=dvae, transformer=transformer)),
        training=replace(
            base.training,
            weights={"tokens": constant(1.0), "pixels": constant(1.0), **_weights(updates)},
            optimizer=OptimizerConfig(groups=groups),
        ),
    )


def laptop_a_tokens_alone() -> Experiment[VONetConfig]:
    """The same without regions: tokens alone teach the masks, as in the paper."""
    base = laptop_a_tokens()
    weights = {name: weight for name, weight in base.training.weights.items() if name != "regions"}
    return variant(
        base,
        "wo-regions",
        "slots without regions, masks taught by the decoder",
        model=replace(base.model, regions=None),
        training=replace(base.training, weights=weights),
    )


def laptop_ablations() -> Iterator[Experiment[VONetConfig]]:
    """The paper's ablations of laptop-quick, and each part that is ours set back to the paper's."""
    base = laptop_quick()
    yield from ablations(base)
    model, training = base.model, base.training

    def set_back(label: str, summary: str, model: VONetConfig) -> Experiment[VONetConfig]:
        weights = {name: weight for name, weight in training.weights.items() if name in model.losses}
        return variant(base, label, summary, model=model, training=replace(training, weights=weights))

    assert isinstance(model.attention, UNetAttentionConfig)
    assert isinstance(model.decoder, BroadcastDecoderConfig)
    yield set_back("wo-regions", "slots without regions, masks taught by the decoder", replace(model, regions=None))
    context_map = replace(model.attention, conditioning=ContextMapConfig())
    yield set_back("context-map", "the context as a map, the paper's", replace(model, attention=context_map))
    frame_pooling = SlotEncoderConfig(pooling="frame")
    yield set_back("pooling", "averages over the whole frame, the paper's", replace(model, slot_encoder=frame_pooling))
    noisy = replace(model.sequential_vae, initial_log_std=0.0)
    yield set_back("std", "latents that begin with a deviation of one", replace(model, sequential_vae=noisy))
    mixture = replace(model.decoder, reading="mixture")
    yield set_back("mixture", "frames explained as a mixture", replace(model, decoder=mixture))
