"""Parallel attention: all K masks at once (paper, equation 3 and "Parallel attention network").

::

    context c_k ──► estimated mask ──► U-Net down ──► MLP ──┐
                         │                                  ├─ mask transformer: the slots agree who takes what
                         │                                  │
                         └──────(+)◄── U-Net up ◄───────────┘
                                 └──► softmax over the slots ──► masks

The U-Net only corrects, in log space, a mask estimated by comparing the context with the features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import conv_of_constant
from vonet.blocks.layers import linear
from vonet.blocks.precision import in_float32
from vonet.blocks.transformer import SlotTransformer, SlotTransformerConfig
from vonet.blocks.unet import Modulation, UNet, UNetConfig


@runtime_checkable
class AttentionConfig(Protocol):
    """Describes a module that maps features `B C h w` and contexts `B K D` to log-masks `B K h w`.

    It may be given logits `B K h w` as a third argument, which say how near a cell is to a slot's last place."""

    def build(self, feature_dim: int, slot_dim: int, size: tuple[int, int]) -> Any:
        """`size`: height and width of the feature map, in cells."""


@runtime_checkable
class ConditioningConfig(Protocol):
    """Describes how a slot's context reaches the U-Net; `ContextMap` shows what the module must offer."""

    def build(self, slot_dim: int, unet: UNetConfig) -> Any:
        """`unet`: the U-Net that the context has to reach."""


@dataclass(frozen=True, kw_only=True)
class DotAttentionConfig:
    """The estimated masks. Alone they are the paper's ablation wo-UNet."""

    def build(self, feature_dim: int, slot_dim: int, size: tuple[int, int]) -> DotAttention:
        return DotAttention(self, feature_dim, slot_dim)


class DotAttention(nn.Module):
    """Masks from the scalar products of contexts and features, softmax over the slots.

    The paper's key map is never computed: context · (W f + b) = (Wᵀ context) · f + context · b.
    """

    def __init__(self, config: DotAttentionConfig, feature_dim: int, slot_dim: int):
        super().__init__()
        self.key = linear(feature_dim, slot_dim)
        self.scale = slot_dim**-0.5

    @in_float32
    def forward(
        self,
        features: Float[Tensor, "B C h w"],
        context: Float[Tensor, "B K D"],
        near: Float[Tensor, "B K h w"] | None = None,
    ) -> Float[Tensor, "B K h w"]:
        context = context * self.scale
        of_bias, of_weight = (context @ self.key.bias).unsqueeze(1), context @ self.key.weight
        # Cells first: the gradient of the features then has their order in memory, and is not copied.
        logits = torch.baddbmm(of_bias, features.flatten(2).mT, of_weight.mT)
        return masks_of(logits, features.shape[-2:], near)


def masks_of(
    logits: Float[Tensor, "B cells K"], size: tuple[int, int] | torch.Size, near: Float[Tensor, "B K h w"] | None
) -> Float[Tensor, "B K h w"]:
    """Log-masks from logits, with the logits of nearness added if there are any."""
    masks = logits.mT.unflatten(-1, size)
    return (masks if near is None else masks + near).log_softmax(dim=1)


@dataclass(frozen=True, kw_only=True)
class ContextMapConfig:
    """The paper's conditioning: the context, repeated over the map, is part of the U-Net's input."""

    def build(self, slot_dim: int, unet: UNetConfig) -> ContextMap:
        return ContextMap(self, slot_dim)


class ContextMap(nn.Module):
    """The instance norm after the first convolution subtracts whatever is constant over the map, so only the effect at
    the border remains (docs/deviations.md)."""

    def __init__(self, config: ContextMapConfig, slot_dim: int):
        super().__init__()
        self.inputs = slot_dim

    def first(
        self, context: Float[Tensor, "N D"], weight: Float[Tensor, "C D 3 3"], size: tuple[int, int]
    ) -> Float[Tensor, "N C h w"] | None:
        """What the context adds to the result of the first convolution."""
        return conv_of_constant(context, weight, size)

    def scale_shifts(self, context: Float[Tensor, "N D"]) -> tuple[Modulation, Modulation]:
        """What the context does after the first normalisation, and at the bottleneck."""
        return None, None


