"""Fast random numbers for training on CPUs, where torch's dropout and exponential sampling are a bottleneck."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

_LEVELS = 2**16


def drop_mask(shape: tuple[int, ...], rate: float) -> tuple[Bool[Tensor, ...], float]:
    """Booleans that are true with probability `rate`, and the exact probability.

    Four are taken from each 64-bit random number, so the rate is a multiple of 2⁻¹⁶; rescale with the returned exact
    probability.
    """
    count = torch.Size(shape).numel()
    threshold = round(rate * _LEVELS)
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return (words.view(torch.int16)[:count] < threshold - _LEVELS // 2).view(shape), threshold / _LEVELS


def dropout(x: Float[Tensor, "*any"], rate: float, training: bool) -> Float[Tensor, "*any"]:
    """Dropout, with a cheaper random mask on CPUs."""
    if not training or rate == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    dropped, exact_rate = drop_mask(tuple(x.shape), rate)
    return x.masked_fill(dropped, 0).mul_(1 / (1 - exact_rate))


def gumbel_like(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Standard Gumbel noise, −log(−log u)."""
    u = torch.rand_like(x).clamp_min_(torch.finfo(x.dtype).tiny)
    return u.log_().neg_().log_().neg_()


def draw_noise(
    batch: int, slots: int, slot_dim: int, like: Tensor, generator: torch.Generator | None
) -> Float[Tensor, "B K D"]:
    """Unit Gaussian noise, one vector per slot. The generator may be on the CPU for any device of the model, so that
    the same seed gives the same slots everywhere."""
    device = generator.device if generator is not None else like.device
    noise = torch.randn(batch, slots, slot_dim, generator=generator, device=device, dtype=like.dtype)
    return noise.to(like.device)
