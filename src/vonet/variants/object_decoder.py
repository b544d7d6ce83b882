"""Each slot is decoded to its own picture *and its own mask*. Replaces `TokenDecoder`.

::

    z_k ──┐
          ├─► MLP, cell by cell ──► colour, alpha ──► softmax of the alphas over the slots ──► Σ_k alpha_k · colour_k
    p ────┘

Why: as in the paper, the attention's masks do not enter the reconstruction; they decide only what a slot sees. A
decoder that blends pictures by the attention's masks needs only a colour from each slot, so slots represent colours.
This decoder also needs the object's position and shape, and it cannot represent two objects in one slot. It has no
convolutions, so it is cheap.

Measured on close-ups of level A at 32 px, seed 0: with positions relative to each slot (`SlotPositionsConfig`) FG-ARI /
mIoU 37 / 52 after 500 updates. With absolute positions an earlier prototype, on other videos and without alignment, had
2.5 / 28 after 500 and 31 / 52 after 3,000 updates; the two have not been compared directly (docs/log/closeup.md).

Optional losses align the attention's and the decoder's masks (`AlignmentConfig`), make slots paint true colours so that
alphas are meaningful (`SpreadConfig`), and penalise the area that slots use so that unneeded slots stay empty
(`AreaPriceConfig`). The colours of pixels can correct the masks, when videos are segmented and as the target of the
alignment (`CorrectionConfig`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.broadcast import blend
from vonet.blocks.layers import linear
from vonet.blocks.precision import in_float32
from vonet.errors import BadInput
from vonet.interface.segmentation import enlarge
from vonet.schedule import Schedule
from vonet.variants.cell_painter import paint_cells, paint_plainly
from vonet.variants.slot_colours import CorrectionConfig, PaintedColoursConfig

EVERY = slice(None)


@dataclass(frozen=True, kw_only=True)
class PicturePositionsConfig:
    """Position of a cell in the picture, the same for all slots."""

    frequencies: int = 3
    """Number of frequencies π/2 · 2^k, k from 0 on, whose sines and cosines are appended to (y, x) in [−1, 1]."""

    def build(self, width: int, size: tuple[int, int]) -> PicturePositions:
        return PicturePositions(self, width, size)


class PicturePositions(nn.Module):
    """W_p p for the cells of a lattice: the sum of a row part and a column part."""

    down: Tensor
    right: Tensor

    def __init__(self, config: PicturePositionsConfig | SlotPositionsConfig, width: int, size: tuple[int, int]):
        super().__init__()
        for name, side in zip(("down", "right"), size, strict=True):
            self.register_buffer(name, waves(axis(side)[:, None], config.frequencies), persistent=False)
        self.linear = linear(2 * self.down.shape[-1], width, "relu")

    @in_float32
    def forward(
        self, log_masks: Float[Tensor, "B K h w"], rows: slice, columns: slice
    ) -> tuple[Float[Tensor, "rows C"], Float[Tensor, "columns C"]]:
        of_row, of_column = by_axis(self.linear.weight)
        return F.linear(self.down[rows], of_row, self.linear.bias), F.linear(self.right[columns], of_column)


@dataclass(frozen=True, kw_only=True)
class SlotPositionsConfig:
    """Position of a cell in the picture, and relative to each slot: counted from the centre of the slot's mask, in
    units of its extent (as in Invariant Slot Attention). An object then has the same picture at any position and size,
    and a slot that sees two objects has no useful centre."""

    frequencies: int = 3
    """Frequencies for the position in the picture."""
    own_frequencies: int = 2
    """Frequencies for the position relative to the slot."""
    smallest: float = 0.1
    """Smallest extent of a slot, where the picture spans −1 to 1."""
    reach: float = 3.0
    """In extents; beyond this distance, positions no longer change."""

    def build(self, width: int, size: tuple[int, int]) -> SlotPositions:
        return SlotPositions(self, width, size)


class SlotPositions(PicturePositions):
    """W_p p + W_r r for the cells of a lattice, where r is p relative to the slot. No feature mixes y and x, so
    features are computed for rows and for columns, never for all cells, and added."""

    y: Tensor
    x: Tensor

    def __init__(self, config: SlotPositionsConfig, width: int, size: tuple[int, int]):
        super().__init__(config, width, size)
        self.own_frequencies, self.smallest, self.reach = config.own_frequencies, config.smallest, config.reach
        for name, side in zip(("y", "x"), size, strict=True):
            self.register_buffer(name, axis(side), persistent=False)
        own = 4 + 4 * config.own_frequencies
        self.own = linear(own, width, "relu", bias=False)
        self.place = linear(4, width, "relu", bias=False)

    @in_float32
    def forward(
        self, log_masks: Float[Tensor, "B K h w"], rows: slice, columns: slice
    ) -> tuple[Float[Tensor, "B K rows C"], Float[Tensor, "B K columns C"]]:
        middle, extent = middle_and_extent(log_masks.exp(), self.smallest)
        place = self.place(torch.cat([middle, extent], dim=-1)).unsqueeze(-2)
        of_row, of_column = by_axis(self.own.weight)
        own_rows = F.linear(self._seen(self.y[rows], middle[..., :1], extent[..., :1]), of_row)
        own_columns = F.linear(self._seen(self.x[columns], middle[..., 1:], extent[..., 1:]), of_column)
        of_rows, of_columns = super().forward(log_masks, rows, columns)
        return own_rows + of_rows + place, own_columns + of_columns

    def _seen(
        self, positions: Float[Tensor, " side"], middle: Float[Tensor, "B K 1"], extent: Float[Tensor, "B K 1"]
    ) -> Float[Tensor, "B K side features"]:
        """Positions along one axis, relative to the slots."""
        seen = ((positions - middle) / extent).clamp(-self.reach, self.reach).unsqueeze(-1)
        return torch.cat([waves(seen / self.reach, self.own_frequencies), torch.exp(-0.5 * seen.square())], dim=-1)


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


def axis(side: int) -> Float[Tensor, " side"]:
    """The centres of the cells along one side; the picture spans −1 to 1."""
    return (2 * torch.arange(side) + 1) / side - 1


def grid(h: int, w: int) -> Float[Tensor, "cells 2"]:
    """(y, x) of the centre of each cell."""
    return torch.stack([axis(h)[:, None].expand(h, w), axis(w)[None, :].expand(h, w)], dim=-1).flatten(0, 1)


def by_axis(weight: Float[Tensor, "C features"]) -> tuple[Float[Tensor, "C n"], Float[Tensor, "C n"]]:
    """The parts of a weight that act on y and on x, which alternate in `waves`."""
    return weight[:, ::2], weight[:, 1::2]


def waves(positions: Float[Tensor, "*any axes"], frequencies: int) -> Float[Tensor, "*any _"]:
    """Positions with their sines and cosines."""
    angles = [positions * (math.pi / 2 * 2**k) for k in range(frequencies)]
    return torch.cat([positions, *(wave for angle in angles for wave in (angle.sin(), angle.cos()))], dim=-1)


@dataclass(frozen=True, kw_only=True)
class AlignmentConfig:
    """Aligns attention and decoder: KL(r ‖ m) trains the attention's masks m and KL(m ‖ alpha) the decoder's alphas,
    each with the other as a fixed target. Without options r = alpha.

    A decoder that works from a vector knows an object's outline only roughly; the colours of the pixels near the
    outline decide the rest. So r can use the pixels, by `sigma` or by `correction`.
    """

    sigma: Schedule | None = None
    """If given, r_k ∝ alpha_k exp(−|c_k − x|² / 2 sigma²). A smaller value trusts the colours more; if it is too small,
    slots represent colours."""
    correction: CorrectionConfig | None = None
    """If given, r are the corrected masks. They contain m, so where nothing changes any more m ∝ alpha p(x | k)²."""

    def __post_init__(self) -> None:
        if self.sigma is not None and self.correction is not None:
            raise BadInput("an alignment has both a sigma and a correction; give one of them, or none")

    def __call__(
        self,
        log_masks: Float[Tensor, "B K h w"],
        log_alphas: Float[Tensor, "B K h w"],
        colours: Float[Tensor, "B K 3 h w"],
        frames: Float[Tensor, "B 3 h w"],
        update: int,
    ) -> Float[Tensor, " B"]:
        """KL(sg(r) ‖ m) + KL(sg(m) ‖ alpha), summed over the pixels."""
        fixed = log_masks.detach()
        target = self._target(fixed, log_alphas.detach(), colours.detach(), frames, update)
        return divergence(target, log_masks) + divergence(fixed, log_alphas)

    def _target(
        self,
        log_masks: Float[Tensor, "B K h w"],
        log_alphas: Float[Tensor, "B K h w"],
        colours: Float[Tensor, "B K 3 h w"],
        frames: Float[Tensor, "B 3 h w"],
        update: int,
    ) -> Float[Tensor, "B K h w"]:
        """The logarithm of r."""
        if self.correction is not None:
            return self.correction(log_masks, log_alphas, colours, frames)
        if self.sigma is None:
            return log_alphas
        likelihood = PaintedColoursConfig(sigma=self.sigma(update))(colours, log_alphas, frames)
        return (log_alphas + likelihood).log_softmax(dim=1)


def divergence(log_p: Float[Tensor, "B K h w"], log_q: Float[Tensor, "B K h w"]) -> Float[Tensor, " B"]:
    """KL(p ‖ q) of masks, summed over the cells, one number per frame."""
    return (log_p.exp() * (log_p - log_q)).sum((1, 2, 3))


@dataclass(frozen=True, kw_only=True)
class SpreadConfig:
    """Spread of the colours of slots that share a pixel: Σ_k alpha_k |c_k − x̂|² with x̂ = Σ_k alpha_k c_k.

    The reconstruction alone does not separate alpha from colour: half the alpha with twice the contrast gives the same
    pixel. Then the alphas shrink, and the masks with them. With this loss a slot has to paint the true colour. At
    weight 1, its sum with the reconstruction error is Σ_k alpha_k |c_k − x|², the error of each slot on its own."""

    def __call__(
        self,
        colours: Float[Tensor, "B K 3 h w"],
        log_alphas: Float[Tensor, "B K h w"],
        picture: Float[Tensor, "B 3 h w"],
    ) -> Float[Tensor, " B"]:
        apart = (colours - picture.unsqueeze(1)).square().sum(2)
        return (log_alphas.exp() * apart).sum((1, 2, 3))


@dataclass(frozen=True, kw_only=True)
class AreaPriceConfig:
    """Σ_k log(1 + a_k / half), where a_k is the share of the picture that slot k covers. It is concave: if two slots
    can paint the same pixels equally well, the larger one gets them. Without it nothing decides which slot paints a
    plain background, and unused slots share it."""

    half: float = 1 / 256
    """Areas well below this share of the picture cost nearly nothing; larger areas count by their logarithm. It should
    be smaller than an object: with 1/16, two halves of an object cost hardly more than the whole
    (docs/log/closeup.md)."""

    def __post_init__(self) -> None:
        if not self.half > 0:
            raise BadInput(f"half is {self.half}; it must be more than 0")

    def __call__(self, log_alphas: Float[Tensor, "B K cells"]) -> Float[Tensor, " B"]:
        return torch.log1p(log_alphas.exp().mean(-1) / self.half).sum(-1)


@dataclass(frozen=True, kw_only=True)
class ObjectDecoderConfig:
    """Each slot is decoded to a picture and its own mask, with optional losses for masks and colours."""

    hidden: tuple[int, ...] = (48, 48, 48)
    """Hidden layers of the MLP that decodes a cell."""
    positions: PicturePositionsConfig | SlotPositionsConfig = field(default_factory=PicturePositionsConfig)
    sigma: float = 0.1
    """Standard deviation of a pixel's colour around the reconstruction."""
    reduction: int = 2
    """In training, only every n-th pixel of every n-th row is reconstructed, from a random offset per update. More is
    cheaper and noisier."""
    alignment: AlignmentConfig | None = None
    spread: SpreadConfig | None = None
    price: AreaPriceConfig | None = None
    correction: CorrectionConfig | None = None
    """If given, videos are segmented by corrected masks; slots and losses do not change. None: by the attention's
    masks, as in the paper."""

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise BadInput(f"the layers of a painter are {self.hidden}; they must be whole numbers above 0")
        if not self.sigma > 0:
            raise BadInput(f"sigma is {self.sigma}; it must be more than 0")

    @property
    def losses(self) -> tuple[str, ...]:
        optional = {"alignment": self.alignment, "spread": self.spread, "area": self.price}
        return ("reconstruction", *(name for name, part in optional.items() if part is not None))

    def build(self, latent_dim: int, size: tuple[int, int]) -> ObjectDecoder:
        return ObjectDecoder(self, latent_dim, size)


