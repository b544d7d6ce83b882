"""A classical mixture model that follows objects by EM; it has no parameters and is not trained.

Each slot is a component: a Gaussian in the plane with a velocity, and a colour with smooth shading. Frame by frame::

    components of frame t−1, moved by their velocity ──► masks of frame t ──► components of frame t
               (prediction)                          (E step)            (M step)

Where a video begins, components are added one by one, each where the present ones explain the frame least. A component
without support is removed and may be seeded again in an area that is explained badly.

The method is ours; the removal of weak components follows Figueiredo and Jain, "Unsupervised learning of finite mixture
models" (2002). It finds compact objects of one colour. It splits textured objects, and it misses grey objects on a grey
background. It serves as a strong baseline: the evaluation of a trained model says whether the model beats it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vonet.blocks.time import scan
from vonet.errors import BadInput, check_choice
from vonet.interface import (
    Clip,
    Enlargement,
    ExplainingModel,
    Explanation,
    Output,
    State,
    StepOutput,
    VideoModel,
    check_batch,
    check_fit,
    check_frames,
    check_size,
    check_slots,
)

Packed = Float[Tensor, "B K P"]
"""Components as rows of numbers (see `_Parts`); all zeros mean that a component is not seeded yet."""
Colours = Float[Tensor, "B cells 3"]
"""The colours of the cells in standard deviations: two chroma coordinates and the brightness."""

WIDE = 8
"""Exponent with which a component that is as wide as the frame becomes uniform, instead of fading towards the
corners."""
MAX_SPEED = 0.1
"""Largest velocity per frame, as a share of the frame's longer side; a faster component has jumped to another
object."""
SHADING_REACH = 1.5
"""Distance from its centre within which a component's shading varies, in standard deviations of its position."""
SEED_SHARE, SEED_STD = 0.02, 0.06
"""A new component's mixture weight, and its standard deviation in the plane as a share of the frame's longer side."""


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """All options of the method; docs/methods/mixture.md describes the effect of larger and smaller values."""

    size: tuple[int, int] = (64, 64)
    """Height and width of the frames, in pixels."""
    slots: int = 7
    """K: the largest number of components."""
    cell: int = 1
    """Side of the cells for which masks are computed, in pixels. More is cheaper and coarser."""
    chroma_std: float = 0.085
    """Standard deviation of a pixel's chroma around its component's, for colours from 0 to 1. More tolerates coloured
    texture and merges similar colours."""
    brightness_std: float = 0.2
    """The same for brightness, which light and shade change more."""
    brightness_offset: float = 0.4
    """Chroma is divided by the brightness plus this, so that the lit and the shaded side of an object have the same
    chroma. Less makes dark pixels noisy."""
    min_relative_std: float = 0.2
    """A uniform component may use smaller standard deviations than those above, down to this share of them."""
    std_prior_mass: float = 300.0
    """Support, in cells, at which a component's own colour variance counts as much as the one given above."""
    shading_order: int = 2
    """Degree of the polynomial that shades a component: 0 (one colour), 1 (linear) or 2 (quadratic)."""
    shading_ridge: float = 3.0
    """Ridge penalty on the shading, in cells. More keeps small components in one colour."""
    min_position_std: float = 0.02
    """Smallest standard deviation in the plane, as a share of the frame's longer side."""
    min_component_mass: float = 1.0
    """Support, in cells, that is subtracted from every component's weight; components with less are removed."""
    velocity_prior_mass: float = 10.0
    """Support, in cells, at which half of a component's measured velocity is used. More smooths the motion."""
    em_iterations: int = 3
    """EM iterations after each component that is seeded in a video's first frame."""
    seed_window: int = 3
    """Side of the square over which badly explained cells are averaged to seed a component, in cells; odd. More ignores
    smaller objects."""
    seed_threshold: float = 10.0
    """An empty slot is seeded again where the log-likelihood per cell is this much below the median, in nats. Less
    seeds more often."""
    uniform_share: float = 0.0002
    """Share of each mask that is spread evenly over all slots."""
    enlargement: Enlargement = "bilinear"
    """How masks are enlarged to the frame's size."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        check_size(self.size)
        check_slots(self.slots)
        check_choice("enlargement", self.enlargement, Enlargement)
        if self.shading_order not in (0, 1, 2):
            raise BadInput(f"shading_order is {self.shading_order}; it must be 0, 1 or 2")
        if self.seed_window < 1 or self.seed_window % 2 == 0:
            raise BadInput(f"seed_window is {self.seed_window}; it must be odd and 1 or more")
        if self.em_iterations < 0:
            raise BadInput(f"em_iterations is {self.em_iterations}; it must be 0 or more")
        if not 0 < self.uniform_share < 1:
            raise BadInput(f"uniform_share is {self.uniform_share}; it must be more than 0 and less than 1")
        if not 0 < self.min_relative_std <= 1:
            raise BadInput(f"min_relative_std is {self.min_relative_std}; it must be more than 0 and at most 1")
        if not self.brightness_offset > 0:
            raise BadInput(f"brightness_offset is {self.brightness_offset}; it must be more than 0")
        if self.cell < 1 or any(side % self.cell for side in self.size):
            raise BadInput(f"cell is {self.cell}; it must divide the sides of {self.size[0]}x{self.size[1]} pixels")

    @property
    def losses(self) -> tuple[str, ...]:
        """None: there is nothing to train."""
        return ()

    def build(self) -> Mixture:
        return Mixture(self)


@dataclass(frozen=True)
class MixtureState(State):
    """The components after the last frame; zeros before the first."""

    components: Packed


class _Parts(NamedTuple):
    """Meaning of the numbers of a component."""

    log_weight: Float[Tensor, "B K 1"]  # logarithm of its mixture weight
    centre: Float[Tensor, "B K 2"]  # row and column; the frame's longer side is 1
    covariance: Float[Tensor, "B K 3"]  # yy, yx, xx
    velocity: Float[Tensor, "B K 2"]  # per frame
    variance: Float[Tensor, "B K 2"]  # of chroma and brightness, relative to the given standard deviations
    colours: Float[Tensor, "B K terms*3"]  # of each term of the shading


class Mixture(nn.Module):
    """The method: prediction, E step and M step for each frame. It has no parameters."""

    grid: Tensor
    ridge: Tensor

    def __init__(self, config: MixtureConfig):
        super().__init__()
        self.config = config
        self.size, self.slots, self.enlargement = config.size, config.slots, config.enlargement
        self.cells = (config.size[0] // config.cell, config.size[1] // config.cell)
        longest = max(self.cells)
        self.area = self.cells[0] * self.cells[1] / longest**2
        rows, columns = torch.meshgrid(*(torch.arange(side) + 0.5 for side in self.cells), indexing="ij")
        self.register_buffer("grid", torch.stack([rows, columns], dim=-1).flatten(0, 1) / longest, persistent=False)
        self.terms = (1, 3, 6)[config.shading_order]
        ridge = torch.tensor([0.01, *[config.shading_ridge] * (self.terms - 1)])
        self.register_buffer("ridge", ridge.diag(), persistent=False)
        self.widths = (1, 2, 3, 2, 2, 3 * self.terms)

    @property
    def width(self) -> int:
        """P: number of values that describe a component."""
        return sum(self.widths)

    # ---- the contract ----------------------------------------------------------------------------------------------

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> MixtureState:
        """A state without components. Nothing is random, so the generator has no effect."""
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        return MixtureState(self.grid.new_zeros(batch, count, self.width))

    def restart(self, state: MixtureState, is_first: Bool[Tensor, " B"]) -> MixtureState:
        return replace(state, components=state.components.masked_fill(is_first[:, None, None], 0.0))

    def step(self, frame: Tensor, state: MixtureState) -> tuple[StepOutput, MixtureState]:
        """One frame `B 3 H W` in, masks and the next state out."""
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        return self._step(frame, state)

    @torch.no_grad()
    def _step(self, frame: Float[Tensor, "B 3 H W"], state: MixtureState) -> tuple[StepOutput, MixtureState]:
        colours = self.colours(frame)
        predicted = self.predict(colours, state.components)
        log_masks = self.log_masks(colours, predicted)
        components = self.fit(colours, log_masks.flatten(2).exp(), predicted)
        output = StepOutput(log_masks, self.size, self.enlargement, components, previous_slots=state.components)
        return output, MixtureState(components)

    def unroll(self, clip: Clip, state: MixtureState | None = None) -> Output:
        """Follow the objects of a clip."""
        if state is None:
            state = self.initial_state(clip.frames.shape[0])
        self._check_fit(clip.frames, state)
        tensors, last = scan(self._step, self.restart, clip, state)
        return Output(size=self.size, enlargement=self.enlargement, state=last, **tensors)  # type: ignore[arg-type]

    def forward(self, clip: Clip, state: MixtureState | None = None, update: int = 0) -> Output:
        """The same as `unroll`: there are no losses."""
        return self.unroll(clip, state)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {}

    @torch.no_grad()
    def explain(self, output: Output) -> Explanation:
        """The reconstruction: each component's shaded colour, blended by the masks."""
        batch_time = output.slots.shape[:2]
        parts = self._parts(output.slots.flatten(0, 1))
        basis = self._basis(*self._around(parts.centre), parts.covariance)
        painted = basis @ parts.colours.unflatten(-1, (self.terms, 3))  # B*T K cells 3
        masks = output.log_masks.flatten(0, 1).flatten(2).exp()
        pictures = self._pixels((masks.unsqueeze(-1) * painted).sum(1)).mT.unflatten(-1, self.cells)
        pictures = F.interpolate(pictures, size=self.size, mode="nearest").clamp(0, 1)
        return Explanation(reconstruction=pictures.unflatten(0, batch_time))

    def _check_fit(self, frames: Tensor, state: MixtureState) -> None:
        check_fit(frames, self.size, self.grid)
        shape = tuple(state.components.shape)
        if shape[0] != len(frames) or shape[-1] != self.width:
            raise BadInput(
                f"the state holds components of shape {shape}; expected {len(frames)} videos x at least 1 slot x "
                f"{self.width}: start with model.initial_state({len(frames)})"
            )

    # ---- colours ---------------------------------------------------------------------------------------------------

    def colours(self, frame: Float[Tensor, "B 3 H W"]) -> Colours:
        """Chroma (two coordinates, relative to the brightness) and brightness, in standard deviations."""
        r, g, b = F.avg_pool2d(frame, self.config.cell).flatten(2).unbind(1)
        brightness = (r + g + b) / 3
        scale = self._chroma_scale(brightness)
        chroma = ((r - g) / math.sqrt(2), (r + g - 2 * b) / math.sqrt(6))
        return torch.stack([chroma[0] * scale, chroma[1] * scale, brightness / self.config.brightness_std], dim=-1)

    def _pixels(self, colours: Float[Tensor, "B cells 3"]) -> Float[Tensor, "B cells 3"]:
        """Red, green and blue of these colours: the inverse of `colours`."""
        brightness = colours[..., 2] * self.config.brightness_std
        scale = self._chroma_scale(brightness)
        difference, opponent = colours[..., 0] / scale * math.sqrt(2), colours[..., 1] / scale * math.sqrt(6)
        blue = brightness - opponent / 3
        yellow = brightness + opponent / 6  # the mean of red and green
        return torch.stack([yellow + difference / 2, yellow - difference / 2, blue], dim=-1)

    def _chroma_scale(self, brightness: Tensor) -> Tensor:
        """Inverse standard deviation of the chroma at this brightness; `chroma_std` holds at a brightness of one
        half."""
        offset = self.config.brightness_offset
        return (0.5 + offset) / ((brightness + offset) * self.config.chroma_std)

    # ---- the two steps of EM ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def fit(self, colours: Colours, masks: Float[Tensor, "B K cells"], predicted: Packed | None = None) -> Packed:
        """M step: fits the components to the masks. Velocities are computed relative to the `predicted` positions."""
        c = self.config
        mass = masks.sum(-1, keepdim=True)
        each = masks / mass.clamp(min=1e-3)
        centre = each @ self.grid
        y, x = self._around(centre)
        yy, yx, xx = ((each * product).sum(-1, keepdim=True) for product in (y * y, y * x, x * x))
        covariance = torch.cat([yy + c.min_position_std**2, yx, xx + c.min_position_std**2], dim=-1)
        basis = self._basis(y, x, covariance)
        weighted = basis * masks.unsqueeze(-1)
        shading = torch.linalg.solve(weighted.mT @ basis + self.ridge, weighted.mT @ colours.unsqueeze(1))
        residual = (masks.unsqueeze(-1) * (colours.unsqueeze(1) - basis @ shading).square()).sum(2)
        residual = torch.stack([residual[..., :2].mean(-1), residual[..., 2]], dim=-1)
        variance = ((residual + c.std_prior_mass) / (mass + c.std_prior_mass)).clamp(c.min_relative_std**2, 1.0)
        velocity = torch.zeros_like(centre)
        if predicted is not None:
            before = self._parts(predicted)
            velocity = (centre - before.centre + before.velocity) * mass / (mass + c.velocity_prior_mass)
            velocity = velocity * (MAX_SPEED / velocity.norm(dim=-1, keepdim=True).clamp(min=MAX_SPEED))
        support = (mass - c.min_component_mass).clamp(min=1e-6)
        log_weight = (support / support.sum(1, keepdim=True)).log()
        return torch.cat([log_weight, centre, covariance, velocity, variance, shading.flatten(2)], dim=-1)

    @torch.no_grad()
    def log_joint(self, colours: Colours, components: Packed) -> Float[Tensor, "B K cells"]:
        """log P(component, the cell's position, its colour), up to a constant. Its softmax over K is the E step."""
        log_weight, centre, covariance, _, variance, shading = self._parts(components)
        y, x = self._around(centre)
        yy, yx, xx = (part.unsqueeze(-1) for part in covariance.unbind(-1))
        determinant = (yy * xx - yx * yx).clamp(min=self.config.min_position_std**4)
        distance = (xx * y * y - 2 * yx * x * y + yy * x * x) / determinant
        position = -math.log(2 * math.pi) - 0.5 * (distance + determinant.log())
        everywhere = (12 * determinant.sqrt() / self.area).clamp(max=1 - 1e-6) ** WIDE
        position = torch.logaddexp(position + (-everywhere).log1p(), everywhere.log() - math.log(self.area))
        painted = self._basis(y, x, covariance) @ shading.unflatten(-1, (self.terms, 3))
        residual = (colours.unsqueeze(1) - painted).square()
        chroma, brightness = variance.unsqueeze(2).unbind(-1)
        residual = (residual[..., 0] + residual[..., 1]) / chroma + residual[..., 2] / brightness
        return log_weight + position - chroma.log() - 0.5 * (residual + brightness.log())

    def log_masks(self, colours: Colours, components: Packed) -> Float[Tensor, "B K h w"]:
        """E step: the posterior of the components for each cell."""
        share = self.config.uniform_share
        posterior = self.log_joint(colours, components).softmax(1)
        return torch.log((1 - share) * posterior + share / posterior.shape[1]).unflatten(-1, self.cells)

    # ---- from frame to frame ---------------------------------------------------------------------------------------

    def predict(self, colours: Colours, components: Packed) -> Packed:
        """The components in this frame before the E step. Where a video begins they are seeded; otherwise they are
        moved by their velocity, and an empty slot is seeded again where the frame is explained worst."""
        before = self._parts(components)
        components = self._packed(before._replace(centre=before.centre + before.velocity))
        begins = (components == 0).all(-1).all(-1)
        if begins.any():
            components = components.clone()
            components[begins] = self.seed(colours[begins], components.shape[1])
        return self._reseeded(colours, components)

    @torch.no_grad()
    def seed(self, colours: Colours, slots: int) -> Packed:
        """Seeds as many components as there are slots, one after the other; the first covers the whole frame."""
        components = self.fit(colours, colours.new_ones(len(colours), 1, colours.shape[1]))
        for _ in range(1, slots):
            seeds, _ = self._seeds(colours, self.log_joint(colours, components).logsumexp(1))
            components = torch.cat([components, seeds], dim=1)
            for _ in range(self.config.em_iterations):
                components = self.fit(colours, self.log_joint(colours, components).softmax(1))
        return components

    @torch.no_grad()
    def _reseeded(self, colours: Colours, components: Packed) -> Packed:
        """Seeds the emptiest slot again if it has no support and some cells are explained badly."""
        seeds, surprise = self._seeds(colours, self.log_joint(colours, components).logsumexp(1))
        log_weight, slot = components[..., 0].min(dim=-1)
        empty: Bool[Tensor, " B"] = log_weight.exp() * len(self.grid) < 1
        chosen = (empty & (surprise > self.config.seed_threshold)).nonzero().squeeze(1)
        if len(chosen):
            components = components.clone()
            components[chosen, slot[chosen]] = seeds[chosen, 0]
        return components

    def _seeds(self, colours: Colours, log_likelihood: Float[Tensor, "B cells"]) -> tuple[Packed, Float[Tensor, " B"]]:
        """A small component at the cell with the lowest likelihood, and how far that is below the median."""
        log_likelihood = self._smooth(log_likelihood.unsqueeze(1), self.config.seed_window).squeeze(1)
        least, cell = log_likelihood.min(dim=-1)
        every: Int[Tensor, " B"] = torch.arange(len(colours), device=colours.device)
        colour = self._smooth(colours.mT, 3).mT[every, cell]
        seeds = colours.new_zeros(len(colours), 1, self.width)
        parts = self._parts(seeds)  # views into the seeds
        parts.log_weight[:] = math.log(SEED_SHARE)
        parts.centre[:, 0] = self.grid[cell]
        parts.covariance[..., 0::2] = SEED_STD**2
        parts.variance[:] = 1.0
        parts.colours[:, 0, :3] = colour
        return seeds, log_likelihood.median(dim=-1).values - least

    def _smooth(self, maps: Float[Tensor, "B C cells"], width: int) -> Float[Tensor, "B C cells"]:
        maps = maps.unflatten(-1, self.cells)
        return F.avg_pool2d(maps, width, stride=1, padding=width // 2, count_include_pad=False).flatten(2)

    # ---- numbers and what they mean --------------------------------------------------------------------------------

    def _parts(self, components: Packed) -> _Parts:
        return _Parts(*components.split(self.widths, dim=-1))

    def _packed(self, parts: _Parts) -> Packed:
        return torch.cat(parts, dim=-1)

    def _around(self, centre: Float[Tensor, "B K 2"]) -> tuple[Float[Tensor, "B K cells"], Float[Tensor, "B K cells"]]:
        """Row and column of every cell relative to the centres."""
        y, x = (self.grid.t() - centre.unsqueeze(-1)).unbind(2)
        return y, x

    def _basis(
        self,
        y: Float[Tensor, "B K cells"],
        x: Float[Tensor, "B K cells"],
        covariance: Float[Tensor, "B K 3"],
    ) -> Float[Tensor, "B K cells terms"]:
        """The basis of the shading: polynomials of the position relative to the component, in units of its extent."""
        extent = ((covariance[..., 0] + covariance[..., 2]) / 2).sqrt().unsqueeze(-1)
        y, x = (y / (SHADING_REACH * extent)).tanh(), (x / (SHADING_REACH * extent)).tanh()
        return torch.stack([torch.ones_like(x), y, x, y * y, y * x, x * x][: self.terms], dim=-1)


if TYPE_CHECKING:

    def _keeps_the_contract(model: Mixture) -> VideoModel[MixtureState]:
        return model

    def _can_be_looked_into(model: Mixture) -> ExplainingModel:
        return model