@dataclass(frozen=True, kw_only=True)
class UNetAttentionConfig:
    """The paper's attention: a first estimate, corrected by a U-Net whose slots communicate at the bottleneck."""

    estimate: AttentionConfig = field(default_factory=DotAttentionConfig)
    unet: UNetConfig = field(default_factory=UNetConfig)
    transformer: SlotTransformerConfig = field(default_factory=SlotTransformerConfig)
    conditioning: ConditioningConfig = field(default_factory=ContextMapConfig)

    def build(self, feature_dim: int, slot_dim: int, size: tuple[int, int]) -> UNetAttention:
        return UNetAttention(self, feature_dim, slot_dim, size)


class UNetAttention(nn.Module):
    """All K masks of a frame at once (paper, equation 3).

    Input: features `B C h w` and contexts `B K D`. Output: log-masks `B K h w`, whose exponentials sum to one over K.
    """

    def __init__(
        self,
        config: UNetAttentionConfig,
        feature_dim: int,
        slot_dim: int,
        size: tuple[int, int],
        unet_size: tuple[int, int] | None = None,
    ):
        """Build the estimate, the U-Net and the mask transformer.

        Args:
            config: Which parts to use.
            feature_dim: C, the channels of the features.
            slot_dim: D, the width of the contexts.
            size: Height and width of the feature map, in cells.
            unet_size: Height and width of the U-Net's map, in cells; by default the same.
        """
        super().__init__()
        self.estimate = config.estimate.build(feature_dim, slot_dim, size)
        self.conditioning = config.conditioning.build(slot_dim, config.unet)
        self.unet = UNet(config.unet, feature_dim + 2 + self.conditioning.inputs, unet_size or size)
        self.transformer = SlotTransformer(config.transformer, self.unet.width)

    def forward(
        self,
        features: Float[Tensor, "B C h w"],
        context: Float[Tensor, "B K D"],
        near: Float[Tensor, "B K h w"] | None = None,
    ) -> Float[Tensor, "B K h w"]:
        estimated = self.estimate(features, context, near)
        return (self.correction(features, estimated, context) + estimated).log_softmax(dim=1)

    def correction(
        self,
        features: Float[Tensor, "B C h w"],
        estimated: Float[Tensor, "B K h w"],
        context: Float[Tensor, "B K D"],
    ) -> Float[Tensor, "B K h w"]:
        """The U-Net's change of the estimated log-masks.

        Args:
            features: Features of the frame, `B C h w`.
            estimated: Log-masks from `estimate`, `B K h w`.
            context: Context of each slot, `B K D`.

        Returns:
            What is added to the estimated log-masks before the softmax, `B K h w`.
        """
        batch, every_context = features.shape[0], context.flatten(0, 1)
        first = self._first(features, estimated, every_context)
        at_first, at_bottleneck = self.conditioning.scale_shifts(every_context)
        h, skips = self.unet.encode(first, at_first)
        if at_bottleneck is not None:
            scale, shift = at_bottleneck
            h = torch.addcmul(shift, h, 1 + scale)
        q = self.transformer(h.unflatten(0, (batch, -1)))
        return self.unet.decode(q.flatten(0, 1), skips).unflatten(0, (batch, -1))

    def _first(
        self,
        features: Float[Tensor, "B C h w"],
        estimated: Float[Tensor, "B K h w"],
        context: Float[Tensor, "B*K D"],
    ) -> Float[Tensor, "B*K C1 h w"]:
        """The U-Net's first convolution of [features | estimated mask and its logarithm | context map], for each slot.

        A convolution is linear in its channels. The features' part is the same for all slots and computed once, the
        context's part is constant except at the border, and only two channels are convolved for each slot.
        """
        (_, feature_dim, h, w), slots = features.shape, estimated.shape[1]
        of_features, of_mask, of_context = self.unet.first.weight.split(
            [feature_dim, 2, self.conditioning.inputs], dim=1
        )
        masks = torch.stack([estimated.exp(), estimated], dim=-1)  # channels last in memory
        first = F.conv2d(rearrange(masks, "b k h w two -> (b k) two h w"), of_mask, padding=1)
        if (of_slot := self.conditioning.first(context, of_context, (h, w))) is not None:
            first = first.add_(of_slot)
        shared = F.conv2d(features, of_features, padding=1)
        return (first.unflatten(0, (-1, slots)) + shared.unsqueeze(1)).flatten(0, 1)
