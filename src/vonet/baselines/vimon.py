"""ViMON: MONet for videos (Weis et al., "Benchmarking unsupervised object representations for video sequences", 2021).

::

    x_t, s_{k−1}, predicted mask of slot k ─► U-Net ─► share of the scope ─► mask m_{t,k}       one slot after another
    x_t, log m_{t,k} ─► encoder ─► y ─► GRU over time, a state h_k for each slot ─► q(z_{t,k})      all slots at once
    z ─► decoder ─► picture and mask of frame t;     transition(z) ─► the same decoder ─► prediction of frame t + 1

A slot stays on its object because the attention sees the mask that the slot predicted for this frame.

    reconstruction  −log Σ_k m̃_k N(x_t; x̂_k, σ_k²), with the decoder's masks m̃ (and not the attention's, as in MONet)
    prediction      the same of x_{t+1} and its prediction, but not from the first frame, where no motion is known
    kl              Σ_k KL(q(z_{t,k}) ‖ N(0, I)), at every frame: the prior knows nothing of time
    masks           KL(m_t ‖ m̃_t)          next_masks     KL(m_{t+1} ‖ the prediction of m̃_{t+1})

In training, the last frame of a clip is only predicted, never encoded.

Deviations from the authors' code: The model starts from the initialisation that their class defines but never calls
(their released weights show that it was used). The mixture likelihood has no floor of 10⁻⁵; below such a floor
gradients vanish. Logarithms of scopes and masks are clamped to at least −10 before they enter the networks. In
evaluation the mean of z is used instead of a draw. At 128x128 the U-Net has six levels, because theirs fits 64x64 only.
Their own evaluation scores the decoder's masks of the current frame, which is the default of `segments`. VONet's paper
scores the attention's masks of every method except SCALOR, so the experiments on MOVi use those. Exact shortcut:
encoder, GRU and both decoder passes run for all slots at once. Options for short trainings, off by default: latents
that start with little noise, and training as MONet at first (`as_monet`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
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
from vonet.blocks.norm import PlainInstanceNorm
from vonet.blocks.scope import break_stick
from vonet.blocks.time import scan
from vonet.blocks.unet import UNet, UNetConfig
from vonet.errors import BadInput, check_choice
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

GRU_RANGE = 5.0
"""Encodings are divided by this before the GRU and multiplied by it after, so that its tanh is nearly linear."""
SMALLEST_LOG = -10.0
FORGETTING = -3.0
"""Bias of the GRU's update gate for which a twentieth of the previous state remains."""
Segments = Literal["painted", "found"]


@dataclass(frozen=True, kw_only=True)
class ViMONConfig:
    """ViMON with the VONet paper's settings for MOVi-A."""

    size: tuple[int, int] = (128, 128)
    """Height and width of the frames."""
    slots: int = 11
    """Default number of slots; no parameter depends on it."""
    latent_dim: int = 64
    """D: the width of z. Twice this must fit into `hidden`."""
    hidden: int = 128
    """The width of h."""
    unet: UNetConfig = field(default_factory=lambda: UNetConfig(channels=(32,) * 6, bottleneck=(128, 128)))
    encoder: ComponentEncoderConfig = field(default_factory=ComponentEncoderConfig)
    decoder: ComponentDecoderConfig = field(default_factory=ComponentDecoderConfig)
    sigma_first: float = 0.09
    """σ_1: the first slot explains more sharply than the others, so it tends to take the background."""
    sigma: float = 0.11
    """σ of the other slots."""
    segments: Segments = "painted"
    """Which masks are the model's answer: the decoder's ("painted"), which ViMON's authors score, or the attention's
    ("found"), which VONet's paper scores. Training does not depend on it."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of the latents."""
    as_monet: int = 0
    """Number of updates in which the model learns like MONet: each frame on its own, reconstructed with the attention's
    masks, so that the attention learns before the decoder's masks matter. The initial weights are chosen so that
    results do not change when the recurrence starts. Our addition."""

    losses = ("reconstruction", "prediction", "kl", "masks", "next_masks")

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))
        check_size(self.size)
        check_slots(self.slots)
        if 2 * self.latent_dim > self.hidden:
            raise BadInput(
                f"mean and deviation of {self.latent_dim} latents do not fit into a state of {self.hidden} numbers: "
                "make hidden at least twice latent_dim"
            )
        check_choice("segments", self.segments, Segments)
        if min(self.sigma_first, self.sigma) <= 0:
            raise BadInput(f"sigmas are {self.sigma_first} and {self.sigma}; they must be more than 0")

    def build(self) -> ViMON:
        return ViMON(self)


