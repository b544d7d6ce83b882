"""Pooling over the mask. Replaces `SlotEncoder`, which averages the masked values over the whole frame.

Why: averaged over the frame, a small object's features are scaled down by its area. Averaged over the mask's own area,
small objects affect the slot as strongly as large ones.

A nearly empty mask still has an average, over the pixels where its last traces are. An unused slot then looks like the
background's slot, competes with it and replaces it from frame to frame. `smallest_area` prevents this: an empty mask
pools nothing, so an empty slot can be recognised.

Measured: FG-ARI / mIoU 40 / 37 instead of 25 / 25 after 2.3 minutes of training at 32 px with a mixture
likelihood, on 1,000 videos like MOVi-A (one seed, a prototype, not rerun).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vonet.errors import BadInput
from vonet.model.slots import SlotEncoder, SlotEncoderConfig


@dataclass(frozen=True, kw_only=True)
class MaskPoolingConfig(SlotEncoderConfig):
    """y = the mean of the values, weighted by the mask."""

    smallest_area: float = 1e-6
    """In cells. A mask with less area pools the values in proportion to its area. With 1 or 2 cells unused slots stay
    empty; more also weakens small objects."""

    def __post_init__(self) -> None:
        if not self.smallest_area > 0:
            raise BadInput(f"smallest_area is {self.smallest_area}; it must be more than 0")

    def build(self, feature_dim: int, slot_dim: int) -> MaskPooling:
        return MaskPooling(self, feature_dim, slot_dim)


class MaskPooling(SlotEncoder):
    """y = average of the values under each mask, over the area of the mask."""

    def __init__(self, config: MaskPoolingConfig, feature_dim: int, slot_dim: int):
        super().__init__(config, feature_dim, slot_dim)
        self.smallest_area = config.smallest_area

    def weights(self, masks: Float[Tensor, "B K cells"]) -> Float[Tensor, "B K cells"]:
        """Weights of the cells for each slot: the mask divided by its area, or by the smallest area if larger."""
        return masks / masks.sum(-1, keepdim=True).clamp_min(self.smallest_area)
