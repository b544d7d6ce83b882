"""Frame → feature map with position codes (paper, appendix: "Backbone for image features")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import ResidualBlock
from vonet.blocks.layers import conv, mlp
from vonet.blocks.precision import in_float32
from vonet.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """A small ResNet with position codes (paper, appendix, "Backbone for image features").

    Raises:
        BadInput: If `channels` and `strides` differ in length, or the channels are not multiples of `groups`.
    """

    channels: tuple[int, ...] = (64, 64, 64, 64, 64)
    """Channels of the residual blocks."""
    strides: tuple[int, ...] = (2, 1, 1, 1, 1)
    feature_dim: int = 128
    groups: int = 8
    """Groups of the group norm. It replaces the batch norm of the authors' code, because a frame's features must not
    depend on the other frames of the batch."""

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.strides):
            raise BadInput(f"{len(self.channels)} blocks have {len(self.strides)} strides: give one for each block")
        if any(c % self.groups for c in self.channels):
            raise BadInput(
                f"channels {self.channels} cannot be normalised in {self.groups} groups: use multiples of {self.groups}"
            )

    def build(self, size: tuple[int, int]) -> Any:
        return Backbone(self, size)

    @property
    def stride(self) -> int:
        """H / h: pixels per cell, along each side."""
        return math.prod(self.strides)


class Backbone(nn.Module):
    """Frames `B 3 H W`, floats in [0, 1], to features `B C h w`.

    Args:
        config: Channels and strides.
        size: Height and width of the frames, in pixels.

    Raises:
        BadInput: If the size is not a multiple of the stride.
    """

    def __init__(self, config: BackboneConfig, size: tuple[int, int]):
        super().__init__()
        if any(side % config.stride for side in size):
            raise BadInput(
                f"frames of {size[0]}x{size[1]} cannot be reduced {config.stride} times: "
                f"use a size that is a multiple of {config.stride}"
            )
        self.feature_size = (size[0] // config.stride, size[1] // config.stride)
        widths = (3, *config.channels)
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(a, b, stride, config.groups)
                for a, b, stride in zip(widths[:-1], widths[1:], config.strides, strict=True)
            )
        )
        self.features = conv(widths[-1], config.feature_dim, 1)
        self.register_buffer("grid", _position_grid(*self.feature_size), persistent=False)
        self.position = mlp(4, config.feature_dim, config.feature_dim)

    def forward(self, frame: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C h w"]:
        x = self.blocks(frame.contiguous(memory_format=torch.channels_last))
        return self._placed(self.features(x))

    @in_float32
    def _placed(self, features: Float[Tensor, "B C h w"]) -> Float[Tensor, "B C h w"]:
        return features.add_(self.position(self.grid).permute(2, 0, 1))


def _position_grid(h: int, w: int) -> Float[Tensor, "h w 4"]:
    """(y, x, 1−y, 1−x), each axis from 0 at the first cell to 1 at the last."""
    y = torch.linspace(0, 1, h)[:, None].expand(h, w)
    x = torch.linspace(0, 1, w)[None, :].expand(h, w)
    return torch.stack([y, x, 1 - y, 1 - x], dim=-1)
