"""How far the masks are from being one compact region each.

Not the paper's. Where the decoder is told the masks, similar things may share a slot without making a frame any harder
to explain: nothing tells two red balls apart. This loss does. The Gaussian in the plane with a mask's middle and extent
covers about as many cells as the mask itself if that is one region, whatever its size, and many more if it is two
balls, or a ring, or crumbs.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST_MASS = 1e-4
UNTOLD = 4.0
"""A slot of about as many cells or fewer hardly pays: else one that has lost its thing would be driven out of every
place where it could find another."""


def scatter(log_masks: Float[Tensor, "*B K h w"]) -> Float[Tensor, "*B"]:
    """Σ_k mass_k · log (cells that the mask's Gaussian covers / mass_k), in nats per frame, but for tiny masks.

    Squares and discs of any size, half-planes and whole frames cost nearly the same per cell, so neither large nor
    small regions are favoured, nor is the background cut up. It is what a mixture of Gaussians would pay for the cells.
    """
    h, w = log_masks.shape[-2:]
    masks = log_masks.flatten(-2).exp()
    sides = (torch.arange(side, dtype=masks.dtype, device=masks.device) for side in (h, w))
    y, x = (grid.flatten() for grid in torch.meshgrid(*sides, indexing="ij"))
    y, x = y - y.mean(), x - x.mean()
    moments = torch.stack([torch.ones_like(x), y, x, y * y, y * x, x * x], dim=-1)
    mass, *sums = (masks @ moments).unbind(-1)
    mass = mass.clamp(min=SMALLEST_MASS)
    my, mx, yy, yx, xx = (part / mass for part in sums)
    cell = 1 / 12  # the variance of a square of side one
    yy, yx, xx = yy - my * my + cell, yx - my * mx, xx - mx * mx + cell
    determinant = (yy * xx - yx * yx).clamp(min=cell**2)
    covered = math.log(2 * math.pi * math.e) + 0.5 * determinant.log()
    counts = mass / (mass + UNTOLD)
    return (counts * mass * (covered - mass.log())).sum(-1)