@dataclass(frozen=True)
class ViMONState(State):
    """The memory of ViMON after a frame.

    Attributes:
        hidden: h of each slot.
        forecast: Log-mask that each slot predicts for the next frame; zero (the whole frame) before the first.
    """

    hidden: Float[Tensor, "B K hidden"]
    forecast: Float[Tensor, "B K H W"]


@dataclass(frozen=True, kw_only=True)
class ViMONStep(StepOutput):
    """Masks, with everything that the losses need."""

    attention: Float[Tensor, "B K H W"]
    """log m_t: the attention's masks."""
    painted: Float[Tensor, "B K H W"]
    """log m̃_t: the decoder's masks."""
    mean: Float[Tensor, "B K latent"]
    log_std: Float[Tensor, "B K latent"]
    pictures: Float[Tensor, "B K 3 H W"]
    next_pictures: Float[Tensor, "B K 3 H W"]
    next_log_masks: Float[Tensor, "B K H W"]


class SubsampledUNet(UNet):
    """MONet's U-Net as ViMON uses it: maps are halved by taking every second cell before the convolution, norms have no
    parameters, the last layer has no bias, and the initialisation is torch's default."""

    norm = PlainInstanceNorm
    logits_bias = False

    def __init__(self, config: UNetConfig, inputs: int, size: tuple[int, int]):
        super().__init__(config, inputs, size)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.reset_parameters()

    def _down(self, x: Tensor, convolution: nn.Module, norm: nn.Module) -> Tensor:
        halved = x[:, :, ::2, ::2].contiguous(memory_format=torch.channels_last)
        return F.relu_(norm(convolution(halved)))


