"""VONet: unsupervised video object learning (Yu and Xu, ICLR 2024). This file is the paper's figure.

::

    frame x_t ─► backbone ─┬─► attention ─► masks m_t ─┬─► slot encoder ─► y_t ─► trajectory ─► r_t ─► next frame
                           └────────▲──────────────────┘                            ▲          │
    r_{t−1} ─► context ─────────────┘───────────────────────────────────────────────┘          │
    r_{t−1} ─► prior p(z_t) ◄──── KL ────► posterior q(z_t) ◄──────────────────────────────────┘
                                                └─► z_t ─► decoder ─► frame x_t
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vonet.blocks.gaussian import Gaussian
from vonet.blocks.random import draw_noise
from vonet.blocks.time import scan
from vonet.errors import BadInput, check_choice
from vonet.interface import (
    Clip,
    Enlargement,
    ExplainingModel,
    Explanation,
    Output,
    SlotState,
    StepOutput,
    VideoModel,
    check_batch,
    check_fit,
    check_frames,
    check_size,
    check_slot_state,
    check_slots,
)
from vonet.model.attention import AttentionConfig, UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.decoder import CorrectingDecoder, DecoderConfig, TokenDecoderConfig
from vonet.model.sequential_vae import SequentialVAE, SequentialVAEConfig
from vonet.model.slots import (
    Context,
    ContextConfig,
    InitialSlots,
    InitialSlotsConfig,
    PlacesConfig,
    SlotEncoderConfig,
    Trajectory,
    TrajectoryConfig,
)


@dataclass(frozen=True, kw_only=True)
class VONetConfig:
    """VONet, one part for each box of the paper's figure. The defaults are the paper's for MOVi-A.

    Raises:
        BadInput: If size, number of slots or width are not positive.
    """

    size: tuple[int, int] = (128, 128)
    """Height and width of the frames."""
    slots: int = 11
    """K: default number of slots. No parameter depends on it."""
    slot_dim: int = 128
    """D: the width of r, y, z, the context and the noise."""
    signature_dim: int = 0
    """So many of the D numbers of r are the slot's noise and stay the same for the whole video. Not in the paper. They
    tell slots apart that hold no object; without them such slots become equal, and equal slots share the next object
    for as long as it is seen (docs/log/sprites-mot.md)."""
    places: PlacesConfig | None = None
    """If given, the next numbers of r are the slot's place: its last mask's middle and extent, from which the attention
    sees the next frame. Not in the paper. Without it slots follow colours, and confuse objects that have the same one
    (`SlotPlacesConfig`)."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    attention: AttentionConfig = field(default_factory=UNetAttentionConfig)
    initial_slots: InitialSlotsConfig = field(default_factory=InitialSlotsConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    slot_encoder: SlotEncoderConfig = field(default_factory=SlotEncoderConfig)
    trajectory: TrajectoryConfig = field(default_factory=TrajectoryConfig)
    sequential_vae: SequentialVAEConfig = field(default_factory=SequentialVAEConfig)
    decoder: DecoderConfig = field(default_factory=TokenDecoderConfig)
    enlargement: Enlargement = "nearest"
    """How masks reach the frame's size."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))  # a list, as JSON has it, will do
        check_size(self.size)
        check_slots(self.slots)
        if self.slot_dim < 1:
            raise BadInput(f"slot_dim is {self.slot_dim}; it must be 1 or more")
        if self.signature_dim < 0 or self.kept_dim >= self.slot_dim:
            of_place = "" if self.places is None else f" minus the {self.places.numbers} numbers of the place"
            raise BadInput(
                f"signature_dim is {self.signature_dim}; it must be 0 or more and less than slot_dim{of_place}"
            )
        check_choice("enlargement", self.enlargement, Enlargement)

    @property
    def kept_dim(self) -> int:
        """So many numbers of r are not recurrent: the signature and the place."""
        return self.signature_dim + (0 if self.places is None else self.places.numbers)

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of the losses of this model."""
        return self.decoder.losses if self.sequential_vae.prior is None else (*self.decoder.losses, "kl")

    def build(self) -> VONet:
        return VONet(self)


class VONet(nn.Module):
    """The paper's model (figure 3): a step per frame, a scan of it per video.

    The state is a `SlotState`. The losses are those of the decoder ("tokens" and "pixels" with the paper's) and "kl".

    Args:
        config: All sizes and parts.
    """

    def __init__(self, config: VONetConfig):
        super().__init__()
        D, C = config.slot_dim, config.backbone.feature_dim
        self.slots, self.slot_dim = config.slots, D
        self.signature_dim, self.kept_dim = config.signature_dim, config.kept_dim
        self.size, self.enlargement = config.size, config.enlargement
        self.backbone = config.backbone.build(config.size)
        cells = self.backbone.feature_size
        self.places = None if config.places is None else config.places.build(D, cells)
        self.attention = config.attention.build(C, D, cells)
        self.initial_slots = InitialSlots(config.initial_slots, D)
        self.context = Context(config.context, D)
        self.slot_encoder = config.slot_encoder.build(C, D)
        self.trajectory = Trajectory(config.trajectory, D)
        self.sequential_vae = SequentialVAE(config.sequential_vae, D)
        self.decoder = config.decoder.build(D, config.size)
        self.corrects_masks = isinstance(self.decoder, CorrectingDecoder) and self.decoder.corrects_masks
        self.cells = self.size if self.corrects_masks else cells
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # else each convolution copies its weight

    # ---- one frame -------------------------------------------------------------------------------------------------

    def encode_features(
        self, features: Float[Tensor, "B C h w"], slots: Float[Tensor, "B K D"]
    ) -> tuple[Float[Tensor, "B K h w"], Float[Tensor, "B K D"]]:
        """The encoder behind the backbone, which alone needs no state.

        Args:
            features: Features of x_t, `B C h w`.
            slots: r_{t−1}, `B K D`.

        Returns:
            log m_t, `B K h w`, and r_t, `B K D`.
        """
        context = self.context(slots)
        near = None if self.places is None else self.places(context, self._place(slots))
        log_masks = self.attention(features, context, near)
        updated = self.trajectory(self.slot_encoder(features, log_masks), slots)
        place = None if self.places is None else self.places.moved(log_masks, self._place(slots))
        return log_masks, self._kept(updated, signature=slots, place=place)

    def _place(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "B K _"]:
        return slots[..., self.signature_dim : self.kept_dim]

    def _kept(
        self, slots: Float[Tensor, "B K D"], *, signature: Float[Tensor, "B K D"], place: Float[Tensor, "B K _"] | None
    ) -> Float[Tensor, "B K D"]:
        """Slots with the numbers that are not recurrent: those at the beginning of `signature`, and the place."""
        if self.kept_dim == 0:
            return slots
        parts = [signature[..., : self.signature_dim], place, slots[..., self.kept_dim :]]
        return torch.cat([part for part in parts if part is not None], dim=-1)

    def _fresh(self, noise: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        """r_0 of each slot."""
        place = None if self.places is None else self.places.fresh.to(noise).expand(*noise.shape[:2], -1)
        return self._kept(self.initial_slots(noise), signature=noise, place=place)

    def _step(self, frame: Float[Tensor, "B 3 H W"], state: SlotState) -> tuple[StepOutput, SlotState]:
        return self._feature_step((self.backbone(frame), frame), state)

    def _feature_step(self, seen: tuple[Tensor, Tensor], state: SlotState) -> tuple[StepOutput, SlotState]:
        """A step from the features of a frame, and the frame."""
        features, frame = seen
        log_masks, slots = self.encode_features(features, state.slots)
        output = StepOutput(log_masks, self.size, self.enlargement, slots, previous_slots=state.slots)
        if self.corrects_masks and not self.training:
            corrected = self.decoder.corrected(frame, self.posterior(slots).mean, log_masks)
            output = replace(output, log_masks=corrected, log_attention=log_masks)
        return output, replace(state, slots=slots)

    def step(self, frame: Tensor, state: SlotState) -> tuple[StepOutput, SlotState]:
        """One frame in, masks and the next state out: all that streaming needs.

        Args:
            frame: `B 3 H W`, floats in [0, 1], of the model's size.
            state: From `initial_state`, or from the step before.

        Returns:
            Masks and slots of the frame, and the state for the next one. In evaluation mode some decoders correct the
            masks (`CorrectionConfig`); `log_attention` then has those of the attention.

        Raises:
            BadInput: If frame or state do not fit the model.
        """
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        return self._step(frame, state)

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> SlotState:
        """Fresh slots for new videos (paper, equation 5).

        Args:
            batch: Number of videos, B.
            slots: Number of slots, K; by default the model's. Any number works with the same weights.
            generator: Generator of the noise; by default torch's global one.

        Returns:
            r_0 and the noise it was computed from, `B K D` each.

        Raises:
            BadInput: If batch or slots are less than one.
        """
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        noise = draw_noise(batch, count, self.slot_dim, self.slot_encoder.value.weight, generator)
        return SlotState(slots=self._fresh(noise), noise=noise)

    def restart(self, state: SlotState, is_first: Bool[Tensor, " B"]) -> SlotState:
        """Fresh slots, grown from the state's noise, for the elements where a video begins."""
        return _restarted(state, is_first, self._fresh(state.noise))

    # ---- a video ---------------------------------------------------------------------------------------------------

    def unroll(self, clip: Clip, state: SlotState | None = None) -> Output:
        """Masks and slots of a clip: the encoder alone, without VAE and decoder.

        Where gradients are recorded, the backbone sees all frames at once; else one by one, so that memory does not
        grow with the video.

        Args:
            clip: Frames `B T 3 H W`.
            state: Before the first frame; by default fresh slots.

        Returns:
            Masks, slots, and the state after the last frame. Its `losses` are empty.

        Raises:
            BadInput: If clip or state do not fit the model.
        """
        if state is None:
            state = self.initial_state(clip.frames.shape[0])
        self._check_fit(clip.frames, state)
        # The noise stays the same over the clip, and so do the slots that grow from it.
        fresh = self._fresh(state.noise) if clip.is_first.any() else state.slots
        restart = partial(_restarted, fresh=fresh)
        if torch.is_grad_enabled():
            # Time first: then the features of a frame, and their gradients, are one piece of memory.
            features = self.backbone(clip.frames.transpose(0, 1).flatten(0, 1)).chunk(clip.frames.shape[1])
            seen = list(zip(features, clip.frames.unbind(1), strict=True))
            tensors, last = scan(self._feature_step, restart, clip, state, seen)
        else:
            tensors, last = scan(self._step, restart, clip, state)
        return Output(size=self.size, enlargement=self.enlargement, state=last, **tensors)  # type: ignore[arg-type]

    def forward(self, clip: Clip, state: SlotState | None = None, update: int = 0) -> Output:
        """`unroll` with the decoder's losses and the KL divergence (paper, equation 8).

        In training mode latents and tokens are sampled and dropout is on; in evaluation mode the output is
        deterministic.

        Args:
            clip: Frames `B T 3 H W`.
            state: Before the first frame; by default fresh slots.
            update: Number of the gradient update, of which annealed quantities are functions.

        Returns:
            The output of `unroll` with `losses`, a tensor `B T` for each name in the config.
        """
        output = self.unroll(clip, state)
        batch_time = clip.frames.shape[:2]
        posterior = self.posterior(output.slots.flatten(0, 1))
        latents = posterior.sample() if self.training else posterior.mean
        losses = self.decoder(clip.frames.flatten(0, 1), latents, _log_attention(output).flatten(0, 1), update)
        if (part := self.sequential_vae.prior) is not None:
            losses["kl"] = part.divergence(posterior, self.prior(output.previous_slots.flatten(0, 1))).sum(-1)
        return replace(output, losses={name: loss.unflatten(0, batch_time) for name, loss in losses.items()})

    def posterior(self, slots: Float[Tensor, "B K D"]) -> Gaussian:
        """q(z_t | r_t) (paper, equation 6).

        Args:
            slots: r_t, `B K D`.

        Returns:
            The latent of each slot, `B K D`. With `ToldPlacesConfig` its mean contains the place.
        """
        found, told = self.sequential_vae.posterior(slots), self._told(slots)
        return found if told is None else self._with_place(found, told)

    def prior(self, previous_slots: Float[Tensor, "B K D"]) -> Gaussian:
        """p(z_t | r_{t−1}) (paper, equation 7).

        Args:
            previous_slots: r_{t−1}, `B K D`.

        Returns:
            The predicted latent of each slot, `B K D`. With `ToldPlacesConfig` the network predicts how the place
            changes.

        Raises:
            BadInput: If the model has no prior.
        """
        if self.sequential_vae.prior is None:
            raise BadInput("this model has no prior, so it cannot predict latents")
        found, told = self.sequential_vae.prior(previous_slots), self._told(previous_slots)
        return found if told is None else self._with_place(found, told + self._place(found.mean))

    def _told(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "B K _"] | None:
        """What the latents contain of the places; None if they do not contain them."""
        return None if self.places is None else self.places.told(self._place(slots))

    def _with_place(self, latent: Gaussian, place: Float[Tensor, "B K _"]) -> Gaussian:
        return replace(latent, mean=self._kept(latent.mean, signature=latent.mean, place=place))

    # ---- looking inside --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def pictures(self, output: Output, source: str = "posterior") -> Float[Tensor, "B T 3 H W"]:
        """Each frame as the decoder paints it.

        Args:
            output: Output of `unroll`.
            source: "posterior", or "prior", which has not seen the frame. With "prior" a decoder that needs masks gets
                those of the frame before, and uniform ones where a video begins.

        Returns:
            Frames `B T 3 H W`, floats in [0, 1].

        Raises:
            BadInput: If `source` is another word, or "prior" for a model without a prior.
        """
        log_masks = _log_attention(output)
        if source == "posterior":
            latents = self.posterior(output.slots.flatten(0, 1)).mean
        elif source == "prior" and self.sequential_vae.prior is not None:
            latents = self.prior(output.previous_slots.flatten(0, 1)).mean
            even = torch.full_like(log_masks[:, :1], -math.log(log_masks.shape[2]))
            goes_on = (output.previous_slots[:, 1:] == output.slots[:, :-1]).all(-1).all(-1)
            before = torch.where(goes_on[..., None, None, None], log_masks[:, :-1], even)
            log_masks = torch.cat([even, before], dim=1)
        else:
            sources = "posterior" + (", prior" if self.sequential_vae.prior is not None else "")
            raise BadInput(f"no pictures can be made from {source!r}; this model has: {sources}")
        pictures = self.decoder.picture(latents, log_masks.flatten(0, 1))
        return pictures.unflatten(0, output.slots.shape[:2])

    @torch.no_grad()
    def slot_divergence(self, output: Output) -> Float[Tensor, "B T K"]:
        """KL(posterior ‖ prior) of each slot at each frame, divided by D: the paper's KLD curves."""
        if (part := self.sequential_vae.prior) is None:
            raise BadInput("this model has no prior, so its slots have no KL divergence")
        posterior = self.posterior(output.slots.flatten(0, 1))
        divergence = part.divergence(posterior, self.prior(output.previous_slots.flatten(0, 1))) / self.slot_dim
        return divergence.unflatten(0, output.slots.shape[:2])

    def explain(self, output: Output) -> Explanation:
        """Reconstruction, prediction from the prior, and KL divergence; only the first without a prior."""
        if self.sequential_vae.prior is None:
            return Explanation(reconstruction=self.pictures(output, "posterior"))
        posterior, prior = self.pictures(output, "posterior"), self.pictures(output, "prior")
        return Explanation(posterior, prior, self.slot_divergence(output))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The encoder with the VAE, and the groups of the decoder."""
        of_decoder = {id(p) for p in self.decoder.parameters()}
        encoder = [p for p in self.parameters() if id(p) not in of_decoder]
        return {"encoder": encoder, **self.decoder.parameter_groups()}

    def _check_fit(self, frames: Tensor, state: SlotState) -> None:
        check_fit(frames, self.size, self.slot_encoder.value.weight)
        check_slot_state(state, frames.shape[0], self.slot_dim)


def _log_attention(output: Output) -> Float[Tensor, "B T K h w"]:
    """Log-masks of the attention, which are those of the output unless the decoder corrected them."""
    return output.log_masks if output.log_attention is None else output.log_attention


def _restarted(state: SlotState, is_first: Bool[Tensor, " B"], fresh: Float[Tensor, "B K D"]) -> SlotState:
    return replace(state, slots=torch.where(is_first[:, None, None], fresh, state.slots))


if TYPE_CHECKING:

    def _keeps_the_contract(model: VONet) -> VideoModel[SlotState]:
        return model

    def _can_be_looked_into(model: VONet) -> ExplainingModel:
        return model
