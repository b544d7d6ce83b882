"""Any experiment at a size that a test can afford; every part stays of its kind."""

from dataclasses import replace
from functools import singledispatch

from vonet.baselines.monet import MONetConfig
from vonet.baselines.savi import SAViConfig
from vonet.baselines.scalor import SCALORConfig
from vonet.baselines.simone import SIMONeConfig
from vonet.baselines.steve import STEVEConfig
from vonet.baselines.vimon import ViMONConfig
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.broadcast import SpatialBroadcastConfig
from vonet.blocks.component import ComponentEncoderConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.frame_vectors import ResNetConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments import Experiment
from vonet.interface import Clip
from vonet.model.attention import UNetAttentionConfig
from vonet.model.decoder import TokenDecoderConfig
from vonet.model.vonet import VONet, VONetConfig
from vonet.variants.object_decoder import ObjectDecoderConfig
from vonet.variants.reduced_unet import ReducedUNetAttentionConfig
from vonet.variants.taught_tokens import TaughtTokensConfig


@singledispatch
def reduced(config):
    """A smaller model of the same kind; each kind of model says how."""
    raise TypeError(f"nobody has said how to reduce a {type(config).__name__}")


@reduced.register
def _(config: VONetConfig) -> VONetConfig:
    """32x32 frames, four slots, at most four U-Net levels, few blocks and channels; every part stays of its kind."""
    attention = config.attention
    if isinstance(attention, UNetAttentionConfig):
        levels = min(len(attention.unet.channels), 4)
        if isinstance(attention, ReducedUNetAttentionConfig):  # its map of the smaller frames keeps 8x8 cells
            levels, reduction = min(levels, 3), attention.reduction * 32 // config.size[0]
            attention = replace(attention, reduction=max(1, reduction))
        unet = replace(attention.unet, channels=(4, 6, 8, 8)[:levels], bottleneck=(12, 12))
        attention = replace(attention, unet=unet)
    strides = config.backbone.strides[:2]
    return replace(
        config,
        size=(32, 32),
        slots=4,
        slot_dim=10,
        signature_dim=min(config.signature_dim, 3),
        backbone=replace(config.backbone, channels=(8, 8), strides=strides, feature_dim=12, groups=4),
        attention=attention,
        decoder=_reduced_decoder(config.decoder),
    )


def _reduced_decoder(decoder):
    if isinstance(decoder, TaughtTokensConfig):
        return replace(decoder, tokens=_reduced_decoder(decoder.tokens), objects=_reduced_decoder(decoder.objects))
    if isinstance(decoder, TokenDecoderConfig):
        return replace(
            decoder,
            dvae=DVAEConfig(vocabulary=24, width=8, temperature=decoder.dvae.temperature),
            transformer=CausalTransformerConfig(width=16, blocks=2, heads=2, dropout=decoder.transformer.dropout),
            memory_hidden=12,
        )
    if isinstance(decoder, ObjectDecoderConfig):
        return replace(decoder, hidden=(8, 8))
    return replace(decoder, painter=SpatialBroadcastConfig(grid=8, channels=(6, 6)))


_SMALL_COMPONENTS = {
    "size": (32, 32),
    "slots": 4,
    "latent_dim": 6,
    "unet": UNetConfig(channels=(4, 6, 8, 8), bottleneck=(12, 12)),
    "encoder": ComponentEncoderConfig(channels=(6, 6, 8), hidden=12),
}


@reduced.register
def _(config: MONetConfig) -> MONetConfig:
    return replace(config, **_SMALL_COMPONENTS, decoder=replace(config.decoder, channels=(6, 6, 6)))


@reduced.register
def _(config: ViMONConfig) -> ViMONConfig:
    """As it is after it has begun as MONet."""
    decoder = replace(config.decoder, channels=(6, 6, 6))
    return replace(config, **_SMALL_COMPONENTS, hidden=16, decoder=decoder, as_monet=0)


@reduced.register
def _(config: SCALORConfig) -> SCALORConfig:
    """Its networks have two sizes; this is the smaller, with narrow latents, after its curriculum."""
    small = {"size": (64, 64), "grid": 4, "glimpse": 32, "slots": 4, "what_dim": 8, "background_dim": 4}
    return replace(config, **small, curriculum=0, alone=0)


@reduced.register
def _(config: SAViConfig) -> SAViConfig:
    fewer_groups = {"groups": 2} if isinstance(config.backbone, ResNetConfig) else {}
    backbone = replace(config.backbone, channels=(4, 8, 8, 12), **fewer_groups)
    attention = replace(config.attention, hidden=config.attention.hidden and 12)
    return replace(
        config,
        size=(32, 32),
        slots=4,
        slot_dim=12,
        backbone=backbone,
        vector_hidden=10,
        attention=attention,
        predictor_heads=2,
        predictor_hidden=12,
        decoder=replace(config.decoder, channels=(12, 12, 12)),
    )


@reduced.register
def _(config: STEVEConfig) -> STEVEConfig:
    return replace(
        config,
        size=(32, 32),
        slots=4,
        slot_dim=8,
        backbone=replace(config.backbone, channels=(6, 6, 6, 12)),
        attention=replace(config.attention, hidden=12),
        predictor_heads=2,
        dvae=replace(config.dvae, vocabulary=24, width=8),
        transformer=CausalTransformerConfig(width=16, blocks=2, heads=2, dropout=config.transformer.dropout),
    )


@reduced.register
def _(config: SIMONeConfig) -> SIMONeConfig:
    return replace(
        config,
        size=(32, 32),
        grid=(2, 2),
        channels=(6, 8, 8),
        width=14,
        heads=2,
        hidden=12,
        layers=min(config.layers, 2),
        latent_dim=4,
        latent_hidden=12,
        decoder=(32, 32, 32),
    )


def reduced_experiment(experiment: Experiment) -> Experiment:
    return replace(experiment, model=reduced(experiment.model))


def small_model(config: VONetConfig | None = None, **changes) -> VONet:
    return VONet(replace(reduced(config or VONetConfig()), **changes))


def random_clip(batch: int, time: int, size: int = 32, dtype=None) -> Clip:
    import torch

    return Clip(torch.rand(batch, time, 3, size, size, dtype=dtype))
