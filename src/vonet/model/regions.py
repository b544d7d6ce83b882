"""Where each slot's thing is and how it looks: the regions from which the masks of the next frame are expected.

Not the paper's. Its estimated masks compare what a slot holds with the features, so that two red balls are one slot's
because both are red. But a thing is also in one place, goes on as it moved, and is of one colour under some light.
Each slot therefore remembers a region: a Gaussian in the plane with a velocity, and a colour that is shaded across it.
The regions are a mixture model of the frame, and VONet's attention becomes the expectation step of variational EM:

    regions of frame t−1, moved on ──► expected masks ──► U-Net ──► masks of frame t ──► regions of frame t
        (expectation, closed form)                      (learned)            (maximisation, closed form)

What the attention learns is to make the *free energy* small: to find in one look masks under which a few compact,
evenly coloured regions explain the frame. It sees more than EM does, which goes downhill from where it is.

Where a video begins, regions are found in its first frame one by one, each where those there are explain least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vonet.errors import BadInput

Packed = Float[Tensor, "B K P"]
"""A region as numbers, one after the other: see `_Parts`. All zeros: not found yet."""
Looks = Float[Tensor, "B cells 3"]
"""The colours of the cells in standard deviations: two numbers of hue, one of brightness."""

WIDE = 8
"""How suddenly a region that is as wide as the frame becomes even, instead of thinner in the corners."""
FASTEST = 0.1
"""The largest velocity, as a share of the frame per frame: what is faster is a slot that took something else."""
REACH = 1.5
"""How far from its middle a region's shading changes, in standard deviations; beyond, it levels off."""
SEED_SHARE, SEED_EXTENT = 0.02, 0.06
"""A region about to be found: its share of the frame, and its standard deviation as a share of the frame's side."""


@dataclass(frozen=True, kw_only=True)
class RegionsConfig:
    cell: int = 1
    """Pixels along the side of a cell, the unit in which masks are made."""
    hue: float = 0.085
    """How far a pixel's hue is from its region's, as a standard deviation of its colours from 0 to 1; and its
    brightness, of which light and shade change more."""
    brightness: float = 0.2
    dark: float = 0.4
    """Hue is a share of the brightness, so that the lit and the shaded side of a thing have the same; but where it is
    dark that share is noise, so this is added to the brightness first."""
    surest: float = 0.2
    """Regions that turn out evener than that, such as the ground, may reckon with less: with this share at least."""
    habit: float = 300.0
    """How many cells a region needs before its own deviations count as much as those above."""
    order: int = 2
    """Of the shading: 0 is none, 1 a slope, 2 a bowl."""
    stiffness: float = 3.0
    """How many cells speak against any shading: so small regions have hardly one."""
    extent: float = 0.02
    """The smallest standard deviation of a region in the plane, as a share of the frame's side."""
    toll: float = 1.0
    """How many cells a region pays for being there at all: one that is worth no more dies out (Figueiredo and Jain,
    "Unsupervised learning of finite mixture models", 2002)."""
    inertia: float = 10.0
    """Of how many cells a region is before half of its motion is believed."""
    rounds: int = 3
    """Of EM after each region that is found in a first frame."""
    grain: int = 3
    """Cells along the side of the smallest thing that is looked for; odd."""
    surprise: float = 10.0
    """A slot that has nothing is given what is least explained, if that is worse by so much, per cell, than half of the
    frame (in nats)."""
    doubt: float = 0.0002
    """Share of each expected mask that is given to all slots alike, so that the attention can decide otherwise."""

    def __post_init__(self) -> None:
        if self.order not in (0, 1, 2):
            raise BadInput(f"a shading of order {self.order} was asked for; possible are 0, 1 and 2")
        if self.grain < 1 or self.grain % 2 == 0 or self.cell < 1 or self.rounds < 0:
            raise BadInput(f"{self}: the grain must be odd, the cell at least 1 and the rounds not below 0")
        if not 0 < self.doubt < 1 or not 0 < self.surest <= 1 or self.dark <= 0:
            raise BadInput(f"{self}: the doubt must be between 0 and 1, the surest above 0 and at most 1, dark above 0")


class _Parts(NamedTuple):
    """What a region's numbers mean."""

    share: Float[Tensor, "B K 1"]  # logarithm of its share of the frame, less the toll
    middle: Float[Tensor, "B K 2"]  # row and column; the frame's longer side is 1
    covariance: Float[Tensor, "B K 3"]  # yy, yx, xx
    velocity: Float[Tensor, "B K 2"]  # per frame
    spread: Float[Tensor, "B K 2"]  # variance of hue and of brightness, beside the usual one
    colours: Float[Tensor, "B K terms*3"]  # of each term of the shading


