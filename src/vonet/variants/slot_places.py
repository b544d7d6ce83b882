"""Slots with an explicit position. An addition to the paper's slots; it replaces no part.

::

    masks m_{t−1} ──► middle and extent, four numbers of r_{t−1} ──► nearness of each cell ──(+)──► estimated masks m_t

Why: in the paper, a slot has to encode its position in r, and the attention has to find that position in the features
again. The attention learns colours long before positions, so of two objects of one colour a slot takes either, or both.
Here the position is part of the state, and each slot sees the frame relative to it, as in Invariant Slot Attention
(Biza and others, 2023). The weight of nearness and a preferred direction are learned functions of the context; both
start at zero.

Measured on Sprites-MOT: docs/log/sprites-mot.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.precision import in_float32
from vonet.errors import BadInput
from vonet.variants.object_decoder import axis, middle_and_extent

IN_LATENT = 3.0
"""Positions on close-ups have a standard deviation of 0.2 to 0.4, and latents of about one."""


@dataclass(frozen=True, kw_only=True)
class SlotPlacesConfig:
    """The position of a slot is the centre and the extent (y, x) of its last mask, where the picture spans −1 to 1."""

    smallest: float = 0.1
    """Smallest extent of a slot."""
    half_area: float = 1 / 256
    """A mask with this share of the picture moves the position halfway to itself, a smaller one less, so a hidden
    object is expected where it was last seen."""

    def __post_init__(self) -> None:
        if not self.smallest > 0:
            raise BadInput(f"smallest is {self.smallest}; it must be more than 0")
        if not self.half_area > 0:
            raise BadInput(f"half_area is {self.half_area}; it must be more than 0")

    @property
    def numbers(self) -> int:
        """Number of slot dimensions that hold the position."""
        return 4

    def build(self, slot_dim: int, size: tuple[int, int]) -> SlotPlaces:
        return SlotPlaces(self, slot_dim, size)


class SlotPlaces(nn.Module):
    """Contexts `B K D` and places `B K 4` to logits of nearness `B K h w`."""

    down: Tensor
    right: Tensor
    fresh: Tensor

    def __init__(self, config: SlotPlacesConfig, slot_dim: int, size: tuple[int, int]):
        super().__init__()
        self.smallest, self.half_area = config.smallest, config.half_area
        self.norm = nn.LayerNorm(slot_dim)
        self.weights = nn.Linear(slot_dim, 4)
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)
        for name, side in zip(("down", "right"), size, strict=True):
            self.register_buffer(name, axis(side), persistent=False)
        self.register_buffer("fresh", torch.tensor([0.0, 0.0, 1.0, 1.0]), persistent=False)  # the whole picture

    @in_float32
    def forward(self, context: Float[Tensor, "B K D"], places: Float[Tensor, "B K 4"]) -> Float[Tensor, "B K h w"]:
        """Logits −a log(1 + s²) + b exp(−s²/8) + c · tanh(s/2).

        s is the offset of a cell from the slot's centre, divided by the slot's extent; a, b and c are functions of the
        context.
        """
        y, x, height, width = places.unsqueeze(-1).unbind(-2)
        down, right = (self.down - y) / height, (self.right - x) / width
        squared = down.square().unsqueeze(-1) + right.square().unsqueeze(-2)
        far, close, downward, rightward = self.weights(self.norm(context)).unsqueeze(-1).unbind(-2)
        along = (downward * torch.tanh(down / 2)).unsqueeze(-1) + (rightward * torch.tanh(right / 2)).unsqueeze(-2)
        around = close.unsqueeze(-1) * torch.exp(-squared / 8) - far.unsqueeze(-1) * torch.log1p(squared)
        return along + around

    @in_float32
    def moved(self, log_masks: Float[Tensor, "B K h w"], places: Float[Tensor, "B K 4"]) -> Float[Tensor, "B K 4"]:
        """The positions after a frame. No gradient passes, because a mask must not change to help the next frame."""
        masks = log_masks.detach().exp()
        area = masks.mean((-2, -1)).unsqueeze(-1)
        seen = torch.cat(middle_and_extent(masks, self.smallest), dim=-1)
        return places.lerp(seen, area / (area + self.half_area))

    def told(self, places: Float[Tensor, "B K 4"]) -> Float[Tensor, "B K 4"] | None:
        """The dimensions of the latent z that hold the position; None if z does not contain it."""
        return None


@dataclass(frozen=True, kw_only=True)
class ToldPlacesConfig(SlotPlacesConfig):
    """Positions that the latent z contains as well.

    A decoder that paints relative to the centre of the mask does not need the position in z, and the posterior then
    leaves it out. A token decoder, which reads only z, could not tell where objects are (docs/log/tokens.md)."""

    def build(self, slot_dim: int, size: tuple[int, int]) -> ToldPlaces:
        return ToldPlaces(self, slot_dim, size)


class ToldPlaces(SlotPlaces):
    """`SlotPlaces` with the position in the latent, scaled to about the variance of its other dimensions."""

    def told(self, places: Float[Tensor, "B K 4"]) -> Float[Tensor, "B K 4"]:
        return IN_LATENT * places
