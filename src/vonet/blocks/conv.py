"""Convolutions: the residual block, and exact cheaper forms of two convolutions of the U-Net.

Both shortcuts use the weight of the plain 3x3 convolution, so checkpoints are the same. Tests compare them with the
plain forms.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import conv

# Below this size the transposed convolution costs more to start than it saves (measured on two cores, docs/log.md).
SMALLEST_SIDE_FOR_TRANSPOSED = 16


class ResidualBlock(nn.Module):
    """conv, norm, ReLU, conv, norm, plus the input (projected where shapes differ), ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, "relu", stride=stride, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = conv(outputs, outputs, 3, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.stride = stride
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, bias=False), nn.GroupNorm(groups, outputs))

    def forward(self, x: Float[Tensor, "N inputs H W"]) -> Float[Tensor, "N outputs h w"]:
        y = F.relu_(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        # Taking every stride-th cell first equals a strided 1x1 convolution, whose backward pass in channels-last
        # memory corrupts the heap in torch 2.13 on CPUs (tests/test_blocks.py keeps the two together).
        kept = x[:, :, :: self.stride, :: self.stride].contiguous(memory_format=torch.channels_last)
        return F.relu_(y.add_(self.shortcut(kept)))


def upsampled_conv(
    small: Float[Tensor, "N inputs h w"],
    weight: Float[Tensor, "outputs inputs 3 3"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "N outputs 2*h 2*w"]:
    """A 3x3 convolution of the map enlarged twice by nearest neighbour, without enlarging it: 4/9 of the work.

    Each small cell fills 2x2 large ones, so it reaches the result through the 3x3 kernel smeared by a 2x2 box: a
    transposed 4x4 convolution of stride two.
    """
    smeared = F.avg_pool2d(F.pad(weight, (1, 1, 1, 1)), kernel_size=2, stride=1) * 4
    return F.conv_transpose2d(small, smeared.flip(2, 3).transpose(0, 1), bias, stride=2, padding=1)


def transposed_conv(
    small: Float[Tensor, "N inputs h w"],
    weight: Float[Tensor, "outputs inputs k k"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "N outputs 2*h 2*w"]:
    """A transposed convolution of stride two and odd kernel that doubles the sides, its weight in the order of an
    ordinary one."""
    padding = weight.shape[-1] // 2
    return F.conv_transpose2d(small, weight.transpose(0, 1), bias, stride=2, padding=padding, output_padding=1)


def conv_up_and_skip(
    small: Float[Tensor, "N low h w"],
    skip: Float[Tensor, "N high 2*h 2*w"],
    weight: Float[Tensor, "outputs low+high 3 3"],
) -> Float[Tensor, "N outputs 2*h 2*w"]:
    """A 3x3 convolution of the concatenation [small enlarged twice | skip].

    A convolution is linear in its channels, so it is the sum of two, and neither the enlarged map nor the
    concatenation is ever made.
    """
    low = small.shape[1]
    if small.shape[-1] < SMALLEST_SIDE_FOR_TRANSPOSED:
        return F.conv2d(torch.cat([F.interpolate(small, scale_factor=2.0), skip], dim=1), weight, padding=1)
    return upsampled_conv(small, weight[:, :low]).add_(F.conv2d(skip, weight[:, low:], padding=1))


def conv_of_constant(
    values: Float[Tensor, "N inputs"], weight: Float[Tensor, "outputs inputs 3 3"], size: tuple[int, int]
) -> Float[Tensor, "N outputs h w"]:
    """A 3x3 convolution (zero padding) of maps that are constant over space, without making the maps.

    The result differs from place to place only by which of the nine taps fall inside the picture.
    """
    taps = torch.einsum("oiyx,ni->nyxo", weight, values).flatten(1, 2)  # N 9 outputs
    ones = torch.ones(1, 1, *size, dtype=values.dtype, device=values.device)
    inside = F.unfold(ones, kernel_size=3, padding=1)[0]  # 9 h*w
    return (inside.t() @ taps).unflatten(1, size).permute(0, 3, 1, 2)  # channels last in memory
