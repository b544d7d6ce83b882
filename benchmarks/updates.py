"""A whole update of small trainings against the update as it was: CPU time of one thread, in turns.

The former update is built from parts: the backbone sees one frame after the other, the broadcast decoder convolves its
first layer for each slot, masks and pictures are blended by `einsum`, Adam loops over the parameters, and everything is
in float32.
"""

from __future__ import annotations

import time
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.measure import take_turns
from vonet import experiments
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.broadcast import SpatialBroadcast, SpatialBroadcastConfig
from vonet.blocks.conv import upsampled_conv
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.time import scan
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.data.video import ArrayVideo
from vonet.experiments.sprites import vonet_sprites
from vonet.interface import Output
from vonet.model.backbone import BackboneConfig
from vonet.model.decoder import DecoderConfig, TokenDecoderConfig
from vonet.model.vonet import VONet, VONetConfig
from vonet.schedule import constant
from vonet.training.config import TrainingConfig
from vonet.training.distributed import Processes
from vonet.training.loop import Training
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.precision import choose
from vonet.training.replay import ReplayConfig
from vonet.training.segments import Footage
from vonet.variants.broadcast_decoder import BroadcastDecoderConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.object_decoder import ObjectDecoderConfig
from vonet.variants.reduced_unet import ReducedUNetAttentionConfig
from vonet.variants.scale_shift import ScaleShiftConfig

Parts = tuple[VONetConfig, TrainingConfig]


def updates() -> dict[str, float]:
    print("\nA whole update, one thread, milliseconds of CPU time: as it was, in float32, and in the precision of auto")
    trainings = {"sprites": _sprites(), "tokens": _laptop(_TOKENS), "laptop": _laptop(_SMALL_PICTURES)}
    return {f"update_vs_before_{name}": _compared(name, *parts) for name, parts in trainings.items()}


def _sprites() -> Parts:
    experiment = vonet_sprites()
    assert experiment.training is not None
    return experiment.model, experiment.training


_TOKENS = TokenDecoderConfig(
    dvae=DVAEConfig(vocabulary=64, width=32), transformer=CausalTransformerConfig(width=64, blocks=2, dropout=0.0)
)
_SMALL_PICTURES = BroadcastDecoderConfig(painter=SpatialBroadcastConfig(grid=8, channels=(16,)), reduction=4)
"""So small that the encoder is nearly all of the update."""


def _laptop(decoder: DecoderConfig) -> Parts:
    """Frames of 64x64, seven slots, eight segments of three frames, and a rollout of eight videos."""
    model = VONetConfig(
        size=(64, 64),
        slots=7,
        slot_dim=64,
        backbone=BackboneConfig(channels=(32, 32, 32), strides=(2, 1, 1), feature_dim=64),
        attention=ReducedUNetAttentionConfig(
            unet=vonet_sprites().model.attention.unet,  # type: ignore[attr-defined]
            transformer=SlotTransformerConfig(head_width=64),
            conditioning=ScaleShiftConfig(),
        ),
        slot_encoder=MaskPoolingConfig(),
        decoder=decoder,
        enlargement="bilinear",
    )
    group = GroupConfig(learning_rate=constant(3e-4), clip=10.0)
    names = VONet(model).parameter_groups()
    training = TrainingConfig(
        updates=1,
        batch=8,
        segment=3,
        weights=dict.fromkeys(model.losses, constant(1.0)),
        optimizer=OptimizerConfig(groups=dict.fromkeys(names, group)),
        replay=ReplayConfig(videos=8, length=16, frames_per_update=1, frames_before_first_update=64),
    )
    return model, training


def _compared(name: str, config: VONetConfig, training: TrainingConfig) -> float:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (16, 24, *config.size, 3), dtype=np.uint8)
    footage = Footage([ArrayVideo(str(i), video) for i, video in enumerate(pixels)], config.size)
    torch.manual_seed(0)
    half = choose("auto", config.build(), training, Processes()) == "bfloat16"
    forms = {
        "before": _as_it_was(Training(config.build(), training, footage, seed=0)),
        "float32": Training(config.build(), training, footage, seed=0),
        "auto": Training(config.build(), training, footage, seed=0, half=half),
    }
    competitors = {form: partial(_step, run) for form, run in forms.items()}
    seconds = take_turns(competitors, rounds=12, warm_up=3, clock=time.process_time)
    ratio = seconds["before"] / seconds["auto"]
    times = ", ".join(f"{form} {1e3 * seconds[form]:.0f}" for form in forms)
    print(f"{name:8} {times} ({'bfloat16' if half else 'float32'}): {ratio:.2f} x")
    return ratio


