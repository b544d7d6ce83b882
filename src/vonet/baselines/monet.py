"""MONet: unsupervised scene decomposition and representation (Burgess et al., 2019), as VONet's paper uses it.

::

    frame x ──┬─► U-Net ─► takes a share of the scope s_{k−1} ─► mask m_k, scope s_k     K − 1 times, one after another
              │       ▲──────────── s_{k−1} ◄─────────────────────────────┘
              └─► encoder(x, m_k) ─► q(z_k) ─► decoder ─► picture x̂_k and painted mask m̃_k        all slots at once

    loss = −Σ log Σ_k m_k N(x; x̂_k, σ_k²)  +  β Σ_k KL(q(z_k) ‖ N(0, I))  +  γ Σ KL(m ‖ m̃)

Each frame is processed on its own, without memory. So a slot holds the same object in two frames only by chance.

Deviations. Deviations from the paper: the U-Net is VONet's, as in the MONet of VONet's paper. Scope and masks enter the
networks as probabilities, because their logarithms grow without bound. β = 1 and γ = 2 are from VONet's paper, which
does not give σ, the width of the latents or the optimiser; here they are 0.09 and 0.11 (MONet's), 64, and Adam. Exact
shortcut: The first convolution of the frame's channels is computed once and shared by all slots.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.broadcast import mask_divergence, mixture_error
from vonet.blocks.component import (
    ComponentDecoder,
    ComponentDecoderConfig,
    ComponentEncoder,
    ComponentEncoderConfig,
    components,
    first_and_others,
)
from vonet.blocks.gaussian import Gaussian, unit_divergence
from vonet.blocks.scope import break_stick
from vonet.blocks.unet import UNet, UNetConfig
from vonet.errors import BadInput
from vonet.interface import (
    Clip,
    EmptyState,
    Enlargement,
    Output,
    StepOutput,
    VideoModel,
    check_batch,
    check_fit,
    check_frames,
    check_size,
    check_slots,
)


@dataclass(frozen=True, kw_only=True)
class MONetConfig:
    """MONet with the VONet paper's settings for MOVi."""

    size: tuple[int, int] = (128, 128)
    """Height and width of the frames."""
    slots: int = 11
    """Default number of slots; no parameter depends on it."""
    latent_dim: int = 64
    """D: the width of z."""
    unet: UNetConfig = field(default_factory=lambda: UNetConfig(channels=(32, 64, 64, 128, 128, 128)))
    encoder: ComponentEncoderConfig = field(default_factory=ComponentEncoderConfig)
    decoder: ComponentDecoderConfig = field(default_factory=ComponentDecoderConfig)
    sigma_first: float = 0.09
    """σ_1: the first slot explains more sharply than the others, so it tends to take the background."""
    sigma: float = 0.11
    """σ of the other slots."""
    initial_log_std: float = 0.0
    """Approximate initial log standard deviation of the latents."""

    losses = ("reconstruction", "kl", "masks")

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        check_size(self.size)
        check_slots(self.slots)
        if min(self.sigma_first, self.sigma) <= 0:
            raise BadInput(f"sigmas are {self.sigma_first} and {self.sigma}; they must be more than 0")

    def build(self) -> MONet:
        return MONet(self)