class ObjectDecoder(nn.Module):
    """Reconstructs frames `B 3 H W` from latents `B K D`, with log-masks `B K h w` as positions."""

    portable = False
    """Set while a model is exported: the plain form of the painter, without parts whose number depends on the batch."""

    def __init__(self, config: ObjectDecoderConfig, latent_dim: int, size: tuple[int, int]):
        super().__init__()
        if any(side % config.reduction for side in size):
            raise BadInput(
                f"frames of {size[0]}x{size[1]} cannot be reduced {config.reduction} times: "
                f"use a size that is a multiple of {config.reduction}"
            )
        self.size, self.reduction, self.sigma = size, config.reduction, config.sigma
        self.alignment, self.spread, self.price = config.alignment, config.spread, config.price
        self.correction = config.correction
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
        rows: slice = EVERY,
        columns: slice = EVERY,
    ) -> tuple[Float[Tensor, "B K 3 _ _"], Float[Tensor, "B K _ _"]]:
        """Colours of each slot, and the logarithm of its share of each pixel, at the given rows and columns.

        The first layer is linear in latent, row and column, so the three parts are computed separately and added,
        without concatenation or repetition.
        """
        of_rows, of_columns = self.positions(log_masks, rows, columns)
        of_rows = of_rows + self._of_latents(latents).unsqueeze(2)
        of_columns = of_columns.expand(*latents.shape[:2], -1, -1)
        layers = [*self.layers, self.output]
        paint = paint_plainly if self.portable else paint_cells
        painted = paint(of_rows.flatten(0, 1), of_columns.flatten(0, 1), layers)  # type: ignore[arg-type]
        colours, alphas = painted.permute(0, 3, 1, 2).contiguous().unflatten(0, latents.shape[:2]).split([3, 1], dim=2)
        return colours, alphas.squeeze(2).log_softmax(dim=1)

    @in_float32
    def _of_latents(self, latents: Float[Tensor, "B K D"]) -> Float[Tensor, "B K C"]:
        return self.latent(latents)

    def log_alphas(
        self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]
    ) -> Float[Tensor, "B K H W"]:
        """The decoder's own masks, at the frame's size."""
        return self.paint(latents, log_masks)[1]

    def forward(
        self,
        frames: Float[Tensor, "B 3 H W"],
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
        update: int,
    ) -> dict[str, Float[Tensor, " B"]]:
        """−log P(painted pixels | slots) up to a constant, summed over the pixels, and the divergence of the two masks
        there. In evaluation mode all pixels are painted, and both are divided accordingly."""
        rows, columns, share = EVERY, EVERY, 1 / self.reduction**2
        if self.training:
            rows, columns = (slice(at, None, self.reduction) for at in torch.randint(self.reduction, (2,)).tolist())
            share = 1.0
        colours, log_alphas = self.paint(latents, log_masks, rows, columns)
        picture, seen_frames = blend(colours, log_alphas), frames[:, :, rows, columns]
        error = (picture - seen_frames).square().sum((1, 2, 3))
        losses = {"reconstruction": share * error / (2 * self.sigma**2)}
        if self.alignment is not None:
            seen = F.interpolate(log_masks, size=self.size, mode="bilinear", align_corners=False)[..., rows, columns]
            seen = seen.log_softmax(dim=1)
            losses["alignment"] = share * self.alignment(seen, log_alphas, colours, seen_frames, update)
        if self.spread is not None:
            losses["spread"] = share * self.spread(colours, log_alphas, picture) / (2 * self.sigma**2)
        if self.price is not None:
            losses["area"] = self.price(log_alphas.flatten(2))
        return losses

    @property
    def corrects_masks(self) -> bool:
        """Whether `corrected` can be called."""
        return self.correction is not None

    def corrected(
        self,
        frames: Float[Tensor, "B 3 H W"],
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
    ) -> Float[Tensor, "B K H W"]:
        """The attention's log-masks at the frame's size, corrected by the pixels (`CorrectionConfig`)."""
        assert self.correction is not None
        colours, log_alphas = self.paint(latents, log_masks)
        return self.correction(enlarge(log_masks, self.size, "bilinear"), log_alphas, colours, frames)

    def picture(self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]) -> Float[Tensor, "B 3 H W"]:
        """The reconstruction from all slots."""
        return blend(*self.paint(latents, log_masks)).clamp(0, 1)
