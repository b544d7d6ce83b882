"""SIMONe: View-Invariant, Temporally-Abstracted Object Representations (Kabra and others, NeurIPS 2021).

SIMONe is not recurrent: it sees the whole clip at once. Each object has one latent that does not change over time, and
each frame has one that all objects share. Every pixel is decoded independently from the two and its position::

    h = T₂(pool(T₁(CNN(x))))                           T × K vectors; the K cells of the pooled grid are the slots
    q(o_k) from the mean of h over time,  q(f_t) from its mean over the cells;  priors N(0, I)
    (μ, ℓ)_{tki} = MLP(o_k, f_t, t, y_i, x_i)          a colour and a mask logit; o and f are drawn for each t, k, i
    w = softmax_k(standardised ℓ)                      over all of t, k, i together; the masks
    loss = −α · mean_{ti} Σ_colours log Σ_k w_{tki} N(x_{ti}; μ_{tki}, σ²) + β_o · mean_k KL(o_k) + β_f · mean_t KL(f_t)

The settings are those of the VONet paper, which used the re-implementation by Generally Intelligent (GI): 16 slots,
because the pooled grid has 16 cells. The paper does not give the frame size; we use 64x64, since the same network would
make 64 slots from 128x128.

Deviations from GI: Training decodes half of the frames and every second pixel in both directions, as GI does. The
offset is random, where GI always takes the even ones. Evaluation decodes the means, where GI samples for each pixel,
which makes the masks noisy. The KL divergence of frames has a prior of matching shape (GI's fails unless T = K). Every
layer of the transformers has its own initialisation, where GI copies one layer. The heads of the latents are
initialised as everywhere in vonet, scaled to GI's size, and their log standard deviation is an option
(`initial_log_std`). The mixture is computed for each colour channel separately, as in GI.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.blocks.broadcast import mixture_error
from vonet.blocks.gaussian import Gaussian, GaussianHead, unit_divergence
from vonet.blocks.transformer import check_heads
from vonet.errors import BadInput
from vonet.interface import Clip, EmptyState, Enlargement, Output, VideoModel, check_batch, check_fit, check_size

LEAST_LOG_STD, MOST_LOG_STD = -10.0, 3.0
"""Log standard deviations are clamped to this range, because they may explode early in training."""


@dataclass(frozen=True, kw_only=True)
class SIMONeConfig:
    """SIMONe with the VONet paper's settings."""

    size: tuple[int, int] = (64, 64)
    grid: tuple[int, int] = (4, 4)
    """Rows and columns of the pooled map, whose cells are the slots."""
    channels: tuple[int, ...] = (128, 128, 128)
    """Channels of the convolutions, each of which halves the sides."""
    width: int = 320
    heads: int = 5
    hidden: int = 1024
    layers: int = 4
    """Number of layers of each of the two transformers."""
    latent_dim: int = 32
    latent_hidden: int = 1024
    initial_log_std: float = 0.0
    """Initial log standard deviation of the latents."""
    decoder: tuple[int, ...] = (512, 512, 512, 512, 512)
    """Hidden layers of the MLP that decodes a pixel."""
    pixel_stride: int = 2
    """Training decodes every N-th pixel, vertically and horizontally."""
    sigma: float = 0.08
    """Standard deviation of a pixel's colour around a slot's colour."""

    def __post_init__(self) -> None:
        for name in ("size", "grid"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a list, as JSON has it, will do
        check_size(self.size)
        reduced = 2 ** len(self.channels)
        if len(self.grid) != 2 or any(
            cells < 1 or side % (reduced * cells) for side, cells in zip(self.size, self.grid, strict=True)
        ):
            raise BadInput(
                f"frames of {self.size[0]}x{self.size[1]}, reduced {reduced} times, cannot be pooled to a grid of "
                f"{self.grid}: its two sides must divide those of the reduced frame"
            )
        check_heads(self.width, self.heads)
        if not 1 <= self.pixel_stride <= min(self.size):
            raise BadInput(f"pixel_stride is {self.pixel_stride}; it must be from 1 to the frame's side")

    @property
    def slots(self) -> int:
        return math.prod(self.grid)

    @property
    def losses(self) -> tuple[str, ...]:
        return ("reconstruction", "object_kl", "frame_kl")

    def build(self) -> SIMONe:
        return SIMONe(self)


class PixelDecoder(nn.Module):
    """Decodes all objects, frames and pixels with one MLP. Its first layer is applied to object, frame and position
    separately, so that its inputs need not be repeated or concatenated."""

    def __init__(self, hidden: tuple[int, ...], latent_dim: int):
        super().__init__()
        self.inputs = [latent_dim, latent_dim, 3]
        widths = (sum(self.inputs), *hidden, 4)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(
        self, objects: Float[Tensor, "B _ K _ d"], frames: Float[Tensor, "B T _ _ d"], places: Float[Tensor, "T P 3"]
    ) -> tuple[Float[Tensor, "B T K P 3"], Float[Tensor, "B T K P"]]:
        """Colours and mask logits. Latents may have size one along dimensions over which they do not vary."""
        first, *others = self.layers
        of_object, of_frame, of_place = first.weight.split(self.inputs, dim=1)  # type: ignore[operator, union-attr]
        x = F.linear(places, of_place, first.bias).unsqueeze(1)  # type: ignore[arg-type]
        x = F.linear(frames, of_frame) + F.linear(objects, of_object) + x
        shape, x = x.shape[:-1], x.flatten(0, 3)
        for layer in others:
            x = layer(F.relu_(x))
        colours, logits = x.unflatten(0, shape).split([3, 1], dim=-1)
        return colours, logits.squeeze(-1)


class SIMONe(nn.Module):
    """Infers latents of objects and of frames from a whole clip. The model has no `step`."""

    def __init__(self, config: SIMONeConfig):
        super().__init__()
        self.size, self.cells = config.size, config.size
        self.enlargement: Enlargement = "nearest"
        self.grid, self.slots, self.latent_dim = config.grid, config.slots, config.latent_dim
        self.pixel_stride, self.sigma = config.pixel_stride, config.sigma
        convolutions = [nn.Conv2d(a, b, 4, 2, 1) for a, b in itertools.pairwise((3, *config.channels))]
        self.cnn = nn.Sequential(*(part for layer in convolutions for part in (layer, nn.ReLU(inplace=True))))
        self.entry = nn.Linear(config.channels[-1], config.width, bias=False)
        self.cell_transformer, self.slot_transformer = (
            nn.Sequential(
                *(
                    nn.TransformerEncoderLayer(
                        config.width, config.heads, config.hidden, dropout=0.0, batch_first=True, norm_first=True
                    )
                    for _ in range(config.layers)
                )
            )
            for _ in range(2)
        )
        self.object_head, self.frame_head = (
            GaussianHead(config.width, config.latent_hidden, config.latent_dim, config.initial_log_std)
            for _ in range(2)
        )
        with torch.no_grad():  # as small as GI's: else some latents begin with ten times the noise of others
            for head in (self.object_head, self.frame_head):
                head.mlp[-1].weight.mul_(0.3)  # type: ignore[operator, union-attr]
        self.decoder = PixelDecoder(config.decoder, config.latent_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # else each convolution copies its weight

    # ---- encoding --------------------------------------------------------------------------------------------------

    def encode(self, frames: Float[Tensor, "B T 3 H W"]) -> tuple[Gaussian, Gaussian]:
        """q(o), `B K d`, and q(f), `B T d`."""
        maps = self.cnn(frames.flatten(0, 1).contiguous(memory_format=torch.channels_last))
        cells = self.entry(rearrange(maps, "(b t) c i j -> b t i j c", b=len(frames)))
        cells = self._with_places(cells, self.cell_transformer)
        vectors = self._with_places(pooled(cells, self.grid), self.slot_transformer).flatten(2, 3)  # B T K width
        return _bounded(self.object_head(vectors.mean(1))), _bounded(self.frame_head(vectors.mean(2)))

    def _with_places(self, cells: Float[Tensor, "B T i j W"], transformer: nn.Module) -> Float[Tensor, "B T i j W"]:
        counts, width = cells.shape[1:4], cells.shape[-1]
        cells = cells + sinusoids(tuple(counts), width).to(cells)
        return transformer(cells.flatten(1, 3)).unflatten(1, counts)

    # ---- a video ---------------------------------------------------------------------------------------------------

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> EmptyState:
        """An empty state; the number of slots is fixed by the cells of the grid."""
        check_batch(batch)
        if slots not in (None, self.slots):
            raise BadInput(f"{slots} slots were asked for; this model has {self.slots}, the cells of its grid")
        return EmptyState(self.entry.weight.new_zeros(batch, self.slots, 0))

    def unroll(self, clip: Clip, state: EmptyState | None = None) -> Output:
        """The masks of a clip, decoded from the means of the latents."""
        self._check(clip, state)
        objects, frames = self.encode(clip.frames)
        _, log_masks = self._decode_means(objects, frames)
        return self._output(objects, clip, log_masks)

    def forward(self, clip: Clip, state: EmptyState | None = None, update: int = 0) -> Output:
        """Computes masks of a clip and the reconstruction error of its pixels. In training mode latents are sampled,
        and only half of the frames and some of their pixels are decoded; the masks then belong to these. In evaluation
        mode all pixels are decoded from the means. Losses of the whole clip are repeated for each frame."""
        self._check(clip, state)
        objects, frames = self.encode(clip.frames)
        if self.training:
            target, colours, log_masks = self._decode_some(clip.frames, objects, frames)
        else:
            target, (colours, log_masks) = clip.frames, self._decode_means(objects, frames)
        error = mixture_error(target.flatten(0, 1), colours.flatten(0, 1), log_masks.flatten(0, 1), self.sigma)
        error = error.unflatten(0, target.shape[:2])
        of_clip = {
            "reconstruction": error.mean(1, keepdim=True) / math.prod(target.shape[-2:]),
            "object_kl": unit_divergence(objects).mean(1, keepdim=True),
        }
        losses = {name: loss.expand(clip.frames.shape[:2]) for name, loss in of_clip.items()}
        return self._output(objects, clip, log_masks, {**losses, "frame_kl": unit_divergence(frames)})

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"model": list(self.parameters())}

    # ---- decoding --------------------------------------------------------------------------------------------------

    def _chosen(self, time: int) -> tuple[Int[Tensor, " t"], Int[Tensor, " h"], Int[Tensor, " w"]]:
        """Frames, rows and columns that are decoded in training."""
        which = torch.randperm(time)[: max(1, time // 2)].sort().values
        begins = torch.randint(self.pixel_stride, (2,)).tolist()
        rows, columns = (
            torch.arange(begin, side, self.pixel_stride) for begin, side in zip(begins, self.size, strict=True)
        )
        return which, rows, columns

    def _decode_some(
        self, target: Float[Tensor, "B T 3 H W"], objects: Gaussian, frames: Gaussian
    ) -> tuple[Float[Tensor, "B t 3 h w"], Float[Tensor, "B t K 3 h w"], Float[Tensor, "B t K h w"]]:
        """The target pixels that are decoded in training, and their decoded colours and log-masks from sampled
        latents."""
        which, rows, columns = self._chosen(target.shape[1])
        places = self._places(target.shape[1], rows, columns)[which]
        shape = (len(target), len(which), self.slots, places.shape[1], self.latent_dim)
        colours, logits = self.decoder(
            _drawn(objects, shape, "b k d -> b 1 k 1 d"),
            _drawn(Gaussian(frames.mean[:, which], frames.log_std[:, which]), shape, "b t d -> b t 1 1 d"),
            places,
        )
        size = (len(rows), len(columns))
        log_masks = standardised(logits).unflatten(-1, size)
        return target[:, which][..., rows[:, None], columns], colours.mT.unflatten(-1, size), log_masks

    def _places(self, time: int, rows: Int[Tensor, " h"], columns: Int[Tensor, " w"]) -> Float[Tensor, "T P 3"]:
        """(t, y, x) of each pixel: time from 0 to 1, rows and columns from −1 to 1."""
        t = torch.linspace(0, 1, time)
        y, x = (torch.linspace(-1, 1, side)[which] for side, which in zip(self.size, (rows, columns), strict=True))
        places = torch.stack(torch.meshgrid(t, y, x, indexing="ij"), dim=-1)
        return places.flatten(1, 2).to(self.entry.weight)

    def _decode_means(
        self, objects: Gaussian, frames: Gaussian
    ) -> tuple[Float[Tensor, "B T K 3 H W"], Float[Tensor, "B T K H W"]]:
        """Decodes frame by frame to save memory; the logits are standardised over all frames."""
        every_row, every_column = (torch.arange(side) for side in self.size)
        places = self._places(frames.mean.shape[1], every_row, every_column)
        of_objects = rearrange(objects.mean, "b k d -> b 1 k 1 d")
        decoded = [
            self.decoder(of_objects, rearrange(frames.mean[:, t : t + 1], "b t d -> b t 1 1 d"), places[t : t + 1])
            for t in range(len(places))
        ]
        colours, logits = (torch.cat(parts, dim=1) for parts in zip(*decoded, strict=True))
        return colours.mT.unflatten(-1, self.size), standardised(logits).unflatten(-1, self.size)

    def _output(
        self, objects: Gaussian, clip: Clip, log_masks: Tensor, losses: dict[str, Tensor] | None = None
    ) -> Output:
        slots = objects.mean.unsqueeze(1).expand(-1, clip.frames.shape[1], -1, -1)
        return Output(
            log_masks=log_masks,
            size=self.size,
            enlargement=self.enlargement,
            slots=slots,
            previous_slots=torch.zeros_like(slots),
            state=self.initial_state(len(clip.frames)),
            losses=losses or {},
        )

    def _check(self, clip: Clip, state: EmptyState | None) -> None:
        check_fit(clip.frames, self.size, self.entry.weight)
        expected = (len(clip.frames), self.slots, 0)
        if state is not None and tuple(state.slots.shape) != expected:
            raise BadInput(
                f"the state has the shape {tuple(state.slots.shape)}; expected {expected}: start with "
                f"model.initial_state({len(clip.frames)})"
            )
        if clip.is_first[:, 1:].any():
            raise BadInput(
                "a video begins inside the clip; SIMONe sees a clip as one video: give each video its own clip"
            )


def _bounded(q: Gaussian) -> Gaussian:
    return Gaussian(q.mean, q.log_std.clamp(LEAST_LOG_STD, MOST_LOG_STD))


def _drawn(q: Gaussian, shape: tuple[int, ...], pattern: str) -> Tensor:
    """An independent sample for each frame, object and pixel."""
    mean, std = rearrange(q.mean, pattern), rearrange(q.log_std, pattern).exp()
    return torch.addcmul(mean, std, torch.randn(shape, dtype=mean.dtype, device=mean.device))


def standardised(logits: Float[Tensor, "B T K P"]) -> Float[Tensor, "B T K P"]:
    """Log-masks from logits that are standardised over the whole clip and all slots."""
    return F.layer_norm(logits, logits.shape[1:]).log_softmax(dim=2)


def pooled(cells: Float[Tensor, "B T i j W"], grid: tuple[int, int]) -> Float[Tensor, "B T r c W"]:
    """Sums the map over each cell of the grid and divides by the square root of the number of summands, which keeps the
    variance of independent values."""
    parts = rearrange(cells, "b t (r p) (c q) w -> b t r c (p q) w", r=grid[0], c=grid[1])
    return parts.sum(-2) / math.sqrt(parts.shape[-2])


def sinusoids(counts: tuple[int, ...], width: int) -> Float[Tensor, "*counts width"]:
    """Sinusoidal position code for a grid with one axis per count: sines and cosines of the index along each axis,
    truncated to `width` channels."""
    half = math.ceil(width / (2 * len(counts)))
    frequencies = 10_000 ** (-torch.arange(half) / half)
    codes = []
    for axis, count in enumerate(counts):
        angles = torch.arange(count)[:, None] * frequencies
        code = torch.cat([angles.sin(), angles.cos()], dim=-1)
        shape = [1] * len(counts)
        shape[axis] = count
        codes.append(code.view(*shape, 2 * half).expand(*counts, -1))
    return torch.cat(codes, dim=-1)[..., :width]


if TYPE_CHECKING:

    def _keeps_the_contract(model: SIMONe) -> VideoModel[EmptyState]:
        return model
