"""SCALOR: generative world models with scalable object representations (Jiang et al., 2020).

::

    frame x_t ─► encoder ─► ConvLSTM ─► a G x G map of features
                                          │
    objects of t − 1 ─► propagation: each looks around where it was, moves, and may fade     ─┐
    every cell       ─► discovery: proposes one object, refused where propagated ones lie    ─┤
                                                                                              ▼
    each object: box z_where, look z_what ─► a glimpse (colour, mask) ─► pasted into its box, blended by z_depth
    the rest:    background z_bg from the frame and what is left of it

    y = Σ_n w_n (α_n o_n) + (1 − α) background,   w_n = G_n / Σ G,   G_n = α_n σ(−z_depth),   α_n = mask · z_pres
    loss = −log N(x; y, σ²) + KL of what, where, depth and presence of new objects (fixed priors) and of old ones (a
           prior that an LSTM learns), and of the background (a GRU's)

The number of objects varies, with at most K − 1 objects beside the background. An object has an id that no other object
of the video ever gets. SCALOR's own rule assigns pixels to objects. Of the objects that cover a pixel with α_n > 0.3,
the nearest (largest G_n) gets it, if all objects together also cover it that much; otherwise it is background.

Deviations from the authors' code: Their limit on the number of objects holds only in training; here it holds in
evaluation too, so that the state has a fixed size. Ids are never reused, where theirs may be after an object has
disappeared. In evaluation nothing is sampled: latents are means, and presence is 0 or 1. A standard deviation is at
least 10⁻⁴. Exact shortcuts: in training only accepted objects are decoded and pasted, because refused proposals
contribute nothing; colour, mask and importance are pasted at once, by two matrix products instead of grid sampling; all
backgrounds of a clip are decoded at once. Options for short trainings, off by default: the authors' `curriculum`, and
training on single frames at first (`alone`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vonet.baselines.scalor.celu import Layer, down, grow, mlp, point, same, stack
from vonet.baselines.scalor.conv_lstm import ConvLSTM
from vonet.baselines.scalor.glimpse import GlimpseDecoder, GlimpseEncoder, crop, paste
from vonet.blocks.gaussian import Gaussian, kl_divergence, unit_divergence
from vonet.blocks.time import scan
from vonet.errors import BadInput
from vonet.interface import (
    Clip,
    Enlargement,
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
from vonet.schedule import Schedule

FEATURES, MASK_CODE, LAYERS = 64, 32, 2
"""Channels of the features and of the encoded coverage; layers of the ConvLSTM."""
TRACK, PRIOR = 128, 64
"""Widths of the tracker and of its prior."""
LARGEST_LOGIT = 8.8
"""Presence stays between 0.00015 and 0.99985."""
LONGEST_MOVE, EDGE = 0.2, 1.05
"""Largest motion of an object per frame, and limits of its centre."""
COVERED, REFUSED_ABOVE, FOOTPRINT = 0.1, 0.3, 0.3
"""A proposal is refused if at least this share of its footprint (mask above 0.3) lies where propagated masks are above
0.1."""
CARRIED_ABOVE, LONGEST_ABSENCE = 0.7, 0.6
REFUSED_PRIOR = 1e-8
BELONGS_ABOVE = 0.3
SMALLEST_STD = 1e-4
EPS = 1e-15


@dataclass(frozen=True, kw_only=True)
class BoxConfig:
    """Range of possible boxes: the square root of a box's area is `size` ± `size_range` as a share of the frame, and
    its height divided by its width is `ratio` ± `ratio_range`. Objects outside this range cannot be found."""

    size: float = 0.2
    size_range: float = 0.15
    ratio: float = 1.05
    ratio_range: float = 0.45

    def __post_init__(self) -> None:
        if not (0 < self.size_range < self.size and 0 < self.ratio_range < self.ratio):
            raise BadInput(f"{self}: ranges must be more than 0 and less than the value they surround")

    def extents(self, raw: Float[Tensor, "*any 2"]) -> Float[Tensor, "*any 2"]:
        """Width and height of a box from two unbounded numbers."""
        size = self.size + self.size_range * raw[..., :1].tanh()
        root = (self.ratio + self.ratio_range * raw[..., 1:].tanh()).sqrt()
        return torch.cat([size / root, size * root], dim=-1)


@dataclass(frozen=True, kw_only=True)
class SCALORConfig:
    """SCALOR with the VONet paper's settings for MOVi-A."""

    size: tuple[int, int] = (128, 128)
    """Height and width of the frames: 64x64 or 128x128."""
    slots: int = 11
    """Default number of slots: one for the background, the others for objects; no parameter depends on it."""
    grid: int = 8
    """Cells per side of the grid, 4 or 8; each cell may propose an object."""
    glimpse: int = 64
    """Side of a glimpse in pixels, 32 or 64."""
    what_dim: int = 64
    background_dim: int = 10
    box: BoxConfig = field(default_factory=BoxConfig)
    sigma: float = 0.1
    """Standard deviation of a pixel's colour around the reconstruction."""
    presence: Schedule = field(default_factory=lambda: Schedule(((0, 0.1), (500, 1e-3))))
    """The prior probability of an object in a cell."""
    cooling: int = 20_000
    """Number of updates in which the temperature of presences falls from 1 to ½, where it stays."""
    cut: int = 30_000
    """Number of updates in which no gradient passes from frame to frame through objects."""
    curriculum: int = 0
    """Number of updates in which objects are assumed to hide the background everywhere, so that objects learn to paint
    before the background can explain the frame alone. An option of the authors, off by default; they use 200
    updates."""
    alone: int = 0
    """Number of updates in which each frame is processed on its own, without propagation and refusals, so that
    discovery learns first. Our addition."""

    losses = ("reconstruction", "what", "where", "depth", "presence", "background")

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        check_size(self.size)
        check_slots(self.slots)
        if self.size not in ((64, 64), (128, 128)) or self.grid not in (4, 8):
            raise BadInput(
                f"frames of {self.size[0]}x{self.size[1]} on a grid of {self.grid}; SCALOR's networks are made for "
                "64x64 or 128x128 and a grid of 4 or 8"
            )
        if min(self.sigma, self.cooling) <= 0:
            raise BadInput(f"sigma is {self.sigma} and cooling {self.cooling}; both must be more than 0")

    def build(self) -> SCALOR:
        return SCALOR(self)