class MONet(nn.Module):
    """Computes masks, latents and pictures of each frame independently. The state is empty."""

    enlargement: Enlargement = "nearest"

    def __init__(self, config: MONetConfig):
        super().__init__()
        self.size = self.cells = config.size
        self.slots, self.latent_dim = config.slots, config.latent_dim
        self.sigma_first, self.sigma = config.sigma_first, config.sigma
        self.unet = UNet(config.unet, 4, config.size)
        self.encoder = ComponentEncoder(config.encoder, 2 * config.latent_dim, config.size)
        self.decoder = ComponentDecoder(config.decoder, config.latent_dim, config.size)
        with torch.no_grad():
            self.encoder[-1].bias[config.latent_dim :] += config.initial_log_std  # type: ignore[index, operator]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    # ---- one frame -------------------------------------------------------------------------------------------------

    def attend(self, frames: Float[Tensor, "B 3 H W"], slots: int) -> Float[Tensor, "B K H W"]:
        """The masks: a U-Net pass for each slot but the last."""
        of_frame, of_scope = self.unet.first.weight.split([3, 1], dim=1)
        shared = F.conv2d(frames, of_frame, padding=1)

        def logits(k: int, log_scope: Tensor) -> Tensor:
            scope = log_scope.exp().unsqueeze(1)
            return self.unet.decode(*self.unet.encode(shared + F.conv2d(scope, of_scope, padding=1)))

        return break_stick(logits, frames.new_zeros(len(frames), *self.size), slots)

    def encode(self, frames: Float[Tensor, "B 3 H W"], log_masks: Float[Tensor, "B K H W"]) -> Gaussian:
        """q(z) of each slot, computed independently."""
        parameters = self.encoder(components(frames, log_masks.exp()))
        return Gaussian(*parameters.unflatten(0, log_masks.shape[:2]).chunk(2, dim=-1))

    def step(self, frame: Tensor, state: EmptyState) -> tuple[StepOutput, EmptyState]:
        """Processes one frame `B 3 H W`; the state does not change."""
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        log_masks = self.attend(frame, state.slots.shape[1])
        slots = self.encode(frame, log_masks).mean
        return StepOutput(log_masks, self.size, self.enlargement, slots, torch.zeros_like(slots)), state

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> EmptyState:
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        return EmptyState(next(self.parameters()).new_zeros(batch, count, 0))

    # ---- a video ---------------------------------------------------------------------------------------------------

    def unroll(self, clip: Clip, state: EmptyState | None = None) -> Output:
        return self._watch(clip, state)[0]

    def _watch(self, clip: Clip, state: EmptyState | None) -> tuple[Output, Gaussian]:
        """Processes all frames at once, because they are independent."""
        batch_time = clip.frames.shape[:2]
        state = self.initial_state(batch_time[0]) if state is None else state
        self._check_fit(clip.frames, state)
        frames = clip.frames.flatten(0, 1)
        log_masks = self.attend(frames, state.slots.shape[1])
        posterior = self.encode(frames, log_masks)
        slots = posterior.mean.unflatten(0, batch_time)
        masks = log_masks.unflatten(0, batch_time)
        return Output(masks, self.size, self.enlargement, slots, torch.zeros_like(slots), state), posterior

    def forward(self, clip: Clip, state: EmptyState | None = None, update: int = 0) -> Output:
        """Computes masks and losses of a clip. In training mode latents are sampled."""
        output, posterior = self._watch(clip, state)
        batch_time = clip.frames.shape[:2]
        log_masks = output.log_masks.flatten(0, 1)
        pictures, logits = self.decoder(posterior.sample() if self.training else posterior.mean)
        sigmas = first_and_others(self.sigma_first, self.sigma, log_masks)
        losses = {
            "reconstruction": mixture_error(clip.frames.flatten(0, 1), pictures, log_masks, sigmas),
            "kl": unit_divergence(posterior).sum(-1),
            "masks": mask_divergence(log_masks, logits.log_softmax(dim=1)),
        }
        return replace(output, losses={name: loss.unflatten(0, batch_time) for name, loss in losses.items()})

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"model": list(self.parameters())}

    def _check_fit(self, frames: Tensor, state: EmptyState) -> None:
        check_fit(frames, self.size, self.unet.first.weight)
        if len(state.slots) != len(frames) or state.slots.shape[1] < 1:
            raise BadInput(
                f"the state is of {len(state.slots)} videos with {state.slots.shape[1]} slots; expected {len(frames)} "
                f"videos: start with model.initial_state({len(frames)})"
            )


if TYPE_CHECKING:

    def _keeps_the_contract(model: MONet) -> VideoModel[EmptyState]:
        return model
