"""Convolutions: the residual block, and exact cheaper forms of two convolutions of the U-Net.

Both use the weight of the plain 3x3 convolution, so checkpoints do not change. Tests compare them with the plain forms.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.amp import custom_fwd
from torch.autograd.function import once_differentiable

from vonet.blocks.layers import conv
from vonet.blocks.norm import GroupNorm
from vonet.blocks.precision import halved

# Below this size the transposed convolution costs more to start than it saves (two cores, docs/log/speed.md).
SMALLEST_SIDE_FOR_TRANSPOSED = 16


class ResidualBlock(nn.Module):
    """conv, norm, ReLU, conv, norm, plus the input (projected where shapes differ), ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, "relu", stride=stride, bias=False)
        self.norm1 = GroupNorm(groups, outputs)
        self.conv2 = conv(outputs, outputs, 3, bias=False)
        self.norm2 = GroupNorm(groups, outputs)
        self.stride = stride
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, bias=False), GroupNorm(groups, outputs))

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
    """A 3x3 convolution of a map enlarged twice by nearest neighbour, computed without enlarging the map: 4/9 of the
    work.

    Each small cell fills 2x2 large ones, so its effect on the result is the 3x3 kernel convolved with a 2x2 box: a
    transposed 4x4 convolution of stride two.
    """
    if halved(small) and small.device.type == "cpu":
        return _UpsampledConv.apply(small, _smeared(weight.detach()), _by_parity(weight), bias)
    return F.conv_transpose2d(small, _smeared(weight), bias, stride=2, padding=1)


def _smeared(weight: Float[Tensor, "outputs inputs 3 3"]) -> Float[Tensor, "inputs outputs 4 4"]:
    smeared = F.avg_pool2d(F.pad(weight, (1, 1, 1, 1)), kernel_size=2, stride=1) * 4
    return smeared.flip(2, 3).transpose(0, 1)


def _by_parity(weight: Float[Tensor, "outputs inputs 3 3"]) -> Float[Tensor, "four_outputs inputs 2 2"]:
    """The same as four 2x2 convolutions, one for each combination of even and odd rows and columns of the large map.
    Along each axis, the three taps fall on two small cells: one and two of them at even positions, two and one at odd
    positions."""
    falls = weight.new_tensor([[[1, 0, 0], [0, 1, 1]], [[1, 1, 0], [0, 0, 1]]])  # parity, small cell, tap
    return torch.einsum("pad,qbe,oide->pqoiab", falls, falls, weight).flatten(0, 2)


class _UpsampledConv(torch.autograd.Function):
    """Used in bfloat16 on CPUs, where the backward pass of a transposed convolution is slow: it uses the four 2x2
    convolutions instead."""

    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx: Any, small: Tensor, smeared: Tensor, by_parity: Tensor, bias: Tensor | None) -> Tensor:
        small, by_parity = small.bfloat16(), by_parity.bfloat16().contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(small, by_parity)
        ctx.biased = bias is not None
        return F.conv_transpose2d(small, smeared, bias, stride=2, padding=1)  # autocast converts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor, Tensor | None]:
        small, by_parity = ctx.saved_tensors
        (n, _, h, w), outputs = small.shape, d.shape[1]
        d_large = d.permute(0, 2, 3, 1).reshape(n, h, 2, w, 2, outputs)
        d_small = d.new_zeros(n, h + 1, w + 1, 4 * outputs)
        for i, (down, right) in enumerate(itertools.product((0, 1), (0, 1))):
            at = d_small[:, down : down + h, right : right + w, i * outputs : (i + 1) * outputs]
            at.copy_(d_large[:, :, down, :, right])
        of_small, of_weight, _ = torch.ops.aten.convolution_backward(
            d_small.permute(0, 3, 1, 2), small, by_parity, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
            [True, True, False],
        )  # fmt: skip
        of_bias = d.sum((0, 2, 3), dtype=torch.float32) if ctx.biased else None
        return of_small, None, of_weight.float(), of_bias


def transposed_conv(
    small: Float[Tensor, "N inputs h w"],
    weight: Float[Tensor, "outputs inputs k k"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "N outputs 2*h 2*w"]:
    """A transposed convolution with stride two and odd kernel that doubles the sides; its weight has the layout of an
    ordinary convolution."""
    padding = weight.shape[-1] // 2
    return F.conv_transpose2d(small, weight.transpose(0, 1), bias, stride=2, padding=padding, output_padding=1)


def conv_up_and_skip(
    small: Float[Tensor, "N low h w"],
    skip: Float[Tensor, "N high 2*h 2*w"],
    weight: Float[Tensor, "outputs low+high 3 3"],
) -> Float[Tensor, "N outputs 2*h 2*w"]:
    """A 3x3 convolution of the concatenation [small enlarged twice | skip].

    A convolution is linear in its channels, so it is the sum of two; neither the enlarged map nor the concatenation is
    computed.
    """
    low = small.shape[1]
    if small.shape[-1] < SMALLEST_SIDE_FOR_TRANSPOSED:
        return F.conv2d(torch.cat([F.interpolate(small, scale_factor=2.0), skip], dim=1), weight, padding=1)
    return upsampled_conv(small, weight[:, :low]).add_(F.conv2d(skip, weight[:, low:], padding=1))


def conv_of_constant(
    values: Float[Tensor, "N inputs"], weight: Float[Tensor, "outputs inputs 3 3"], size: tuple[int, int]
) -> Float[Tensor, "N outputs h w"]:
    """A 3x3 convolution (zero padding) of maps that are constant over space, computed without the maps.

    The result varies over the map only with the set of taps that fall inside it.
    """
    taps = torch.einsum("oiyx,ni->nyxo", weight, values).flatten(1, 2)  # N 9 outputs
    ones = torch.ones(1, 1, *size, dtype=values.dtype, device=values.device)
    inside = F.unfold(ones, kernel_size=3, padding=1)[0]  # 9 h*w
    return (inside.t() @ taps).unflatten(1, size).permute(0, 3, 1, 2)  # channels last in memory
