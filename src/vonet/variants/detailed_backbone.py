"""Features at the frame's own size. Replaces `Backbone`, whose features, and so the masks, have fewer cells.

::

    frame ─┬─► backbone ─► features h w ─► enlarged ──(+)──► features H W
           └─► two convolutions of the pixels ─────────┘

Why: at 32 px the outlines of objects decide the score. True masks that are one pixel too wide have an mIoU of 64 on
close-ups (docs/log/closeup.md). The backbone itself keeps its resolution, because a residual block at the frame's size
costs four times as much. The added part starts at zero, so that training can continue from a model without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import conv
from vonet.model.backbone import Backbone, BackboneConfig


@dataclass(frozen=True, kw_only=True)
class DetailedBackboneConfig(BackboneConfig):
    """The paper's backbone with details of the pixels added at the frame's size."""

    detail_channels: int = 16
    """Channels of the convolutions of the pixels."""

    def build(self, size: tuple[int, int]) -> DetailedBackbone:
        return DetailedBackbone(self, size)


class DetailedBackbone(Backbone):
    """Frames `B 3 H W` to features `B C H W`."""

    def __init__(self, config: DetailedBackboneConfig, size: tuple[int, int]):
        super().__init__(config, size)
        self.feature_size = size
        width = config.detail_channels
        self.detail = nn.Sequential(
            conv(3, width, 3, "relu"),
            nn.ReLU(),
            conv(width, width, 3, "relu"),
            nn.ReLU(),
            conv(width, config.feature_dim, 1),
        )
        nn.init.zeros_(self.detail[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.detail[-1].bias)  # type: ignore[arg-type]

    def forward(self, frame: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C H W"]:
        coarse = super().forward(frame)
        enlarged = F.interpolate(coarse, size=frame.shape[-2:], mode="bilinear", align_corners=False)
        return enlarged + self.detail(frame.contiguous(memory_format=torch.channels_last))
