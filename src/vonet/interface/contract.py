"""Inputs and outputs of models: clips, states, outputs, and the protocols that models implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.errors import BadInput
from vonet.interface.checks import check_frames
from vonet.interface.segmentation import Enlargement, enlarge


@dataclass(frozen=True)
class Clip:
    """Some consecutive frames of B videos.

    Args:
        frames: `B T 3 H W`, floats in [0, 1].
        is_first: `B T`, booleans. True where a new video begins: there the previous state is discarded and fresh slots
            are used. By default no video begins inside the clip, and the clip continues from the given state.

    Raises:
        BadInput: If shape, type, values or device are not as described.
    """

    frames: Tensor  # B T 3 H W, floats in [0, 1]
    is_first: Tensor = None  # type: ignore[assignment]  # B T, booleans; made below when not given

    def __post_init__(self) -> None:
        check_frames(self.frames, "B T 3 H W")
        shape = self.frames.shape[:2]
        if self.is_first is None:
            object.__setattr__(self, "is_first", torch.zeros(shape, dtype=torch.bool, device=self.frames.device))
        first = self.is_first
        if not isinstance(first, Tensor) or first.shape != shape or first.dtype != torch.bool:
            given = f"{first.dtype} of shape {tuple(first.shape)}" if isinstance(first, Tensor) else f"{first!r}"
            raise BadInput(f"is_first is {given}; expected a tensor of one boolean per frame: {tuple(shape)}")
        if first.device != self.frames.device:
            raise BadInput(
                f"is_first is on {first.device} and the frames on {self.frames.device}: move one to the other"
            )


class State:
    """A model's memory between frames: a frozen dataclass of tensors, batch first.

    `drawn` names the fields that are noise. Replay does not store them and draws them again.
    """

    drawn: ClassVar[tuple[str, ...]] = ()

    def map(self: StateT, function: Callable[[Tensor], Tensor]) -> StateT:
        """The state with a function applied to each of its tensors."""
        return replace(self, **{f.name: function(getattr(self, f.name)) for f in fields(self)})  # type: ignore

    def detach(self: StateT) -> StateT:
        """The state without gradients."""
        return self.map(Tensor.detach)


StateT = TypeVar("StateT", bound=State)


def joined_states(states: Sequence[StateT]) -> StateT:
    """Joins the states of several videos into one."""
    first = states[0]
    return replace(first, **{f.name: torch.cat([getattr(s, f.name) for s in states]) for f in fields(first)})  # type: ignore


@dataclass(frozen=True)
class SlotState(State):
    """The state of a model with slots.

    Attributes:
        slots: The trajectory latents r after the last frame, `B K D`.
        noise: The unit Gaussian ε from which fresh slots are computed where a video begins, `B K D`. It is part of the
            state so that a scan is a pure function. `initial_state` draws new noise for new videos.
    """

    drawn: ClassVar[tuple[str, ...]] = ("noise",)
    slots: Float[Tensor, "B K D"]
    noise: Float[Tensor, "B K D"]


def check_slot_state(state: SlotState, batch: int, slot_dim: int) -> None:
    """Refuse a state with another number of videos or another slot width."""
    if torch.compiler.is_compiling():
        return
    videos, slots, width = state.slots.shape
    if videos != batch or width != slot_dim or slots < 1 or state.noise.shape != state.slots.shape:
        raise BadInput(
            f"the state has slots of shape {tuple(state.slots.shape)} and noise of {tuple(state.noise.shape)}; "
            f"expected both to be {batch} videos x at least 1 slot x {slot_dim}: start with "
            f"model.initial_state({batch})"
        )


@dataclass(frozen=True)
class EmptyState(State):
    """The state of a model without memory. Its shape gives the batch size and the number of slots."""

    slots: Float[Tensor, "B K 0"]


@dataclass(frozen=True)
class Segmentation:
    """Masks at the size of the features, and on access at the frame's size."""

    log_masks: Float[Tensor, "B *T K h w"]
    size: tuple[int, int]
    enlargement: Enlargement

    @property
    def masks(self) -> Float[Tensor, "B *T K H W"]:
        """Soft masks at the frame's size; they sum to one over K."""
        return enlarge(self.log_masks, self.size, self.enlargement).exp()


@dataclass(frozen=True)
class StepOutput(Segmentation):
    """The output for one frame.

    Attributes:
        log_masks: Log-masks, `B K h w`; `masks` has the frame's size.
        slots: The latents of the slots after the frame, `B K D`.
        previous_slots: The latents before the frame (zeros for a model without memory), `B K D`.
        labels: The segment of each pixel, from 1 on, `B H W`, for a model with its own assignment rule. For other
            models a pixel belongs to its most probable slot.
        log_attention: Log-masks with which the slots read the frame, `B K rows columns`, if they are not `log_masks`.
    """

    slots: Float[Tensor, "B K D"]
    previous_slots: Float[Tensor, "B K D"]
    labels: Int[Tensor, "B H W"] | None = None
    log_attention: Float[Tensor, "B K rows columns"] | None = None


