"""The component VAE of MONet and ViMON: encodes frame and mask to a vector, and decodes a vector to a picture and a
mask.

All slots share its weights and are processed independently.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.errors import BadInput


def components(frames: Float[Tensor, "B 3 H W"], maps: Float[Tensor, "B K H W"]) -> Float[Tensor, "B*K 4 H W"]:
    """Concatenates the frame with the map of each slot."""
    repeated = frames.unsqueeze(1).expand(-1, maps.shape[1], -1, -1, -1)
    stacked = torch.cat([repeated, maps.unsqueeze(2)], dim=2).flatten(0, 1)
    return stacked.contiguous(memory_format=torch.channels_last)


def first_and_others(first: float, others: float, log_masks: Float[Tensor, "B K H W"]) -> Float[Tensor, " K"]:
    """One number per slot, with a special value for the first: different values break the symmetry of the slots."""
    return torch.cat([log_masks.new_tensor([first]), log_masks.new_full((log_masks.shape[1] - 1,), others)])


@dataclass(frozen=True, kw_only=True)
class ComponentEncoderConfig:
    """The encoder of MONet's component VAE."""

    channels: tuple[int, ...] = (32, 32, 64, 64)
    """Channels of the 3x3 convolutions, each of which halves its map."""
    hidden: int = 256


class ComponentEncoder(nn.Sequential):
    """Encodes frame and mask (four channels) to a vector. Initialised as torch does by default."""

    def __init__(self, config: ComponentEncoderConfig, outputs: int, size: tuple[int, int]):
        widths = (4, *config.channels)
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()]
        flat = widths[-1] * math.prod(-(-side // 2 ** len(config.channels)) for side in size)
        super().__init__(
            *layers, nn.Flatten(), nn.Linear(flat, config.hidden), nn.ReLU(), nn.Linear(config.hidden, outputs)
        )


@dataclass(frozen=True, kw_only=True)
class ComponentDecoderConfig:
    """The decoder of MONet's component VAE."""

    channels: tuple[int, ...] = (32, 32, 32, 32)
    """Channels of the 3x3 convolutions without padding; the vector is repeated over a map that is larger by the lost
    border."""
    reduction: int = 1
    """Pictures are decoded at the frame's size divided by this, and enlarged."""


class ComponentDecoder(nn.Module):
    """Decodes a vector to a picture (three unbounded channels) and the logits of a mask. Initialised as torch does by
    default.

    The first convolution is linear, and its input is constant except for two channels of coordinates. So it is computed
    as a product for the vector, equal at all positions, plus a map of the coordinates, equal for all slots.
    """

    def __init__(self, config: ComponentDecoderConfig, latent_dim: int, size: tuple[int, int]):
        super().__init__()
        if any(side % config.reduction for side in size):
            raise BadInput(
                f"pictures of {size[0]}x{size[1]} cannot be reduced {config.reduction} times: "
                f"use a size that is a multiple of {config.reduction}"
            )
        self.size, self.reduction = size, config.reduction
        h, w = (side // config.reduction + 2 * len(config.channels) for side in size)
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        self.register_buffer("coordinates", torch.stack([rows, columns])[None], persistent=False)
        widths = (latent_dim + 2, *config.channels)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3) for a, b in itertools.pairwise(widths))
        self.output = nn.Conv2d(widths[-1], 4, 1)

    def forward(self, latents: Float[Tensor, "B K D"]) -> tuple[Float[Tensor, "B K 3 H W"], Float[Tensor, "B K H W"]]:
        first, *rest = self.layers
        of_latent, of_place = first.weight.split([latents.shape[-1], 2], dim=1)  # type: ignore[operator, union-attr]
        vector = latents.flatten(0, 1) @ of_latent.sum((2, 3)).t()
        place = F.conv2d(self.coordinates, of_place, first.bias)  # type: ignore[arg-type]
        x = F.relu_((vector[:, None, None] + place.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))  # channels last in memory
        for layer in rest:
            x = F.relu_(layer(x))
        x = self.output(x)
        if self.reduction != 1:
            x = F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)
        pictures, logits = x.unflatten(0, latents.shape[:2]).split([3, 1], dim=2)
        return pictures, logits.squeeze(2)