@dataclass(frozen=True)
class Objects(State):
    """The object slots; an empty slot has presence 0 and name 0."""

    what: Float[Tensor, "B P what"]
    box: Float[Tensor, "B P 4"]
    move: Float[Tensor, "B P 4"]
    """The latent of the last box: two numbers for its extents, two for its middle."""
    depth: Float[Tensor, "B P 1"]
    presence: Float[Tensor, "B P 1"]
    absence: Float[Tensor, "B P 1"]
    """Σ (1 − presence) so far."""
    hidden: Float[Tensor, "B P track"]
    prior_hidden: Float[Tensor, "B P prior"]
    prior_cell: Float[Tensor, "B P prior"]
    name: Int[Tensor, "B P"]

    @property
    def alive(self) -> Bool[Tensor, "B P"]:
        return self.presence.squeeze(-1) > 0


@dataclass(frozen=True)
class SCALORState(Objects):
    """The objects of the last frame, the feature memory and the background."""

    map_hidden: Float[Tensor, "B L C G G"]
    map_cell: Float[Tensor, "B L C G G"]
    background: Float[Tensor, "B Z"]
    background_hidden: Float[Tensor, "B _"]
    names_given: Int[Tensor, " B"]
    seen: Bool[Tensor, " B"]
    """Whether the video had a frame before."""


@dataclass(frozen=True, kw_only=True)
class SCALORStep(StepOutput):
    """Masks and labels, with everything that the losses need."""

    foreground: Float[Tensor, "B 3 H W"]
    hidden: Float[Tensor, "B 1 H W"]
    """Share of the background that is hidden: the joint α of all objects, or 1 everywhere
    (`SCALORConfig.curriculum`)."""
    background: Float[Tensor, "B Z"]
    kl_what: Float[Tensor, " B"]
    kl_where: Float[Tensor, " B"]
    kl_depth: Float[Tensor, " B"]
    kl_presence: Float[Tensor, " B"]
    kl_background: Float[Tensor, " B"]


@dataclass(frozen=True)
class Annealed:
    """Annealed quantities during training."""

    temperature: float
    presence_prior: float
    cut: bool
    hides: bool
    """Whether objects hide the background everywhere, whatever their masks."""


# ---- small pieces ----------------------------------------------------------------------------------------------------