class ViMON(nn.Module):
    """MONet's attention, with a recurrent state and a predicted mask for each slot."""

    enlargement: Enlargement = "nearest"

    def __init__(self, config: ViMONConfig):
        super().__init__()
        D = config.latent_dim
        self.size = self.cells = config.size
        self.slots, self.hidden = config.slots, config.hidden
        self.sigma_first, self.sigma = config.sigma_first, config.sigma
        self.segments, self.as_monet = config.segments, config.as_monet
        self.unet = SubsampledUNet(config.unet, 5, config.size)
        self.encoder = ComponentEncoder(config.encoder, 2 * D, config.size)
        self.gru = nn.GRUCell(2 * D, config.hidden)
        self.posterior = nn.Linear(config.hidden, 2 * D)
        self.transition = nn.Linear(D, D)
        self.decoder = ComponentDecoder(config.decoder, D, config.size)
        self._begin_as_running_average()
        with torch.no_grad():
            self.posterior.bias[D:] += 2 * config.initial_log_std
        if config.as_monet:
            self._begin_without_memory()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _begin_as_running_average(self) -> None:
        """Initialises h_t = ½ tanh(y/5) + ½ h_{t−1}, latents equal to their encoding, and a prediction that the next
        frame equals this one."""
        with torch.no_grad():
            for weight in (self.gru.weight_ih, self.gru.weight_hh):
                nn.init.normal_(weight, std=1e-3)
            inputs = self.gru.input_size
            self.gru.weight_ih[2 * self.hidden : 2 * self.hidden + inputs] += torch.eye(inputs)
            for layer in (self.posterior, self.transition):
                nn.init.eye_(layer.weight)
            for bias in (self.gru.bias_ih, self.gru.bias_hh, self.posterior.bias, self.transition.bias):
                nn.init.zeros_(bias)

    @torch.no_grad()
    def _begin_without_memory(self) -> None:
        """Initialises h_t to depend almost only on this frame, and the attention to ignore the predicted masks. So what
        was learned on single frames still holds when the recurrence starts."""
        self.gru.bias_ih[self.hidden : 2 * self.hidden] = FORGETTING
        self.unet.first.weight[:, 4] = 0

    # ---- one frame -------------------------------------------------------------------------------------------------

    def attend(self, frame: Float[Tensor, "B 3 H W"], forecast: Float[Tensor, "B K H W"]) -> Float[Tensor, "B K H W"]:
        """log m_t: one U-Net pass for each slot but the last, which takes the rest whatever it predicted."""
        of_frame, of_slot = self.unet.first.weight.split([3, 2], dim=1)
        shared = F.conv2d(frame, of_frame, padding=1)
        expected = forecast.clamp(min=SMALLEST_LOG)

        def logits(k: int, log_scope: Tensor) -> Tensor:
            slot = torch.stack([log_scope.clamp(min=SMALLEST_LOG), expected[:, k]], dim=1)
            return self.unet.decode(*self.unet.encode(shared + F.conv2d(slot, of_slot, padding=1)))

        return break_stick(logits, frame.new_zeros(len(frame), *self.size), forecast.shape[1])

    def encode(
        self, frame: Float[Tensor, "B 3 H W"], log_masks: Float[Tensor, "B K H W"], hidden: Float[Tensor, "B K hidden"]
    ) -> tuple[Gaussian, Float[Tensor, "B K hidden"]]:
        """q(z_t) and h_t of each slot, computed independently."""
        y = self.encoder(components(frame, log_masks.clamp(min=SMALLEST_LOG)))
        h = self.gru(y / GRU_RANGE, hidden.flatten(0, 1))
        mean, log_variance = self.posterior(GRU_RANGE * h).unflatten(0, hidden.shape[:2]).chunk(2, dim=-1)
        return Gaussian(mean, 0.5 * log_variance), h.unflatten(0, hidden.shape[:2])

    def _step(self, frame: Float[Tensor, "B 3 H W"], state: ViMONState) -> tuple[ViMONStep, ViMONState]:
        attention = self.attend(frame, state.forecast)
        posterior, hidden = self.encode(frame, attention, state.hidden)
        z = posterior.sample() if self.training else posterior.mean
        pictures, logits = self.decoder(torch.cat([z, self.transition(z)]))
        (now, later), (painted, next_log_masks) = pictures.chunk(2), logits.log_softmax(dim=1).chunk(2)
        output = ViMONStep(
            self._answer(attention, painted),
            self.size,
            self.enlargement,
            hidden,
            state.hidden,
            attention=attention,
            painted=painted,
            mean=posterior.mean,
            log_std=posterior.log_std,
            pictures=now,
            next_pictures=later,
            next_log_masks=next_log_masks,
        )
        return output, ViMONState(hidden, next_log_masks)

    def _answer(self, found: Tensor, painted: Tensor) -> Tensor:
        return painted if self.segments == "painted" else found

    def step(self, frame: Tensor, state: ViMONState) -> tuple[StepOutput, ViMONState]:
        """One frame `B 3 H W` in, masks and the next state out."""
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        return self._step(frame, state)

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> ViMONState:
        """The state before the first frame for `batch` videos, with masks predicted to cover everything; any number of
        slots works with the same weights."""
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        zeros = self.transition.weight.new_zeros
        return ViMONState(zeros(batch, count, self.hidden), zeros(batch, count, *self.size))

    def restart(self, state: ViMONState, is_first: Bool[Tensor, " B"]) -> ViMONState:
        keep = ~is_first
        return state.map(lambda x: x * keep.view(-1, *[1] * (x.ndim - 1)))

    # ---- a video ---------------------------------------------------------------------------------------------------

    def unroll(self, clip: Clip, state: ViMONState | None = None) -> Output:
        """Watch a clip."""
        return self._watch(clip, state)[0]

    def _watch(self, clip: Clip, state: ViMONState | None) -> tuple[Output, dict[str, Tensor]]:
        if state is None:
            state = self.initial_state(len(clip.frames))
        self._check_fit(clip.frames, state)
        tensors, last = scan(self._step, self.restart, clip, state)
        shared = {name: tensors.pop(name) for name in ("log_masks", "slots", "previous_slots")}
        output = Output(size=self.size, enlargement=self.enlargement, state=last, **shared)  # type: ignore[arg-type]
        return output, tensors

    def forward(self, clip: Clip, state: ViMONState | None = None, update: int = 0) -> Output:
        """Encodes all frames of a clip but the last, and computes the losses of reconstructing them and predicting the
        next ones. In training mode latents are sampled."""
        if clip.frames.shape[1] < 2:
            raise BadInput("a clip of one frame has no next frame to predict; give ViMON clips of two frames or more")
        if update < self.as_monet:
            return self._learn_alone(clip, state)
        output, found = self._watch(Clip(clip.frames[:, :-1], clip.is_first[:, :-1]), state)
        batch_time = output.log_masks.shape[:2]
        sigmas = first_and_others(self.sigma_first, self.sigma, output.log_masks.flatten(0, 1))

        def error(frames: Tensor, pictures: Tensor, log_masks: Tensor) -> Tensor:
            flat = mixture_error(frames.flatten(0, 1), pictures.flatten(0, 1), log_masks.flatten(0, 1), sigmas)
            return flat.unflatten(0, frames.shape[:2])

        def divergence(log_masks: Tensor, log_painted: Tensor) -> Tensor:
            flat = mask_divergence(log_masks.flatten(0, 1), log_painted.flatten(0, 1))
            return flat.unflatten(0, log_masks.shape[:2])

        forecast = found["next_log_masks"]
        # A forecast into another video, or from the first frame of one, does not count.
        fair = ~(clip.is_first[:, 2:] | clip.is_first[:, 1:-1])
        predicted = error(clip.frames[:, 2:], found["next_pictures"][:, 1:], forecast[:, 1:]) * fair
        next_masks = divergence(found["attention"][:, 2:], forecast[:, 1:-1]) * fair[:, :-1]
        losses = {
            "reconstruction": error(clip.frames[:, :-1], found["pictures"], found["painted"]),
            "prediction": _spread(predicted, batch_time[1]),
            "kl": unit_divergence(Gaussian(found["mean"], found["log_std"])).sum(-1),
            "masks": divergence(found["attention"], found["painted"]),
            "next_masks": _spread(next_masks, batch_time[1]),
        }
        return replace(output, losses=losses)

    def _learn_alone(self, clip: Clip, state: ViMONState | None) -> Output:
        """MONet's losses for each frame, the last one included, without memory and without prediction. Only the number
        of slots of the state is used."""
        frames, batch_time = clip.frames.flatten(0, 1), clip.frames.shape[:2]
        state = self.initial_state(len(clip.frames)) if state is None else state
        self._check_fit(clip.frames, state)
        unseen = self.initial_state(len(frames), slots=state.hidden.shape[1])
        attention = self.attend(frames, unseen.forecast)
        posterior, hidden = self.encode(frames, attention, unseen.hidden)
        pictures, logits = self.decoder(posterior.sample() if self.training else posterior.mean)
        painted = logits.log_softmax(dim=1)
        sigmas = first_and_others(self.sigma_first, self.sigma, attention)
        nothing = frames.new_zeros(len(frames))
        losses = {
            "reconstruction": mixture_error(frames, pictures, attention, sigmas),
            "prediction": nothing,
            "kl": unit_divergence(posterior).sum(-1),
            "masks": mask_divergence(attention, painted),
            "next_masks": nothing,
        }
        slots = hidden.unflatten(0, batch_time)
        return Output(
            self._answer(attention, painted).unflatten(0, batch_time),
            self.size,
            self.enlargement,
            slots,
            torch.zeros_like(slots),
            state,
            losses={name: loss.unflatten(0, batch_time) for name, loss in losses.items()},
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"model": list(self.parameters())}

    def _check_fit(self, frames: Tensor, state: ViMONState) -> None:
        check_fit(frames, self.size, self.transition.weight)
        batch, slots, _ = state.hidden.shape
        if batch != len(frames) or slots < 1 or tuple(state.forecast.shape) != (batch, slots, *self.size):
            raise BadInput(
                f"the state has shapes {tuple(state.hidden.shape)} and {tuple(state.forecast.shape)}; expected "
                f"{len(frames)} videos, at least 1 slot and masks of {self.size[0]}x{self.size[1]}: start with "
                f"model.initial_state({len(frames)})"
            )


def _spread(terms: Float[Tensor, "B _"], time: int) -> Float[Tensor, "B T"]:
    """Pads the terms of some frames with zeros to T frames and scales them, so that their mean over T is their sum
    divided by T − 1, the authors' normaliser. The first frame never has a term; the last may lack one."""
    scale = time / max(time - 1, 1)
    return F.pad(terms * scale, (1, time - 1 - terms.shape[1])) if time > 1 else terms.new_zeros(len(terms), 1)


if TYPE_CHECKING:

    def _keeps_the_contract(model: ViMON) -> VideoModel[ViMONState]:
        return model
