"""Pooling over the mask. Replaces `SlotEncoder`, which averages the masked values over the whole frame.

Why: averaged over the frame, a small object's features arrive scaled down by its area. Averaged over the mask's own
area, small objects reach the slot as strongly as large ones.

Measured: FG-ARI / mIoU 40 / 37 instead of 25 / 25 after 2.3 minutes of training at 32 px with a mixture
likelihood, on 1,000 videos like MOVi-A (one seed, a prototype, not rerun).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vonet.model.slots import SlotEncoder, SlotEncoderConfig


@dataclass(frozen=True, kw_only=True)
class MaskPoolingConfig(SlotEncoderConfig):
    """y = the mean of the values, weighted by the mask."""

    def build(self, feature_dim: int, slot_dim: int) -> MaskPooling:
        return MaskPooling(self, feature_dim, slot_dim)


class MaskPooling(SlotEncoder):
    def weights(self, masks: Float[Tensor, "B K cells"]) -> Float[Tensor, "B K cells"]:
        return masks / masks.sum(-1, keepdim=True).clamp_min(1e-6)
