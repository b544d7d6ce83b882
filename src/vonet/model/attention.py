"""Parallel attention: all K masks at once (paper, equation 3 and "Parallel attention network").

::

    context c_k ──► estimated mask ──► U-Net down ──► MLP ──┐
                         │                                  ├─ mask transformer: the slots agree who takes what
                         │                                  │
                         └──────(+)◄── U-Net up ◄───────────┘
                                 └──► softmax over the slots ──► masks

The U-Net gives only a change, in log space, of a mask estimated by comparing the context with the features.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import conv_of_constant
from vonet.blocks.layers import linear
from vonet.blocks.transformer import SlotTransformer, SlotTransformerConfig
from vonet.blocks.unet import Modulation, UNet, UNetConfig
from vonet.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class DotAttentionConfig:
    """The estimated masks; alone they are the paper's ablation wo-UNet."""


class DotAttention(nn.Module):
    """Masks from the scalar products of contexts and features, softmax over the slots.

    The paper's key map is never made: context · (W f + b) = (Wᵀ context) · f + context · b.
    """

    def __init__(self, config: DotAttentionConfig, feature_dim: int, slot_dim: int, size: tuple[int, int]):
        super().__init__()
        self.key = linear(feature_dim, slot_dim)
        self.scale = slot_dim**-0.5

    def forward(
        self,
        features: Float[Tensor, "B C h w"],
        context: Float[Tensor, "B K D"],
        expected: Float[Tensor, "B K _ _"] | None = None,
    ) -> Float[Tensor, "B K _ _"]:
        context = context * self.scale
        logits = torch.baddbmm((context @ self.key.bias).unsqueeze(-1), context @ self.key.weight, features.flatten(2))
        logits = logits.unflatten(-1, features.shape[-2:])
        if expected is not None:
            logits = _at_size(logits, expected.shape[-2:]) + expected
        return logits.log_softmax(dim=1)


def _at_size(maps: Float[Tensor, "B K h w"], size: torch.Size) -> Tensor:
    if maps.shape[-2:] == size:
        return maps
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)


@dataclass(frozen=True, kw_only=True)
class ContextMapConfig:
    """The paper's way: the context, repeated over the map, is part of the U-Net's input."""


class ContextMap(nn.Module):
    """The instance norm after the first convolution removes whatever is constant over the map, so all that remains of
    this is its effect at the border (docs/deviations.md)."""

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
class ScaleShiftConfig:
    """Our way: the context scales and shifts what comes out of the first normalisation, and the bottleneck."""


class ScaleShift(nn.Module):
    """Starts without effect (zero weights) and grows as far as it helps."""

    inputs = 0

    def __init__(self, config: ScaleShiftConfig, slot_dim: int, first_channels: int, width: int):
        super().__init__()
        self.at_first = nn.Linear(slot_dim, 2 * first_channels)
        self.at_bottleneck = nn.Linear(slot_dim, 2 * width)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def first(self, context: Float[Tensor, "N D"], weight: Tensor, size: tuple[int, int]) -> None:
        return None

    def scale_shifts(self, context: Float[Tensor, "N D"]) -> tuple[Modulation, Modulation]:
        at_first, at_bottleneck = self.at_first(context), self.at_bottleneck(context)
        return at_first.chunk(2, dim=-1), at_bottleneck.chunk(2, dim=-1)


@dataclass(frozen=True, kw_only=True)
class UNetAttentionConfig:
    estimate: DotAttentionConfig = field(default_factory=DotAttentionConfig)
    unet: UNetConfig = field(default_factory=UNetConfig)
    transformer: SlotTransformerConfig = field(default_factory=SlotTransformerConfig)
    conditioning: ContextMapConfig | ScaleShiftConfig = field(default_factory=ContextMapConfig)
    reduction: int = 1
    """The U-Net sees the features and the estimated masks reduced so many times, and its change is enlarged again: the
    estimate has the fine detail, the U-Net the large view, at a fraction of the cost. 1 is the paper's."""


class UNetAttention(nn.Module):
    def __init__(self, config: UNetAttentionConfig, feature_dim: int, slot_dim: int, size: tuple[int, int]):
        super().__init__()
        if any(side % config.reduction for side in size):
            raise BadInput(f"a map of {size[0]}x{size[1]} cells cannot be reduced {config.reduction} times")
        self.reduction = config.reduction
        self.size = size
        self.estimate = DotAttention(config.estimate, feature_dim, slot_dim, size)
        self.conditioning: ContextMap | ScaleShift
        if isinstance(config.conditioning, ContextMapConfig):
            self.conditioning = ContextMap(config.conditioning, slot_dim)
        else:
            self.conditioning = ScaleShift(
                config.conditioning, slot_dim, config.unet.channels[0], config.unet.bottleneck[-1]
            )
        inputs = feature_dim + 2 + self.conditioning.inputs
        self.unet = UNet(config.unet, inputs, (size[0] // self.reduction, size[1] // self.reduction))
        self.transformer = SlotTransformer(config.transformer, self.unet.width)

    def forward(
        self,
        features: Float[Tensor, "B C h w"],
        context: Float[Tensor, "B K D"],
        expected: Float[Tensor, "B K _ _"] | None = None,
    ) -> Float[Tensor, "B K _ _"]:
        """`expected` log-masks, where the slots have regions, add to the estimated ones."""
        batch = features.shape[0]
        estimated = self.estimate(features, context, expected)
        every_context = context.flatten(0, 1)
        smaller = estimated
        if (ratio := estimated.shape[-1] // self.unet.size[1]) > 1:
            smaller = F.avg_pool2d(estimated.exp(), ratio).clamp(min=1e-6).log()
        if self.reduction > 1:
            features = F.avg_pool2d(features, self.reduction)
        first = self._first(features, smaller, every_context)
        at_first, at_bottleneck = self.conditioning.scale_shifts(every_context)
        h, skips = self.unet.encode(first, at_first)
        if at_bottleneck is not None:
            scale, shift = at_bottleneck
            h = torch.addcmul(shift, h, 1 + scale)
        q = self.transformer(h.unflatten(0, (batch, -1)))
        change = self.unet.decode(q.flatten(0, 1), skips).unflatten(0, (batch, -1))
        return (_at_size(change, estimated.shape[-2:]) + estimated).log_softmax(dim=1)

    def _first(
        self,
        features: Float[Tensor, "B C h w"],
        estimated: Float[Tensor, "B K h w"],
        context: Float[Tensor, "B*K D"],
    ) -> Float[Tensor, "B*K C1 h w"]:
        """The U-Net's first convolution of [features | estimated mask and its logarithm | context map], for each slot.

        A convolution is linear in its channels: the part of the features is the same for all slots and computed once,
        the part of the context is constant but at the border, and only two channels are convolved for each slot.
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
        return first.unflatten(0, (-1, slots)).add_(shared.unsqueeze(1)).flatten(0, 1)
