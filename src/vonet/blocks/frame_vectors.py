"""A frame as a set of feature vectors with position codes: the input of slot attention.

x = MLP(LN(backbone(frame) + W·place)), without a residual connection around the MLP
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import ResidualBlock
from vonet.blocks.layers import conv, linear, mlp
from vonet.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """A ResNet with one basic block in each stage, for small pictures: it starts without pooling."""

    channels: tuple[int, ...] = (64, 128, 256, 512)
    strides: tuple[int, ...] = (1, 2, 2, 2)
    groups: int = 32
    """Groups of the group norm."""

    def __post_init__(self) -> None:
        _check_strides(self.channels, self.strides)
        if any(c % self.groups for c in self.channels):
            raise BadInput(f"channels {self.channels} cannot be normalised in {self.groups} groups: use multiples")


class ResNet(nn.Sequential):
    """The norm that ends a residual branch starts with a scale of zero, so that each block starts as its shortcut."""

    def __init__(self, config: ResNetConfig):
        first = config.channels[0]
        root = (conv(3, first, 3, bias=False), nn.GroupNorm(config.groups, first))
        widths = (first, *config.channels)
        blocks = [
            ResidualBlock(a, b, stride, config.groups)
            for a, b, stride in zip(widths[:-1], widths[1:], config.strides, strict=True)
        ]
        for block in blocks:
            nn.init.zeros_(block.norm2.weight)
        super().__init__(*root, *blocks)


@dataclass(frozen=True, kw_only=True)
class ConvStackConfig:
    """Plain convolutions with ReLU between them."""

    channels: tuple[int, ...] = (64, 64, 64, 192)
    strides: tuple[int, ...] = (2, 1, 1, 1)
    kernel: int = 5

    def __post_init__(self) -> None:
        _check_strides(self.channels, self.strides)
        if self.kernel % 2 == 0:
            raise BadInput(f"a kernel of {self.kernel} cells has no middle: use an odd number")


class ConvStack(nn.ModuleList):
    """Plain convolutions with ReLU between them."""

    def __init__(self, config: ConvStackConfig):
        widths, last = (3, *config.channels), len(config.channels) - 1
        super().__init__(
            conv(a, b, config.kernel, "linear" if i == last else "relu", stride=stride)
            for i, ((a, b), stride) in enumerate(zip(itertools.pairwise(widths), config.strides, strict=True))
        )

    def forward(self, frames: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N C h w"]:
        *hidden, last = self
        for layer in hidden:
            frames = F.relu_(layer(frames))
        return last(frames)


def _check_strides(channels: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if not channels or len(channels) != len(strides):
        raise BadInput(f"{len(channels)} layers have {len(strides)} strides: give one for each layer, at least one")


def centred_grid(h: int, w: int) -> Float[Tensor, "h w 2"]:
    """(y, x), each axis from −1 at the first cell to 1 at the last."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    return torch.stack([y, x], dim=-1)


def four_sided_grid(h: int, w: int) -> Float[Tensor, "h w 4"]:
    """(x, y, 1−x, 1−y) at the centre of each cell; the frame's sides are at 0 and 1."""
    y, x = torch.meshgrid((torch.arange(h) + 0.5) / h, (torch.arange(w) + 0.5) / w, indexing="ij")
    return torch.stack([x, y, 1 - x, 1 - y], dim=-1)


class FrameVectors(nn.Module):
    """`grid`: the position code, `centred_grid` (SAVi) or `four_sided_grid` (STEVE)."""

    def __init__(
        self,
        config: ResNetConfig | ConvStackConfig,
        hidden: int,
        grid: Callable[[int, int], Tensor],
        size: tuple[int, int],
    ):
        super().__init__()
        stride = math.prod(config.strides)
        if any(side % stride for side in size):
            raise BadInput(
                f"frames of {size[0]}x{size[1]} cannot be reduced {stride} times: "
                f"use a size that is a multiple of {stride}"
            )
        self.cells = (size[0] // stride, size[1] // stride)
        self.width = config.channels[-1]
        self.backbone = ResNet(config) if isinstance(config, ResNetConfig) else ConvStack(config)
        places = grid(*self.cells)
        self.register_buffer("places", places, persistent=False)
        self.place = linear(places.shape[-1], self.width)
        self.norm = nn.LayerNorm(self.width)
        self.mlp = mlp(self.width, hidden, self.width)

    def forward(self, frames: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N cells F"]:
        maps = self.backbone(frames.contiguous(memory_format=torch.channels_last))
        vectors = maps.permute(0, 2, 3, 1) + self.place(self.places)
        return self.mlp(self.norm(vectors.flatten(1, 2)))
