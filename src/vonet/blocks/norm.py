"""Instance norm of maps in channels-last memory, the memory format that convolutions on CPUs need.

Torch's own kernels take three to six times as long in this format, because they traverse a map once per channel. Here,
sums over the cells of a map are computed as products with a vector of ones. A test compares the function with torch's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.precision import in_float32

# From this many cells on torch's forward pass is the faster one (docs/log/mixture.md); its backward pass never is.
CELLS_FOR_TORCH = 1024


class InstanceNorm(nn.Module):
    """Normalises each channel of each map to mean zero and variance one, then applies a learned scale and shift."""

    eps = 1e-5
    portable = False
    """Whether torch's own norm is always used, which an exported model needs."""
    weight: Tensor
    bias: Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    @in_float32
    def forward(self, x: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
        if self.portable or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            return F.group_norm(x, x.shape[1], self.weight, self.bias, self.eps)
        return _InstanceNorm.apply(x, self.weight, self.bias, self.eps)


class GroupNorm(nn.GroupNorm):
    """Torch's group norm, always in float32, because in bfloat16 it takes ten times as long on CPUs."""

    @in_float32
    def forward(self, x: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
        return super().forward(x)


class PlainInstanceNorm(InstanceNorm):
    """Without anything learned."""

    def __init__(self, channels: int):
        nn.Module.__init__(self)
        self.register_buffer("weight", torch.ones(channels), persistent=False)
        self.register_buffer("bias", torch.zeros(channels), persistent=False)


class _InstanceNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        cells = _cells(x)
        maps, count, channels = cells.shape
        if count >= CELLS_FOR_TORCH and maps > 1:  # of a single map torch may misread the order in memory
            y, mean, scale = torch.native_group_norm(x, weight, bias, maps, channels, count, channels, eps)
            mean, scale = mean.unsqueeze(1), scale.unsqueeze(1)
        else:
            y = torch.empty_like(x, memory_format=torch.channels_last)
            mean = _mean(cells)
            scale = _mean((cells - mean).square_()).add_(eps).rsqrt_()
            by = scale * weight
            torch.addcmul(torch.addcmul(bias, mean, by, value=-1), cells, by, out=_cells(y))
        ctx.save_for_backward(x, mean, scale, weight)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, mean, scale, weight = ctx.saved_tensors
        gradient = _cells(gradients[0])
        normed = (_cells(x) - mean).mul_(scale)
        of_bias, of_weight = _mean(gradient), _mean(gradient * normed)
        by = scale * weight
        of_x = torch.empty_like(x, memory_format=torch.channels_last)
        along = normed.mul_(of_weight * by).add_(of_bias * by)  # what leaves mean and variance as they are
        torch.addcmul(along.neg_(), gradient, by, out=_cells(of_x))
        count = gradient.shape[1]
        return of_x, of_weight.sum((0, 1)) * count, of_bias.sum((0, 1)) * count, None


def _cells(x: Float[Tensor, "N C h w"]) -> Float[Tensor, "N h*w C"]:
    """A view without a copy if the channels are last in memory."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _mean(cells: Float[Tensor, "N cells C"]) -> Float[Tensor, "N 1 C"]:
    return torch.full((1, 1, cells.shape[1]), 1 / cells.shape[1], dtype=cells.dtype) @ cells