def gaussian(parameters: Float[Tensor, "*any _"], shift: float = 0.0) -> Gaussian:
    """A Gaussian whose standard deviation is a softplus of the second half of the parameters."""
    mean, raw = parameters.chunk(2, dim=-1)
    return Gaussian(mean, (F.softplus(raw + shift) + SMALLEST_STD).log())


def bernoulli_divergence(logits: Float[Tensor, "*any"], prior: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """KL divergence of a Bernoulli variable with probability σ(logits) from a prior probability."""
    q = logits.sigmoid()
    yes = q * ((q + EPS).log() - (prior + EPS).log())
    return yes + (1 - q) * ((1 - q + EPS).log() - (1 - prior + EPS).log())


def limited(alpha: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Clamped to at most one, with gradients passed straight through."""
    return alpha + (alpha.clamp(EPS, 1 - EPS) - alpha).detach()


class Drawing(nn.Module):
    """A module that samples latents in training and uses their mean in evaluation."""

    def drawn(self, latent: Gaussian) -> Tensor:
        return latent.sample() if self.training else latent.mean

    def present(self, logits: Float[Tensor, "*any"], temperature: float) -> Float[Tensor, "*any"]:
        """A relaxed Bernoulli sample between 0 and 1; in evaluation 0 or 1."""
        if not self.training:
            return (logits > 0).to(logits.dtype)
        return ((logits + torch.rand_like(logits).logit(eps=1e-6)) / temperature).sigmoid()


# ---- the parts -------------------------------------------------------------------------------------------------------


class FrameEncoder(nn.Module):
    """Encodes a frame to the grid of features."""

    def __init__(self, side: int, grid: int):
        super().__init__()
        layers = [down(16, 4), same(16, 4), down(32, 8), same(32, 8), down(64, 8), same(64, 8)]
        further: dict[tuple[int, int], list[Layer]] = {
            (128, 8): [down(128, 16)],
            (128, 4): [down(64, 8), same(64, 8), down(128, 16)],
            (64, 8): [],
            (64, 4): [down(64, 8)],
        }
        self.entry = stack(3, *layers, *further[side, grid], point(64, 16))
        self.lateral = stack(64, same(64, 8), same(64, 8))
        self.joined = stack(128, same(FEATURES, 8))

    def forward(self, frame: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C G G"]:
        x = self.entry(frame)
        return self.joined(torch.cat([x, self.lateral(x)], dim=1))


class Background(Drawing):
    """The background: a small VAE of the parts of the frame without objects, with a prior that depends on the past."""

    def __init__(self, side: int, dim: int):
        super().__init__()
        codes = [down(16, 4), down(32, 8), down(64, 8), down(64, 8), down(64, 8)][: 5 if side == 128 else 4]
        self.encoder = nn.Sequential(stack(4, *codes), nn.Conv2d(64, 2 * dim, 4), nn.Flatten())
        first = [point(256, 16), grow(4096, 4, 16), same(256, 16), grow(2048, 4, 16), same(128, 16)]
        then = [grow(256, 2, 8), same(64, 8)]
        if side == 64:
            first = [point(256, 16), grow(2048, 4, 16), same(128, 16), grow(1024, 4, 8), same(64, 8)]
            then = []
        last = [grow(256, 4, 4), same(16, 4), same(16, 4)]
        self.decoder = nn.Sequential(stack(dim, *first, *then, *last), nn.Conv2d(16, 3, 3, padding=1), nn.Sigmoid())
        self.prior_gru, self.prior_head = nn.GRUCell(dim, 32), nn.Linear(32, 2 * dim)

    def forward(
        self, frame: Float[Tensor, "B 3 H W"], alpha: Float[Tensor, "B 1 H W"], state: SCALORState
    ) -> tuple[Float[Tensor, "B Z"], Float[Tensor, "B _"], Float[Tensor, " B"]]:
        """z, the state of the prior's GRU, and the KL divergence."""
        posterior = gaussian(self.encoder(torch.cat([frame, 1 - alpha], dim=1)))
        hidden = self.prior_gru(state.background, state.background_hidden)
        change = gaussian(self.prior_head(hidden))
        prior = Gaussian(state.background + change.mean, change.log_std)
        divergence = torch.where(state.seen, kl_divergence(posterior, prior), unit_divergence(posterior))
        return self.drawn(posterior), torch.where(state.seen[:, None], hidden, state.background_hidden), divergence

    def picture(self, z: Float[Tensor, "B Z"]) -> Float[Tensor, "B 3 H W"]:
        return self.decoder(z[..., None, None])


class Propagation(Drawing):
    """Updates the objects of the last frame for the present one."""

    def __init__(self, what: int, grid: int, box: BoxConfig):
        super().__init__()
        self.box, self.view = box, grid // 2
        self.prior_entry, self.prior_lstm = nn.Linear(what + 10, TRACK), nn.LSTMCell(TRACK, PRIOR)
        self.prior_heads = nn.ModuleDict(
            {name: nn.Linear(PRIOR, n) for name, n in (("what", 2 * what), ("move", 8), ("depth", 2), ("presence", 1))}
        )
        self.around = nn.Sequential(stack(FEATURES, point(64, 8)), nn.Flatten(), nn.Linear(64 * self.view**2, TRACK))
        self.entry, self.tracker = nn.Linear(what + 9 + TRACK, TRACK), nn.GRUCell(TRACK, TRACK)
        self.move = mlp(2 * TRACK + what + 8, TRACK, 8)
        self.memory = mlp(TRACK, 64, 2 * what)
        self.gates = mlp(2 * TRACK, 64, 2)
        self.depth = mlp(2 * TRACK + what, TRACK, 2)
        self.presence = mlp(TRACK + 8 + what, 64, 1)

    def forward(
        self,
        old: Objects,
        frame: Float[Tensor, "B 3 H W"],
        features: Float[Tensor, "B C G G"],
        glimpses: GlimpseEncoder,
        side: int,
        temperature: float,
    ) -> tuple[Objects, dict[str, Float[Tensor, " B"]]]:
        """The updated objects and the KL divergences."""
        live = old.alive.unsqueeze(-1).to(frame.dtype)
        batch_places = old.alive.shape

        # What the past says of the present.
        known = torch.cat([old.what, old.box, old.move, old.depth, old.presence], dim=-1)
        memory = old.prior_hidden.flatten(0, 1), old.prior_cell.flatten(0, 1)
        prior_state = self.prior_lstm(self.prior_entry(known).flatten(0, 1), memory)
        prior_hidden, prior_cell = (part.unflatten(0, batch_places) for part in prior_state)
        expected = {name: head(prior_hidden) for name, head in self.prior_heads.items()}

        # Look around where it was, and follow.
        window = torch.cat([torch.full_like(old.box[..., :2], 0.5), old.box[..., 2:].detach()], dim=-1)
        around = self.around(crop(features, window, self.view).flatten(0, 1)).unflatten(0, batch_places)
        entry = self.entry(torch.cat([old.box, old.presence, old.what, old.move, around], dim=-1))
        hidden = self.tracker(entry.flatten(0, 1), old.hidden.flatten(0, 1)).unflatten(0, batch_places)
        moves = gaussian(self.move(torch.cat([hidden, old.what, old.box, old.move, around], dim=-1)), shift=-2.0)
        move = self.drawn(moves)
        middle = (old.box[..., 2:] + LONGEST_MOVE * move[..., 2:].tanh()).clamp(-EDGE, EDGE)
        box = torch.cat([self.box.extents(move[..., :2]), middle], dim=-1)

        # Look there, and weigh what is seen against what is remembered.
        seen = glimpses(crop(frame, box, side).flatten(0, 1)).unflatten(0, batch_places)
        (seen_mean, seen_raw), (kept_mean, kept_raw) = seen.chunk(2, -1), self.memory(hidden).chunk(2, -1)
        keep, take = self.gates(torch.cat([hidden, around], dim=-1)).sigmoid().split(1, dim=-1)
        spread = take * F.softplus(seen_raw) + keep * F.softplus(kept_raw)
        whats = gaussian(torch.cat([take * seen_mean + keep * kept_mean, spread], dim=-1))
        what = self.drawn(whats)
        depths = gaussian(self.depth(torch.cat([hidden, what, around], dim=-1)))
        depth = self.drawn(depths)
        logits = LARGEST_LOGIT * (self.presence(torch.cat([hidden, box, move, what], dim=-1)) + 2).tanh()
        presence = self.present(logits, temperature) * live
        absence = old.absence + (1 - presence.detach()) * live
        presence = presence * (absence < LONGEST_ABSENCE)

        priors = {name: gaussian(expected[name]) for name in ("what", "move", "depth")}
        weight = presence.squeeze(-1)
        chance = (expected["presence"] + 5).sigmoid()
        divergences = {
            "what": (kl_divergence(whats, priors["what"]) * weight).sum(1),
            "where": (kl_divergence(moves, priors["move"]) * weight).sum(1),
            "depth": (kl_divergence(depths, priors["depth"]) * weight).sum(1),
            "presence": (bernoulli_divergence(logits, chance) * live).sum((1, 2)),
        }
        new = Objects(what, box, move, depth, presence, absence, hidden, prior_hidden, prior_cell, old.name)
        return new, divergences


@dataclass(frozen=True)
class Proposals:
    """One proposed object per cell. `presence` is zero for refused proposals."""

    what: Float[Tensor, "B N what"]
    box: Float[Tensor, "B N 4"]
    depth: Float[Tensor, "B N 1"]
    presence: Float[Tensor, "B N 1"]


class Discovery(Drawing):
    """Proposes objects that are not tracked yet."""

    cell_middles: Tensor

    def __init__(self, side: int, grid: int, box: BoxConfig):
        super().__init__()
        self.box, self.grid = box, grid
        layers = [down(16, 4), down(32, 8), same(32, 8), down(64, 8), same(64, 8), down(64, 8)]
        if side // grid == 32:
            layers += [same(64, 8), down(64, 8)]
        elif side // grid == 8:
            layers = layers[:-1]
        self.cover = stack(1, *layers, point(MASK_CODE, 8))
        self.joined = stack(FEATURES + MASK_CODE, point(64, 16), point(64, 16))
        heads = {"where": (64, 8), "presence": (64, 1), "depth": (32, 2)}
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(stack(64, point(hidden, 8)), nn.Conv2d(hidden, outputs, 1))
                if side == 128
                else nn.Conv2d(64, outputs, 1)
                for name, (hidden, outputs) in heads.items()
            }
        )
        steps = (2 * torch.arange(grid) + 1) / grid - 1
        middles = torch.stack([steps.repeat(grid), steps.repeat_interleave(grid)], dim=-1)  # x first, row by row
        self.register_buffer("cell_middles", middles, persistent=False)

    def forward(
        self,
        frame: Float[Tensor, "B 3 H W"],
        features: Float[Tensor, "B C G G"],
        covered: Float[Tensor, "B 1 H W"],
        seen: Bool[Tensor, " B"],
        encoder: GlimpseEncoder,
        decoder: GlimpseDecoder,
        side: int,
        annealed: Annealed,
    ) -> tuple[Proposals, dict[str, Float[Tensor, " B"]]]:
        x = self.joined(torch.cat([features, self.cover(covered)], dim=1))
        found = {name: head(x).flatten(2).mT for name, head in self.heads.items()}  # B N outputs
        logits = LARGEST_LOGIT * found["presence"].tanh()
        wheres, depths = gaussian(found["where"]), gaussian(found["depth"])
        raw = self.drawn(wheres)
        middle = self.cell_middles + 2 / self.grid * raw[..., 2:].tanh()
        box = torch.cat([self.box.extents(raw[..., :2]), middle], dim=-1)
        whats = gaussian(encoder(crop(frame, box, side).flatten(0, 1)).unflatten(0, box.shape[:2]))
        what, depth, drawn = self.drawn(whats), self.drawn(depths), self.present(logits, annealed.temperature)
        refused = self.refused(decoder, what, box, covered) & seen[:, None]
        chance = torch.where(refused, REFUSED_PRIOR, annealed.presence_prior).unsqueeze(-1).to(logits.dtype)
        weight = drawn.squeeze(-1)  # before anything is refused
        divergences = {
            "what": (unit_divergence(whats) * weight).sum(1),
            "where": (unit_divergence(wheres) * weight).sum(1),
            "depth": (unit_divergence(depths) * weight).sum(1),
            "presence": bernoulli_divergence(logits, chance).sum((1, 2)),
        }
        return Proposals(what, box, depth, drawn * ~refused.unsqueeze(-1)), divergences

    @staticmethod
    @torch.no_grad()
    def refused(
        decoder: GlimpseDecoder,
        what: Float[Tensor, "B N what"],
        box: Float[Tensor, "B N 4"],
        covered: Float[Tensor, "B 1 H W"],
    ) -> Bool[Tensor, "B N"]:
        """Which proposals overlap with propagated objects."""
        if not (covered > COVERED).any():
            return torch.zeros(box.shape[:2], dtype=torch.bool, device=box.device)
        footprint = paste(decoder(what)[1], box, (covered.shape[-2], covered.shape[-1])) > FOOTPRINT
        explained = (footprint & (covered > COVERED).unsqueeze(1)).sum((2, 3, 4))
        return explained >= REFUSED_ABOVE * footprint.sum((2, 3, 4)).clamp(min=1)