@dataclass(frozen=True)
class Output(Segmentation):
    """The output for a clip: each field of `StepOutput` with a time dimension, and the state after the last frame.

    `losses` is filled when the model is called, and empty after `unroll`.
    """

    slots: Float[Tensor, "B T K D"]
    previous_slots: Float[Tensor, "B T K D"]
    state: State
    labels: Int[Tensor, "B T H W"] | None = None
    log_attention: Float[Tensor, "B T K rows columns"] | None = None
    losses: dict[str, Float[Tensor, "B T"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Pictures and curves that explain a model's output for a clip; None for those that the model does not offer.

    Attributes:
        reconstruction: Each frame, decoded from the posterior, `B T 3 H W`.
        prior_reconstruction: Each frame, decoded from the prior, which has not seen it, `B T 3 H W`.
        divergence: KL(posterior ‖ prior) of each slot, per dimension of the slot, `B T K` (the paper's KLD curves).
    """

    reconstruction: Float[Tensor, "B T 3 H W"] | None = None
    prior_reconstruction: Float[Tensor, "B T 3 H W"] | None = None
    divergence: Float[Tensor, "B T K"] | None = None


@runtime_checkable
class ModelConfig(Protocol):
    """The protocol of a model's description (config)."""

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of the model's losses."""

    def build(self) -> Any:
        """The model (a `VideoModel`), with fresh parameters."""


@runtime_checkable
class StreamingModel(Protocol[StateT]):
    """A model that processes a video frame by frame. A model without `step` needs the whole clip and implements only
    `VideoModel`."""

    def initial_state(self, batch: int, slots: int | None = None, generator: torch.Generator | None = None) -> StateT:
        """Fresh slots for new videos.

        Args:
            batch: Number of videos, B.
            slots: Number of slots, K; by default the model's. Any number works with the same weights.
            generator: Generator of the noise; by default torch's global one.
        """

    def step(self, frame: Tensor, state: StateT) -> tuple[StepOutput, StateT]:
        """One frame: masks and the next state.

        Args:
            frame: `B 3 H W`, floats in [0, 1].
            state: State before the frame.
        """


@runtime_checkable
class VideoModel(Protocol[StateT]):
    """The protocol of every model, streaming or not."""

    size: tuple[int, int]
    """Height and width of the frames, in pixels."""
    cells: tuple[int, int]
    """Height and width of the masks, which may be smaller."""
    slots: int
    enlargement: Enlargement

    def initial_state(self, batch: int, slots: int | None = None, generator: torch.Generator | None = None) -> StateT:
        """As for a streaming model; `EmptyState` for a model without memory."""

    def unroll(self, clip: Clip, state: StateT | None = None) -> Output:
        """Masks and slots of a clip, without losses.

        Args:
            clip: Frames `B T 3 H W`.
            state: State before the first frame; by default from `initial_state`.
        """

    def __call__(self, clip: Clip, state: StateT | None = None, update: int = 0) -> Output:
        """`unroll` with losses, a tensor `B T` for each name.

        Args:
            clip: Frames `B T 3 H W`.
            state: State before the first frame; by default from `initial_state`.
            update: Number of the gradient update; annealed quantities are pure functions of it.
        """

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter exactly once, by the name of its group in the optimiser's configuration."""


@runtime_checkable
class ExplainingModel(Protocol):
    """Optional protocol for reports and figures, which show fewer panels for a model without it."""

    def explain(self, output: Output) -> Explanation:
        """Pictures and curves for the output of `unroll`."""


@runtime_checkable
class Vocabulary(Protocol):
    """A part of a model that turns frames into tokens. Training monitors how many different tokens are in use, because
    a vocabulary can collapse."""

    @property
    def vocabulary(self) -> int:
        """V: the number of different tokens."""

    def kinds_in_use(self, frames: Float[Tensor, "B 3 H W"]) -> int:
        """Number of different tokens in these frames."""


def total(losses: Mapping[str, Float[Tensor, "B T"]], weights: Mapping[str, float]) -> Float[Tensor, ""]:
    """The loss of an update: the weighted sum of the mean losses (paper, equation 8).

    Args:
        losses: A tensor `B T` for each name.
        weights: A number for each of the same names.

    Returns:
        A scalar with gradients.

    Raises:
        BadInput: If the names of losses and weights differ.
    """
    if losses.keys() != weights.keys():
        raise BadInput(
            f"the model has the losses {sorted(losses)} but the weights name {sorted(weights)}: "
            "they must be the same names"
        )
    return torch.stack([weights[name] * loss.mean() for name, loss in losses.items()]).sum()


def device_of(model: nn.Module) -> torch.device:
    """The model's device: that of its parameters or, without parameters, of its buffers."""
    return next(chain(model.parameters(), model.buffers()), torch.empty(0)).device
