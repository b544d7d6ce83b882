"""From masks of the features' size to masks of the frame's, along the edges that the features know of.

Not the paper's, which repeats cells. Each pixel takes a weighted mean of the masks of the nine cells around it; the weights
come from the frame alone, so all slots share them, which makes it cheap, and the masks still sum to one
(RAFT, Teed and Deng 2020, "convex upsampling").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import conv

SMALLEST_MASK = 1e-6
"""Below this a mask counts as none: its logarithm would be the loudest number of all."""


@dataclass(frozen=True, kw_only=True)
class ConvexUpsamplingConfig:
    hidden: int = 64


class ConvexUpsampling(nn.Module):
    """Begins as bilinear interpolation of the masks, and learns where edges are."""

    def __init__(self, config: ConvexUpsamplingConfig, feature_dim: int, factor: int):
        super().__init__()
        self.factor = factor
        self.hidden = conv(feature_dim, config.hidden, 3, "relu")
        self.logits = conv(config.hidden, 9 * factor**2, 1)
        with torch.no_grad():
            self.logits.weight.zero_()
            self.logits.bias.copy_(_bilinear(factor).clamp(min=1e-3).log().flatten())  # type: ignore[union-attr]

    def forward(
        self, features: Float[Tensor, "B C h w"], log_masks: Float[Tensor, "B K h w"]
    ) -> Float[Tensor, "B K H W"]:
        """Log-masks `factor` times as large."""
        batch, slots, h, w = log_masks.shape
        logits = self.logits(F.relu_(self.hidden(features)))
        weights = rearrange(logits, "b (nine s) h w -> (b h w) nine s", nine=9).softmax(dim=1)
        around = F.unfold(F.pad(log_masks.exp(), (1, 1, 1, 1), mode="replicate"), kernel_size=3)
        around = rearrange(around, "b (k nine) cells -> (b cells) k nine", nine=9)
        fine = rearrange(
            around @ weights, "(b h w) k (y x) -> b k (h y) (w x)", b=batch, h=h, w=w, y=self.factor, x=self.factor
        )
        return fine.clamp(min=SMALLEST_MASK).log()


def _bilinear(factor: int) -> Float[Tensor, "9 factor*factor"]:
    """The share of each of the nine cells around in each of the pixels of a cell, by bilinear interpolation."""
    offset = (torch.arange(factor) + 0.5) / factor - 0.5  # of a pixel's middle from its cell's, in cells
    line = torch.stack([(-offset).clamp(min=0), 1 - offset.abs(), offset.clamp(min=0)])
    return torch.einsum("ay,bx->abyx", line, line).reshape(9, factor**2)
