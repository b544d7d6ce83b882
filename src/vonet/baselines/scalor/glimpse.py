"""Glimpses: boxes cut out of pictures, and small pictures pasted into boxes.

A box is (width, height, x, y): its size as a share of the picture's, its centre between −1 and 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.baselines.scalor.celu import Layer, down, grow, point, same, stack, whole
from vonet.errors import BadInput

_SMALLEST = 1e-9


def _centres(cells: int, like: Tensor) -> Float[Tensor, " cells"]:
    """Centres of `count` cells between −1 and 1."""
    return (2 * torch.arange(cells, device=like.device, dtype=like.dtype) + 1) / cells - 1


def crop(
    pictures: Float[Tensor, "B C H W"], boxes: Float[Tensor, "B N 4"], side: int
) -> Float[Tensor, "B N C side side"]:
    """The content of each box, by bilinear interpolation; zero outside the picture. The picture is not copied for each
    box."""
    size, middle = boxes[:, :, None, :2], boxes[:, :, None, 2:]
    x, y = (_centres(side, boxes)[:, None] * size + middle).unbind(-1)  # each B N side
    grid = torch.stack([x[:, :, None].expand(-1, -1, side, -1), y[:, :, :, None].expand(-1, -1, -1, side)], dim=-1)
    found = F.grid_sample(pictures, grid.flatten(1, 2), mode="bilinear", padding_mode="zeros", align_corners=False)
    return found.unflatten(2, (-1, side)).transpose(1, 2)


def paste(
    glimpses: Float[Tensor, "B N C side side"], boxes: Float[Tensor, "B N 4"], size: tuple[int, int]
) -> Float[Tensor, "B N C H W"]:
    """Each glimpse pasted into its box in an otherwise empty picture, by bilinear interpolation.

    Boxes are axis-aligned, so the interpolation is a matrix product on either side.
    """
    side = glimpses.shape[-1]
    columns = _interpolation(boxes[..., 0], boxes[..., 2], side, size[1])
    rows = _interpolation(boxes[..., 1], boxes[..., 3], side, size[0])
    return rows.unsqueeze(2) @ (glimpses @ columns.mT.unsqueeze(2))


def _interpolation(
    extent: Float[Tensor, "B N"], middle: Float[Tensor, "B N"], side: int, cells: int
) -> Float[Tensor, "B N cells side"]:
    """Interpolation weights of each glimpse cell for each cell of the picture."""
    extent = extent + _SMALLEST
    seen = (_centres(cells, extent) - middle[..., None]) / extent[..., None]
    place = ((seen + 1) * side - 1) / 2
    numbers = torch.arange(side, device=extent.device, dtype=extent.dtype)
    return (1 - (place[..., None] - numbers).abs()).clamp(min=0)


class GlimpseEncoder(nn.Sequential):
    """Encodes a glimpse to a vector."""

    def __init__(self, side: int, outputs: int):
        if side not in (32, 64):
            raise BadInput(f"glimpses have {side} pixels a side; expected 32 or 64")
        last = (down(128, 16),) if side == 64 else (same(64, 8),)
        layers = stack(3, down(16, 4), down(32, 8), down(64, 8), *last, whole(128, 16))
        super().__init__(layers, nn.Flatten(), nn.Linear(128, outputs))


class GlimpseDecoder(nn.Module):
    """Decodes a vector to a glimpse: colours and a mask, each between 0 and 1. `fine` adds a layer before each of the
    two outputs."""

    def __init__(self, side: int, latent_dim: int, *, fine: bool):
        super().__init__()
        if side not in (32, 64):
            raise BadInput(f"glimpses have {side} pixels a side; expected 32 or 64")
        begin = (point(128, 16), grow(1024, 4, 8))
        if side == 64:
            layers: tuple[Layer, ...] = (
                same(64, 8),
                grow(1024, 4, 8),
                same(64, 8),
                grow(128, 2, 8),
                same(32, 8),
                grow(64, 2, 4),
            )
        else:
            layers = (grow(256, 2, 8), grow(128, 2, 8), grow(64, 2, 4), same(16, 4))
        self.layers = stack(latent_dim, *begin, *layers)
        self.before_colour, self.before_mask = (stack(16, same(8, 4)) if fine else nn.Identity() for _ in range(2))
        self.colour, self.mask = (nn.Conv2d(8 if fine else 16, outputs, 3, padding=1) for outputs in (3, 1))
        self.fine = fine

    def forward(
        self, what: Float[Tensor, "B N D"]
    ) -> tuple[Float[Tensor, "B N 3 side side"], Float[Tensor, "B N 1 side side"]]:
        x = self.layers(what.flatten(0, 1)[..., None, None])
        if self.fine:
            painted = torch.cat([self.colour(self.before_colour(x)), self.mask(self.before_mask(x))], dim=1)
        else:  # both heads see the same, so they are one convolution
            weight = torch.cat([self.colour.weight, self.mask.weight])
            painted = F.conv2d(x, weight, torch.cat([self.colour.bias, self.mask.bias]), padding=1)  # type: ignore
        colour, mask = painted.sigmoid().unflatten(0, what.shape[:2]).split([3, 1], dim=2)
        return colour, mask