class Regions(nn.Module):
    cells: Tensor
    stiffness: Tensor

    def __init__(self, config: RegionsConfig, frame_size: tuple[int, int]):
        super().__init__()
        if any(side % config.cell for side in frame_size):
            raise BadInput(f"frames of {frame_size[0]}x{frame_size[1]} have no whole number of cells of {config.cell}")
        self.config = config
        self.size = (frame_size[0] // config.cell, frame_size[1] // config.cell)
        longest = max(self.size)
        self.area = self.size[0] * self.size[1] / longest**2
        rows, columns = torch.meshgrid(*(torch.arange(side) + 0.5 for side in self.size), indexing="ij")
        self.register_buffer("cells", torch.stack([rows, columns], dim=-1).flatten(0, 1) / longest, persistent=False)
        self.terms = (1, 3, 6)[config.order]
        stiffness = torch.tensor([0.01, *[config.stiffness] * (self.terms - 1)])
        self.register_buffer("stiffness", stiffness.diag(), persistent=False)
        self.widths = (1, 2, 3, 2, 2, 3 * self.terms)

    @property
    def width(self) -> int:
        """P: how many numbers a region is."""
        return sum(self.widths)

    def looks(self, frame: Float[Tensor, "B 3 H W"]) -> Looks:
        r, g, b = F.avg_pool2d(frame, self.config.cell).flatten(2).unbind(1)
        brightness, dark = (r + g + b) / 3, self.config.dark
        share = (0.5 + dark) / ((brightness + dark) * self.config.hue)  # of a hue in middle light
        hue = ((r - g) / math.sqrt(2), (r + g - 2 * b) / math.sqrt(6))
        return torch.stack([hue[0] * share, hue[1] * share, brightness / self.config.brightness], dim=-1)

    # ---- the two steps of EM ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def fit(self, looks: Looks, masks: Float[Tensor, "B K cells"], expected: Packed | None = None) -> Packed:
        """The regions that the masks cover. Their velocities are told by where they were `expected` to be."""
        c = self.config
        mass = masks.sum(-1, keepdim=True)
        each = masks / mass.clamp(min=1e-3)
        middle = each @ self.cells
        y, x = self._around(middle)
        yy, yx, xx = ((each * product).sum(-1, keepdim=True) for product in (y * y, y * x, x * x))
        covariance = torch.cat([yy + c.extent**2, yx, xx + c.extent**2], dim=-1)
        basis = self._basis(y, x, covariance)
        weighted = basis * masks.unsqueeze(-1)
        colours = torch.linalg.solve(weighted.mT @ basis + self.stiffness, weighted.mT @ looks.unsqueeze(1))
        away = (masks.unsqueeze(-1) * (looks.unsqueeze(1) - basis @ colours).square()).sum(2)
        away = torch.stack([away[..., :2].mean(-1), away[..., 2]], dim=-1)
        spread = ((away + c.habit) / (mass + c.habit)).clamp(c.surest**2, 1.0)
        velocity = torch.zeros_like(middle)
        if expected is not None:
            before = self._parts(expected)
            velocity = (middle - before.middle + before.velocity) * mass / (mass + c.inertia)
            velocity = velocity * (FASTEST / velocity.norm(dim=-1, keepdim=True).clamp(min=FASTEST))
        worth = (mass - c.toll).clamp(min=1e-6)
        share = (worth / worth.sum(1, keepdim=True)).log()
        return torch.cat([share, middle, covariance, velocity, spread, colours.flatten(2)], dim=-1)

    @torch.no_grad()
    def evidence(self, looks: Looks, regions: Packed) -> Float[Tensor, "B K cells"]:
        """log P(the cell is of this region, its place, its looks), up to a constant."""
        share, middle, covariance, _, spread, colours = self._parts(regions)
        y, x = self._around(middle)
        yy, yx, xx = (part.unsqueeze(-1) for part in covariance.unbind(-1))
        determinant = (yy * xx - yx * yx).clamp(min=self.config.extent**4)
        distance = (xx * y * y - 2 * yx * x * y + yy * x * x) / determinant
        place = -math.log(2 * math.pi) - 0.5 * (distance + determinant.log())
        everywhere = (12 * determinant.sqrt() / self.area).clamp(max=1 - 1e-6) ** WIDE
        place = torch.logaddexp(place + (-everywhere).log1p(), everywhere.log() - math.log(self.area))
        painted = self._basis(y, x, covariance) @ colours.unflatten(-1, (self.terms, 3))
        away = (looks.unsqueeze(1) - painted).square()
        hue, brightness = spread.unsqueeze(2).unbind(-1)
        away = (away[..., 0] + away[..., 1]) / hue + away[..., 2] / brightness
        return share + place - hue.log() - 0.5 * (away + brightness.log())

    def free_energy(self, frame: Float[Tensor, "B 3 H W"], log_masks: Float[Tensor, "B K h w"]) -> Float[Tensor, " B"]:
        """Σ m (log m − log P), in nats, for the regions that the masks cover: what variational EM makes small. The
        regions are the best for these masks, so only the masks are learned from it."""
        looks, log_masks = self.looks(frame), log_masks.flatten(2)
        masks = log_masks.exp()
        return (masks * (log_masks - self.evidence(looks, self.fit(looks, masks)))).sum((1, 2))

    # ---- from frame to frame ---------------------------------------------------------------------------------------

    def expect(self, looks: Looks, regions: Packed) -> Packed:
        """The regions in this frame, before it is looked at closely: found in it where a video begins; else those of
        the frame before, moved on, with slots that have nothing given what is least explained."""
        before = self._parts(regions)
        regions = self._packed(before._replace(middle=before.middle + before.velocity))
        begins = (regions == 0).all(-1).all(-1)
        if begins.any():
            regions = regions.clone()
            regions[begins] = self.begin(looks[begins], regions.shape[1])
        return self._renewed(looks, regions)

    def masks(self, looks: Looks, regions: Packed) -> Float[Tensor, "B K h w"]:
        """The log-masks that these regions make of the frame."""
        doubt = self.config.doubt
        certain = self.evidence(looks, regions).softmax(1)
        return torch.log((1 - doubt) * certain + doubt / certain.shape[1]).unflatten(-1, self.size)

    @torch.no_grad()
    def begin(self, looks: Looks, slots: int) -> Packed:
        """As many regions as there are slots, one after the other; the first is all of the frame."""
        regions = self.fit(looks, looks.new_ones(len(looks), 1, looks.shape[1]))
        for _ in range(1, slots):
            seeds, _ = self._seeds(looks, self.evidence(looks, regions).logsumexp(1))
            regions = torch.cat([regions, seeds], dim=1)
            for _ in range(self.config.rounds):
                regions = self.fit(looks, self.evidence(looks, regions).softmax(1))
        return regions

    @torch.no_grad()
    def _renewed(self, looks: Looks, regions: Packed) -> Packed:
        """With the emptiest slot begun anew, where it has nothing and something is badly explained."""
        seeds, surprise = self._seeds(looks, self.evidence(looks, regions).logsumexp(1))
        share, slot = regions[..., 0].min(dim=-1)
        idle: Bool[Tensor, " B"] = share.exp() * len(self.cells) < 1
        chosen = (idle & (surprise > self.config.surprise)).nonzero().squeeze(1)
        if len(chosen):
            regions = regions.clone()
            regions[chosen, slot[chosen]] = seeds[chosen, 0]
        return regions

    def _seeds(self, looks: Looks, explained: Float[Tensor, "B cells"]) -> tuple[Packed, Float[Tensor, " B"]]:
        """A small region where the frame is least explained, and by how much less than half of the frame is."""
        explained = self._smooth(explained.unsqueeze(1), self.config.grain).squeeze(1)
        least, cell = explained.min(dim=-1)
        every: Int[Tensor, " B"] = torch.arange(len(looks), device=looks.device)
        colour = self._smooth(looks.mT, 3).mT[every, cell]
        seeds = looks.new_zeros(len(looks), 1, self.width)
        parts = self._parts(seeds)  # views into the seeds
        parts.share[:] = math.log(SEED_SHARE)
        parts.middle[:, 0] = self.cells[cell]
        parts.covariance[..., 0::2] = SEED_EXTENT**2
        parts.spread[:] = 1.0
        parts.colours[:, 0, :3] = colour
        return seeds, explained.median(dim=-1).values - least

    def _smooth(self, maps: Float[Tensor, "B C cells"], width: int) -> Float[Tensor, "B C cells"]:
        maps = maps.unflatten(-1, self.size)
        return F.avg_pool2d(maps, width, stride=1, padding=width // 2, count_include_pad=False).flatten(2)

    # ---- numbers and what they mean --------------------------------------------------------------------------------

    def _parts(self, regions: Packed) -> _Parts:
        return _Parts(*regions.split(self.widths, dim=-1))

    def _packed(self, parts: _Parts) -> Packed:
        return torch.cat(parts, dim=-1)

    def _around(self, middle: Float[Tensor, "B K 2"]) -> tuple[Float[Tensor, "B K cells"], Float[Tensor, "B K cells"]]:
        """Row and column of every cell as seen from the middles."""
        y, x = (self.cells.t() - middle.unsqueeze(-1)).unbind(2)
        return y, x

    def _basis(
        self,
        y: Float[Tensor, "B K cells"],
        x: Float[Tensor, "B K cells"],
        covariance: Float[Tensor, "B K 3"],
    ) -> Float[Tensor, "B K cells terms"]:
        """The terms of the shading: polynomials of the place as seen from the region, in units of its extent."""
        extent = ((covariance[..., 0] + covariance[..., 2]) / 2).sqrt().unsqueeze(-1)
        y, x = (y / (REACH * extent)).tanh(), (x / (REACH * extent)).tanh()
        return torch.stack([torch.ones_like(x), y, x, y * y, y * x, x * x][: self.terms], dim=-1)
