"""Each slot paints its own picture *and says where it is*. Replaces `TokenDecoder`.

::

    z_k ──┐
          ├─► MLP, cell by cell ──► colour, alpha ──► softmax of the alphas over the slots ──► Σ_k alpha_k · colour_k
    p ────┘

Why: the attention's masks do not enter the picture, as in the paper; they decide only what a slot sees. A decoder that
is blended by the attention's masks asks a slot for a colour, and slots become colours. This one asks where the slot's
object is, and two objects in one slot cannot be said. Nothing is convolved, so it costs little.

Measured on close-ups of level A at 32 px, seed 0: with positions as seen from each slot (`SlotPositionsConfig`) FG-ARI
/ mIoU 37 / 52 after 500 updates. With positions in the picture an earlier prototype, on other videos and without
alignment, had 2.5 / 28 after 500 and 31 / 52 after 3,000; the two have not been run side by side (docs/log.md).

Optionally the two masks teach each other (`AlignmentConfig`): what a slot sees and where it says it is should agree.
And slots can be charged for the area that they use (`AreaPriceConfig`), so that those not needed stay empty.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.blocks.layers import linear
from vonet.errors import BadInput
from vonet.interface import enlarge


@dataclass(frozen=True, kw_only=True)
class PicturePositionsConfig:
    """Where a cell is in the picture: the same for all slots."""

    frequencies: int = 3
    """Beside (y, x) in [−1, 1] their sines and cosines at π/2 · 2^k, for so many k from 0 on."""

    def build(self, width: int, size: tuple[int, int]) -> PicturePositions:
        return PicturePositions(self, width, size)


class PicturePositions(nn.Module):
    """W_p p of the chosen cells."""

    waves: Tensor

    def __init__(self, config: PicturePositionsConfig, width: int, size: tuple[int, int]):
        super().__init__()
        self.register_buffer("waves", waves(grid(*size), config.frequencies), persistent=False)
        self.linear = linear(self.waves.shape[-1], width, "relu")

    def forward(self, log_masks: Float[Tensor, "B K h w"], chosen: Int[Tensor, " cells"]) -> Float[Tensor, "cells C"]:
        return self.linear(self.waves[chosen])


@dataclass(frozen=True, kw_only=True)
class SlotPositionsConfig:
    """Where a cell is in the picture, and where it is as seen from each slot: counted from the middle of what the slot
    sees, in units of its extent (as in Invariant Slot Attention). An object is then the same picture wherever it is
    and however large, and a slot that sees two objects has no centre to paint from."""

    frequencies: int = 3
    """Of the position in the picture."""
    own_frequencies: int = 2
    """Of the position as seen from the slot."""
    smallest: float = 0.1
    """The least extent of a slot, where the picture reaches from −1 to 1."""
    reach: float = 3.0
    """In extents; beyond, positions no longer change."""

    def build(self, width: int, size: tuple[int, int]) -> SlotPositions:
        return SlotPositions(self, width, size)


class SlotPositions(nn.Module):
    """W_p p + W_r r of the chosen cells, where r is p as seen from the slot."""

    cells: Tensor
    waves: Tensor

    def __init__(self, config: SlotPositionsConfig, width: int, size: tuple[int, int]):
        super().__init__()
        self.own_frequencies, self.smallest, self.reach = config.own_frequencies, config.smallest, config.reach
        self.register_buffer("cells", grid(*size), persistent=False)
        self.register_buffer("waves", waves(self.cells, config.frequencies), persistent=False)
        self.linear = linear(self.waves.shape[-1], width, "relu")
        own = 4 + 4 * config.own_frequencies
        self.own = linear(own, width, "relu", bias=False)
        self.place = linear(4, width, "relu", bias=False)

    def forward(
        self, log_masks: Float[Tensor, "B K h w"], chosen: Int[Tensor, " cells"]
    ) -> Float[Tensor, "B K cells C"]:
        middle, extent = middle_and_extent(log_masks.exp(), self.smallest)
        seen = ((self.cells[chosen] - middle[..., None, :]) / extent[..., None, :]).clamp(-self.reach, self.reach)
        near = torch.exp(-0.5 * seen.square())
        own = torch.cat([waves(seen / self.reach, self.own_frequencies), near], dim=-1)
        place = self.place(torch.cat([middle, extent], dim=-1))
        return self.linear(self.waves[chosen]) + self.own(own) + place[..., None, :]


def middle_and_extent(
    masks: Float[Tensor, "B K h w"], smallest: float
) -> tuple[Float[Tensor, "B K 2"], Float[Tensor, "B K 2"]]:
    """Mean and standard deviation of the position (y, x) under each mask."""
    cells = grid(*masks.shape[-2:]).to(masks)
    weights = masks.flatten(2)
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)
    middle = weights @ cells
    extent = (weights @ cells.square() - middle.square()).clamp_min(0) + smallest**2
    return middle, extent.sqrt()


def grid(h: int, w: int) -> Float[Tensor, "cells 2"]:
    """(y, x) of the middle of each cell; the picture reaches from −1 to 1."""
    y, x = ((2 * torch.arange(side) + 1) / side - 1 for side in (h, w))
    return torch.stack([y[:, None].expand(h, w), x[None, :].expand(h, w)], dim=-1).flatten(0, 1)


def waves(positions: Float[Tensor, "*any 2"], frequencies: int) -> Float[Tensor, "*any _"]:
    """Positions with their sines and cosines."""
    angles = [positions * (math.pi / 2 * 2**k) for k in range(frequencies)]
    return torch.cat([positions, *(wave for angle in angles for wave in (angle.sin(), angle.cos()))], dim=-1)


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig:
    """Attention and decoder teach each other: KL(alpha ‖ m) moves the attention's masks m and KL(m ‖ alpha) the
    decoder's alphas, each towards the other as it stands."""