# ---- the model -------------------------------------------------------------------------------------------------------


class SCALOR(nn.Module):
    """Propagates objects, discovers new ones and paints both on a background."""

    enlargement: Enlargement = "nearest"

    def __init__(self, config: SCALORConfig):
        super().__init__()
        side = config.size[0]
        self.config = config
        self.size = self.cells = config.size
        self.slots, self.glimpse = config.slots, config.glimpse
        self.frame_encoder = FrameEncoder(side, config.grid)
        self.conv_lstm = ConvLSTM(FEATURES, config.grid, LAYERS)
        self.glimpse_encoder = GlimpseEncoder(config.glimpse, 2 * config.what_dim)
        self.glimpse_decoder = GlimpseDecoder(config.glimpse, config.what_dim, fine=side == 128)
        self.propagation = Propagation(config.what_dim, config.grid, config.box)
        self.discovery = Discovery(side, config.grid, config.box)
        self.background = Background(side, config.background_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def annealed(self, update: int | None) -> Annealed:
        """Annealed quantities at this update; None: at the end of training."""
        config = self.config
        if update is None:
            return Annealed(0.5, config.presence.points[-1][1], cut=False, hides=False)
        temperature = 0.5 ** min(update / config.cooling, 1.0)
        cut, hides = update < config.cut, update < config.curriculum
        return Annealed(temperature, config.presence(update), cut=cut, hides=hides)

    # ---- one frame -------------------------------------------------------------------------------------------------

    def _step(
        self, frame: Float[Tensor, "B 3 H W"], state: SCALORState, annealed: Annealed
    ) -> tuple[SCALORStep, SCALORState]:
        if annealed.cut:
            state = replace(state, **{f.name: getattr(state, f.name).detach() for f in fields(Objects)})
        map_hidden, map_cell = self.conv_lstm(self.frame_encoder(frame), state.map_hidden, state.map_cell)
        features = map_hidden[:, -1]
        old, old_kl = self._propagated(frame, features, state, annealed)
        covered = self._covered(old)
        proposals, new_kl = self.discovery(
            frame,
            features,
            covered,
            state.seen,
            self.glimpse_encoder,
            self.glimpse_decoder,
            self.glimpse,
            annealed,
        )
        objects, names_given = self._joined(old, proposals, state.alive, state.names_given)
        foreground, alpha, alphas, importances = self._render(objects)
        hidden = torch.ones_like(alpha) if annealed.hides else alpha
        z, background_hidden, background_kl = self.background(frame, hidden, state)
        kl = {name: old_kl[name] + new_kl[name] for name in new_kl}
        output = SCALORStep(
            self._log_masks(alpha, importances),
            self.size,
            self.enlargement,
            self._slots(objects.what, z),
            self._slots(state.what, state.background),
            self._labels(alpha, alphas, importances, objects.name),
            foreground=foreground,
            hidden=hidden,
            background=z,
            kl_what=kl["what"],
            kl_where=kl["where"],
            kl_depth=kl["depth"],
            kl_presence=kl["presence"],
            kl_background=background_kl,
        )
        carried = _kept(objects, objects.presence.squeeze(-1) > torch.where(old.alive, 0.0, CARRIED_ABOVE))
        after = SCALORState(
            **{f.name: getattr(carried, f.name) for f in fields(Objects)},
            map_hidden=map_hidden,
            map_cell=map_cell,
            background=z,
            background_hidden=background_hidden,
            names_given=names_given,
            seen=torch.ones_like(state.seen),
        )
        return output, after

    def _propagated(
        self, frame: Tensor, features: Tensor, state: SCALORState, annealed: Annealed
    ) -> tuple[Objects, dict[str, Tensor]]:
        """The propagated objects and the KL divergences. Skipped if there are no objects."""
        old = Objects(**{f.name: getattr(state, f.name) for f in fields(Objects)})
        if not old.alive.any():
            return old, dict.fromkeys(("what", "where", "depth", "presence"), frame.new_zeros(len(frame)))
        encoder = self.glimpse_encoder
        new, kl = self.propagation(old, frame, features, encoder, self.glimpse, annealed.temperature)
        return _kept(new, new.alive), kl

    @torch.no_grad()
    def _covered(self, old: Objects) -> Float[Tensor, "B 1 H W"]:
        """The joint α of all propagated objects."""
        if not old.alive.any():
            return old.what.new_zeros(len(old.what), 1, *self.size)
        present = self.glimpse_decoder(old.what)[1] * old.presence[..., None, None]
        return limited(paste(present, old.box, self.size).sum(1))

    def _joined(
        self, old: Objects, new: Proposals, occupied: Bool[Tensor, "B P"], names_given: Int[Tensor, " B"]
    ) -> tuple[Objects, Int[Tensor, " B"]]:
        """Put the most probable proposals into the free object slots.

        `occupied`: object slots that had an object before this frame. The slot of an object that disappears in this
        frame becomes free only in the next frame, because the authors count the objects before they propagate them.
        """
        likeliest = new.presence.squeeze(-1).argsort(dim=1, descending=True, stable=True)
        rank = occupied.int().argsort(dim=1, stable=True).argsort(dim=1)  # the free places first, in order
        cell = likeliest.gather(1, rank.clamp(max=likeliest.shape[1] - 1))  # B P

        def taken(x: Tensor) -> Tensor:
            index = cell.view(*cell.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:])
            return x.gather(1, index)

        fills = ~occupied & (rank < likeliest.shape[1]) & (taken(new.presence).squeeze(-1) > 0)

        def joined(kept: Tensor, proposed: Tensor) -> Tensor:
            where = fills.view(*fills.shape, *[1] * (kept.ndim - 2))
            return torch.where(where, proposed, kept)

        objects = replace(
            old,
            what=joined(old.what, taken(new.what)),
            box=joined(old.box, taken(new.box)),
            depth=joined(old.depth, taken(new.depth)),
            presence=joined(old.presence, taken(new.presence)),
            name=joined(old.name, names_given[:, None] + 1 + rank),
        )
        return objects, names_given + fills.sum(dim=1)

    def _render(self, objects: Objects) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The picture of all objects, their joint α, and the α and importance of each."""
        colour, mask = self.glimpse_decoder(objects.what)
        present = mask * objects.presence[..., None, None]
        nearness = (-objects.depth).sigmoid()[..., None, None]
        pasted = paste(torch.cat([present * colour, present, present * nearness], dim=2), objects.box, self.size)
        colours, alphas, importances = pasted.split([3, 1, 1], dim=2)
        weights = importances / (importances.sum(1, keepdim=True) + EPS)
        return (weights * colours).sum(1), limited(alphas.sum(1)), alphas.squeeze(2), importances.squeeze(2)

    @staticmethod
    @torch.no_grad()
    def _log_masks(alpha: Tensor, importances: Float[Tensor, "B P H W"]) -> Float[Tensor, "B K H W"]:
        """Log-masks: first the background, then the objects by their share of the covered area."""
        shares = alpha * importances / (importances.sum(1, keepdim=True) + EPS)
        return torch.cat([1 - alpha, shares], dim=1).clamp(min=1e-8).log().log_softmax(dim=1)

    @staticmethod
    @torch.no_grad()
    def _labels(alpha: Tensor, alphas: Tensor, importances: Tensor, names: Int[Tensor, "B P"]) -> Int[Tensor, "B H W"]:
        """Label 1 for the background, and the object's id plus one for objects."""
        nearest = torch.where(alphas > BELONGS_ABOVE, importances, -1.0).max(dim=1)
        owner = names[:, :, None, None].expand_as(alphas).gather(1, nearest.indices.unsqueeze(1)).squeeze(1)
        covered = (alpha.squeeze(1) > BELONGS_ABOVE) & (nearest.values >= 0)
        return torch.where(covered, owner + 1, 1)

    @staticmethod
    def _slots(what: Float[Tensor, "B P D"], background: Float[Tensor, "B Z"]) -> Float[Tensor, "B K D"]:
        """The background's latent, padded to the width of the objects'."""
        width = what.shape[-1]
        return torch.cat([F.pad(background, (0, width - background.shape[-1]))[:, None], what], dim=1)

    def step(self, frame: Tensor, state: SCALORState) -> tuple[StepOutput, SCALORState]:
        """One frame `B 3 H W` in, masks and the next state out."""
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        return self._step(frame, state, self.annealed(None))

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> SCALORState:
        """An empty state for `batch` videos with `slots` − 1 object slots."""
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        if count < 2:
            raise BadInput("one slot was asked for; SCALOR needs one for the background and at least one for objects")
        config = self.config
        like = self.propagation.entry.weight
        widths = {"what": config.what_dim, "box": 4, "move": 4, "depth": 1, "presence": 1, "absence": 1}
        widths |= {"hidden": TRACK, "prior_hidden": PRIOR, "prior_cell": PRIOR}
        maps = like.new_zeros(batch, LAYERS, FEATURES, config.grid, config.grid)
        return SCALORState(
            **{name: like.new_zeros(batch, count - 1, width) for name, width in widths.items()},
            name=torch.zeros(batch, count - 1, dtype=torch.long, device=like.device),
            map_hidden=maps,
            map_cell=maps,
            background=like.new_zeros(batch, config.background_dim),
            background_hidden=like.new_zeros(batch, self.background.prior_gru.hidden_size),
            names_given=torch.zeros(batch, dtype=torch.long, device=like.device),
            seen=torch.zeros(batch, dtype=torch.bool, device=like.device),
        )

    def restart(self, state: SCALORState, is_first: Bool[Tensor, " B"]) -> SCALORState:
        return state.map(lambda x: x.masked_fill(is_first.view(-1, *[1] * (x.ndim - 1)), 0))

    # ---- a video ---------------------------------------------------------------------------------------------------

    def unroll(self, clip: Clip, state: SCALORState | None = None) -> Output:
        """Watch a clip. Masks of a clip; no background is decoded."""
        return self._watch(clip, state, self.annealed(None))[0]

    def _watch(self, clip: Clip, state: SCALORState | None, annealed: Annealed) -> tuple[Output, dict[str, Tensor]]:
        if state is None:
            state = self.initial_state(len(clip.frames))
        self._check_fit(clip.frames, state)
        tensors, last = scan(lambda frame, before: self._step(frame, before, annealed), self.restart, clip, state)
        shared = {name: tensors.pop(name) for name in ("log_masks", "slots", "previous_slots", "labels")}
        output = Output(size=self.size, enlargement=self.enlargement, state=last, **shared)  # type: ignore[arg-type]
        return output, tensors

    def forward(self, clip: Clip, state: SCALORState | None = None, update: int = 0) -> Output:
        """Computes masks and losses of a clip. In training mode latents are sampled."""
        if update < self.config.alone:
            clip = Clip(clip.frames, torch.ones_like(clip.is_first))
        output, found = self._watch(clip, state, self.annealed(update))
        background = self.background.picture(found["background"].flatten(0, 1)).unflatten(0, clip.frames.shape[:2])
        picture = found["foreground"] + (1 - found["hidden"]) * background
        pixel = torch.distributions.Normal(picture, self.config.sigma)
        losses = {"reconstruction": -pixel.log_prob(clip.frames).sum((2, 3, 4))}
        losses |= {name: found[f"kl_{name}"] for name in ("what", "where", "depth", "presence", "background")}
        return replace(output, losses=losses)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"model": list(self.parameters())}

    def _check_fit(self, frames: Tensor, state: SCALORState) -> None:
        check_fit(frames, self.size, self.propagation.entry.weight)
        if len(state.name) != len(frames) or state.what.shape[-1] != self.config.what_dim:
            raise BadInput(
                f"the state is of {len(state.name)} videos and objects of {state.what.shape[-1]} numbers; expected "
                f"{len(frames)} and {self.config.what_dim}: start with model.initial_state({len(frames)})"
            )


def _kept(objects: Objects, kept: Bool[Tensor, "B P"]) -> Objects:
    """Keeps the selected objects and empties the other object slots."""
    return objects.map(lambda x: x.masked_fill(~kept.view(*kept.shape, *[1] * (x.ndim - 2)), 0))


if TYPE_CHECKING:

    def _keeps_the_contract(model: SCALOR) -> VideoModel[SCALORState]:
        return model
