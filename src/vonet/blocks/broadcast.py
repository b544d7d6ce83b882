"""The spatial-broadcast decoder. Each slot is decoded to a picture. The K pictures are combined by one of two
likelihoods, a mixture or a blend."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import conv_of_constant, transposed_conv, upsampled_conv
from vonet.blocks.layers import conv, linear
from vonet.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class SpatialBroadcastConfig:
    """A decoder that repeats a vector over a grid and enlarges the grid by convolutions."""

    grid: int = 8
    """The latent is repeated over a grid with this many cells on the shorter side."""
    channels: tuple[int, ...] = (64, 64, 64, 64)
    """Channels of the convolutions. The first ones double the size of their map, until the picture's size is
    reached."""
    kernel: int = 3
    """Kernel size of the convolutions. Convolutions of size 3 enlarge by repeating cells; larger ones are transposed
    convolutions (SAVi: 5)."""

    def __post_init__(self) -> None:
        if self.kernel < 3 or self.kernel % 2 == 0:
            raise BadInput(f"a broadcast decoder's kernel is {self.kernel}; it must be an odd number from 3 on")


class SpatialBroadcast(nn.Module):
    """Decodes latents `B K D` to maps `B K outputs H W`, each slot independently of its mask."""

    def __init__(self, config: SpatialBroadcastConfig, latent_dim: int, outputs: int, size: tuple[int, int]):
        super().__init__()
        ratio = min(size) / config.grid
        self.doublings = int(math.log2(ratio)) if ratio >= 1 else -1
        if (
            not 0 <= self.doublings <= len(config.channels)
            or config.grid * 2**self.doublings != min(size)
            or any(side % 2**self.doublings for side in size)
        ):
            raise BadInput(
                f"a picture of {size[0]}x{size[1]} cannot grow from a grid of {config.grid} cells by doubling at most "
                f"{len(config.channels)} times: make its shorter side {config.grid} times a power of two, "
                "or change the grid or the number of layers"
            )
        h, w = (side // 2**self.doublings for side in size)
        rows, columns = torch.linspace(-1, 1, h), torch.linspace(-1, 1, w)
        grid = torch.stack([rows[:, None].expand(h, w), columns[None, :].expand(h, w)], dim=-1)
        self.register_buffer("coordinates", grid, persistent=False)
        self.position = linear(2, latent_dim)
        widths = (latent_dim, *config.channels)
        self.layers = nn.ModuleList(conv(a, b, config.kernel, "relu") for a, b in itertools.pairwise(widths))
        self.kernel = config.kernel
        self.enlarging_conv = upsampled_conv if config.kernel == 3 else transposed_conv
        self.output = conv(widths[-1], outputs, 1)

    def forward(self, latents: Float[Tensor, "B K D"]) -> Float[Tensor, "B K outputs H W"]:
        if self.kernel == 3 and len(self.layers):
            x, begun = F.relu_(self._first(latents.flatten(0, 1))), 1
        else:
            x = (latents[:, :, None, None] + self.position(self.coordinates)).flatten(0, 1)
            x, begun = x.permute(0, 3, 1, 2), 0  # channels last in memory
        for i, layer in enumerate(self.layers[begun:], begun):
            enlarged = i < self.doublings
            x = self.enlarging_conv(x, layer.weight, layer.bias) if enlarged else layer(x)  # type: ignore[arg-type]
            x = F.relu_(x)
        return self.output(x).unflatten(0, latents.shape[:2])

    def _first(self, latents: Float[Tensor, "N D"]) -> Float[Tensor, "N C h w"]:
        """The first convolution. The first convolution is linear, and its input is the sum of a constant vector per
        slot and a map that all slots share; so the two are convolved separately."""
        layer, places = self.layers[0], self.position(self.coordinates).permute(2, 0, 1)[None]
        weight, bias = layer.weight, layer.bias
        convolve = upsampled_conv if self.doublings else partial(F.conv2d, padding=1)
        of_place = convolve(places, weight, bias)  # type: ignore[operator, arg-type]
        of_latent = conv_of_constant(latents, weight, tuple(of_place.shape[-2:]))  # type: ignore[arg-type]
        return of_latent + of_place.contiguous(memory_format=torch.channels_last)


def mixture_error(
    frames: Float[Tensor, "B 3 H W"],
    pictures: Float[Tensor, "B K 3 H W"],
    log_masks: Float[Tensor, "B K H W"],
    sigma: float | Float[Tensor, " K"],
) -> Float[Tensor, " B"]:
    """−log Σ_k m_k N(x; μ_k, σ_k²), per colour channel, summed over the frame (MONet)."""
    sigmas = torch.as_tensor(sigma, dtype=pictures.dtype, device=pictures.device).view(-1, 1, 1, 1)
    squared = (rearrange(frames, "b c h w -> b 1 c h w") - pictures).square()
    normalised = log_masks.unsqueeze(2) - sigmas.log()
    log_likelihood = torch.logsumexp(torch.addcmul(normalised, squared, -0.5 / sigmas.square()), dim=1)
    return -(log_likelihood - 0.5 * math.log(2 * math.pi)).sum((1, 2, 3))


def mask_divergence(log_masks: Float[Tensor, "B K H W"], log_painted: Float[Tensor, "B K H W"]) -> Float[Tensor, " B"]:
    """Σ_pixels KL(m ‖ m̃) of the attention's masks m and the decoder's masks m̃ (MONet). Both get gradients."""
    return (log_masks.exp() * (log_masks - log_painted)).sum((1, 2, 3))


def blend(pictures: Float[Tensor, "B K 3 H W"], log_masks: Float[Tensor, "B K H W"]) -> Float[Tensor, "B 3 H W"]:
    """Σ_k m_k μ_k."""
    return (pictures.contiguous() * log_masks.exp().unsqueeze(2)).sum(1)


def blend_error(
    frames: Float[Tensor, "B 3 H W"],
    pictures: Float[Tensor, "B K 3 H W"],
    log_masks: Float[Tensor, "B K H W"],
    sigma: float,
) -> Float[Tensor, " B"]:
    """(x − Σ_k m_k μ_k)² / 2σ², summed over the frame (SAVi)."""
    return (frames - blend(pictures, log_masks)).square().sum((1, 2, 3)) / (2 * sigma**2)