def alignment(log_masks: Float[Tensor, "B K cells"], log_alphas: Float[Tensor, "B K cells"]) -> Float[Tensor, " B"]:
    """KL(sg(alpha) ‖ m) + KL(sg(m) ‖ alpha), summed over the cells."""
    of_attention = divergence(log_alphas.detach(), log_masks)
    return of_attention + divergence(log_masks.detach(), log_alphas)


def divergence(log_p: Float[Tensor, "B K cells"], log_q: Float[Tensor, "B K cells"]) -> Float[Tensor, " B"]:
    return (log_p.exp() * (log_p - log_q)).sum((1, 2))


@dataclass(frozen=True, kw_only=True)
class AreaPriceConfig:
    """Σ_k log(1 + a_k / half), where a_k is the share of the picture that slot k says it has. It is concave: of two
    slots that could paint the same pixels as well, the larger takes them. Without it nothing decides who paints a plain
    background, and spare slots share it."""

    half: float = 1 / 16
    """Areas well below this share of the picture are nearly free; from there on only their logarithm counts."""

    def __post_init__(self) -> None:
        if not self.half > 0:
            raise BadInput(f"half is {self.half}; it must be more than 0")

    def __call__(self, log_alphas: Float[Tensor, "B K cells"]) -> Float[Tensor, " B"]:
        return torch.log1p(log_alphas.exp().mean(-1) / self.half).sum(-1)


@dataclass(frozen=True, kw_only=True)
class ObjectDecoderConfig:
    hidden: tuple[int, ...] = (48, 48, 48)
    """Layers of the MLP that paints a cell."""
    positions: PicturePositionsConfig | SlotPositionsConfig = field(default_factory=PicturePositionsConfig)
    sigma: float = 0.1
    """Standard deviation of a colour around what the slots say."""
    reduction: int = 2
    """In training, only every n-th pixel of every n-th row is reconstructed, from a random offset per update. More is
    cheaper and noisier."""
    alignment: AlignmentConfig | None = None
    price: AreaPriceConfig | None = None

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise BadInput(f"the layers of a painter are {self.hidden}; they must be whole numbers above 0")
        if not self.sigma > 0:
            raise BadInput(f"sigma is {self.sigma}; it must be more than 0")

    @property
    def losses(self) -> tuple[str, ...]:
        optional = {"alignment": self.alignment, "area": self.price}
        return ("reconstruction", *(name for name, part in optional.items() if part is not None))

    def build(self, latent_dim: int, size: tuple[int, int]) -> ObjectDecoder:
        return ObjectDecoder(self, latent_dim, size)