def _step(run: Training) -> None:
    run.step()


def _as_it_was(run: Training) -> Training:
    model: Any = run.model
    model.unroll = MethodType(_frame_by_frame, model)
    for part in model.modules():
        if isinstance(part, SpatialBroadcast):
            part.forward = MethodType(_every_slot_convolved, part)  # type: ignore[method-assign]
    if hasattr(model.decoder, "error"):
        model.decoder.error = _blended_by_einsum
    rule = run.optimizer.rule
    run.optimizer.rule = torch.optim.Adam(rule.param_groups, lr=0.0, eps=rule.defaults["eps"], foreach=False)
    for group in run.optimizer.rule.param_groups:
        group["fused"] = None
    return run


def _frame_by_frame(self: Any, clip: Any, state: Any = None) -> Output:
    tensors, last = scan(
        self._step, self.restart, clip, self.initial_state(len(clip.frames)) if state is None else state
    )
    return Output(size=self.size, enlargement=self.enlargement, state=last, **tensors)  # type: ignore[arg-type]


def _every_slot_convolved(self: Any, latents: torch.Tensor) -> torch.Tensor:
    x = (latents[:, :, None, None] + self.position(self.coordinates)).flatten(0, 1).permute(0, 3, 1, 2)
    for i, layer in enumerate(self.layers):
        x = F.relu_(upsampled_conv(x, layer.weight, layer.bias) if i < self.doublings else layer(x))
    return self.output(x).unflatten(0, latents.shape[:2])


def _blended_by_einsum(
    frames: torch.Tensor, pictures: torch.Tensor, log_masks: torch.Tensor, sigma: float
) -> torch.Tensor:
    picture = torch.einsum("bkchw,bkhw->bchw", pictures, log_masks.exp())
    return (frames - picture).square().sum((1, 2, 3)) / (2 * sigma**2)


def object_decoder() -> dict[str, float]:
    """Both decoders, with their default sizes, paint every pixel of 32x32: a colour and a share for each of five
    slots. The broadcast decoder of `vonet-sprites` is smaller and costs about as much as the object decoder."""
    torch.manual_seed(0)
    latents, log_masks = torch.randn(16, 5, 64), torch.randn(16, 5, 16, 16).log_softmax(1)
    ours = ObjectDecoderConfig().build(64, (32, 32))
    theirs = SpatialBroadcast(SpatialBroadcastConfig(), 64, 4, (32, 32))

    def paint() -> None:
        colours, log_alphas = ours.paint(latents, log_masks)
        (colours.sum() + log_alphas.square().sum()).backward()
        ours.zero_grad()

    def convolve() -> None:
        colours, alphas = theirs(latents).split([3, 1], dim=2)
        (colours.sum() + alphas.squeeze(2).log_softmax(1).square().sum()).backward()
        theirs.zero_grad()

    seconds = take_turns({"cells": paint, "convolutions": convolve}, rounds=7, clock=time.process_time)
    print(
        f"\n80 pictures of 32x32 and their masks, forward and backward: cell by cell {1e3 * seconds['cells']:.0f} ms, "
        f"by convolutions {1e3 * seconds['convolutions']:.0f} ms"
    )
    return {"object_decoder_vs_broadcast": seconds["convolutions"] / seconds["cells"]}


@torch.no_grad()
def slots() -> dict[str, float]:
    """How the encoder's cost grows with the number of slots, at the paper's size."""
    model = experiments.get("vonet-movi-a").build_model(seed=0).eval()
    frame = torch.rand(1, 3, 128, 128)
    few, many = (model.initial_state(1, slots=count) for count in (4, 24))
    competitors = {"4": lambda: model.step(frame, few), "24": lambda: model.step(frame, many)}
    seconds = take_turns(competitors, rounds=15, clock=time.process_time)
    print(f"\nEncoder step: K=4 {1e3 * seconds['4']:.0f} ms, K=24 {1e3 * seconds['24']:.0f} ms")
    return {"encoder_k24_vs_k4": seconds["24"] / seconds["4"]}