class ObjectDecoder(nn.Module):
    def __init__(self, config: ObjectDecoderConfig, latent_dim: int, size: tuple[int, int]):
        super().__init__()
        if any(side % config.reduction for side in size):
            raise BadInput(
                f"frames of {size[0]}x{size[1]} cannot be reduced {config.reduction} times: "
                f"use a size that is a multiple of {config.reduction}"
            )
        self.size, self.reduction, self.sigma = size, config.reduction, config.sigma
        self.aligned, self.price = config.alignment is not None, config.price
        width = config.hidden[0]
        self.latent = linear(latent_dim, width, "relu", bias=False)
        self.positions = config.positions.build(width, size)
        self.layers = nn.ModuleList(linear(a, b, "relu") for a, b in itertools.pairwise(config.hidden))
        self.output = linear(config.hidden[-1], 4)
        with torch.no_grad():  # nearly grey at first: where all slots paint nonsense, sharing every cell would pay best
            self.output.weight[:3] *= 0.1
            self.output.bias[:3] = 0.5

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"decoder": list(self.parameters())}

    def paint(
        self,
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
        chosen: Int[Tensor, " cells"] | None = None,
    ) -> tuple[Float[Tensor, "B K _ 3"], Float[Tensor, "B K _"]]:
        """Each slot's colours, and the logarithm of its share of each pixel: of the chosen ones, or of all, row by row.
        The first layer is linear in latent and position, so the two parts are computed apart and added: never
        concatenated, never repeated."""
        if chosen is None:
            chosen = self._lattice(0, 0, 1, latents.device)
        x = F.relu_(self.latent(latents).unsqueeze(2) + self.positions(log_masks, chosen))
        for layer in self.layers:
            x = F.relu_(layer(x))
        painted = self.output(x)
        return painted[..., :3], painted[..., 3].log_softmax(dim=1)

    def log_alphas(
        self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]
    ) -> Float[Tensor, "B K H W"]:
        """The decoder's own masks, at the frame's size."""
        return self.paint(latents, log_masks)[1].unflatten(-1, self.size)

    def forward(
        self,
        frames: Float[Tensor, "B 3 H W"],
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
        update: int,
    ) -> dict[str, Float[Tensor, " B"]]:
        """−log P(painted pixels | slots) up to a constant, a sum over them; and how far the two masks differ there. In
        evaluation mode all pixels are painted, and both are divided by as much."""
        if self.training:
            down, right = torch.randint(self.reduction, (2,)).tolist()
            chosen, share = self._lattice(down, right, self.reduction, frames.device), 1.0
        else:
            chosen, share = self._lattice(0, 0, 1, frames.device), 1 / self.reduction**2
        colours, log_alphas = self.paint(latents, log_masks, chosen)
        picture = (log_alphas.exp().unsqueeze(-1) * colours).sum(1)
        target = frames.flatten(2)[:, :, chosen].mT
        losses = {"reconstruction": share * (picture - target).square().sum((1, 2)) / (2 * self.sigma**2)}
        if self.aligned:
            seen = enlarge(log_masks, self.size, "bilinear").flatten(2)[:, :, chosen]
            losses["alignment"] = share * alignment(seen, log_alphas)
        if self.price is not None:
            losses["area"] = self.price(log_alphas)
        return losses

    def picture(self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]) -> Float[Tensor, "B 3 H W"]:
        """What the slots paint together."""
        colours, log_alphas = self.paint(latents, log_masks)
        return (log_alphas.exp().unsqueeze(-1) * colours).sum(1).mT.unflatten(-1, self.size).clamp(0, 1)

    def _lattice(self, down: int, right: int, step: int, device: torch.device) -> Int[Tensor, " cells"]:
        """The numbers of every so-manyth pixel, from (down, right) on."""
        h, w = self.size
        numbers = torch.arange(h * w, device=device).view(h, w)
        return numbers[down::step, right::step].flatten()
