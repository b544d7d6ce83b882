"""The recurrence of SAVi and STEVE: each frame corrects the slots, and a predictor prepares them for the next.

::

    p_0 = fresh(ε);   for each frame t:   c_t = Correct(p_{t−1}, x_t)      slot attention
                                          p_t = Predict(c_t)               slots among themselves; the state

The decoder reads c; the state holds p. The frames' vectors do not depend on the slots, so they are computed for all
frames of a clip at once; only slot attention and prediction run frame by frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vonet.blocks.frame_vectors import FrameVectors
from vonet.blocks.random import draw_noise
from vonet.blocks.slot_attention import SlotAttention
from vonet.blocks.time import scan
from vonet.interface import (
    Clip,
    Enlargement,
    Output,
    SlotState,
    StepOutput,
    check_batch,
    check_fit,
    check_frames,
    check_slot_state,
    check_slots,
)


@dataclass(frozen=True)
class Corrected:
    """Output of the recurrence for one frame, or with a time dimension for a clip."""

    slots: Float[Tensor, "B *T K D"]
    previous_slots: Float[Tensor, "B *T K D"]
    log_attention: Float[Tensor, "B *T K cells"]


class RecurrentSlots(nn.Module):
    """The common part of both models; subclasses add initial slots (`fresh`), masks (`log_masks`) and losses."""

    def __init__(
        self,
        size: tuple[int, int],
        slots: int,
        slot_dim: int,
        enlargement: Enlargement,
        vectors: FrameVectors,
        attention: SlotAttention,
        predictor: nn.Module,
    ):
        super().__init__()
        self.size, self.slots, self.slot_dim, self.enlargement = size, slots, slot_dim, enlargement
        self.vectors, self.attention, self.predictor = vectors, attention, predictor

    def fresh(self, noise: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        """Initial slots, before the first frame."""
        raise NotImplementedError

    def log_masks(
        self, slots: Float[Tensor, "B K D"], log_attention: Float[Tensor, "B K cells"]
    ) -> Float[Tensor, "B K h w"]:
        """The masks of one frame, from its corrected slots or from their attention."""
        raise NotImplementedError

    # ---- one frame -------------------------------------------------------------------------------------------------

    def _look(self, frames: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N cells F"]:
        return self.attention.prepare(self.vectors(frames))

    def _correct(self, prepared: Float[Tensor, "B cells F"], state: SlotState) -> tuple[Corrected, SlotState]:
        slots, log_attention = self.attention(prepared, state.slots)
        return Corrected(slots, state.slots, log_attention), replace(state, slots=self.predictor(slots))

    def step(self, frame: Tensor, state: SlotState) -> tuple[StepOutput, SlotState]:
        """One frame `B 3 H W` in, masks and the next state out."""
        check_frames(frame, "B 3 H W")
        self._check_fit(frame, state)
        seen, after = self._correct(self._look(frame), state)
        log_masks = self.log_masks(seen.slots, seen.log_attention)
        return StepOutput(log_masks, self.size, self.enlargement, seen.slots, seen.previous_slots), after

    def initial_state(
        self, batch: int, slots: int | None = None, generator: torch.Generator | None = None
    ) -> SlotState:
        """Fresh slots for `batch` videos; any number of slots works with the same weights."""
        count = self.slots if slots is None else slots
        check_slots(count)
        check_batch(batch)
        noise = draw_noise(batch, count, self.slot_dim, self.attention.query.weight, generator)
        return SlotState(slots=self.fresh(noise), noise=noise)

    def restart(self, state: SlotState, is_first: Bool[Tensor, " B"]) -> SlotState:
        """Replaces slots by fresh ones, from the state's noise, where a video begins."""
        return replace(state, slots=torch.where(is_first[:, None, None], self.fresh(state.noise), state.slots))

    # ---- a video ---------------------------------------------------------------------------------------------------

    def watch(self, clip: Clip, state: SlotState | None) -> tuple[Corrected, SlotState]:
        """The recurrence over a clip, without masks."""
        if state is None:
            state = self.initial_state(len(clip.frames))
        self._check_fit(clip.frames, state)
        prepared = self._look(clip.frames.flatten(0, 1)).unflatten(0, clip.frames.shape[:2])
        tensors, last = scan(self._correct, self.restart, clip, state, prepared.unbind(1))
        return Corrected(**tensors), last

    def unroll(self, clip: Clip, state: SlotState | None = None) -> Output:
        """Masks and slots of a clip. Masks are computed frame by frame, to save memory."""
        seen, last = self.watch(clip, state)
        frames = zip(seen.slots.unbind(1), seen.log_attention.unbind(1), strict=True)
        log_masks = torch.stack([self.log_masks(slots, log_attention) for slots, log_attention in frames], dim=1)
        return self._output(seen, log_masks, last)

    def _output(self, seen: Corrected, log_masks: Float[Tensor, "B T K h w"], last: SlotState) -> Output:
        return Output(log_masks, self.size, self.enlargement, seen.slots, seen.previous_slots, last)

    def _check_fit(self, frames: Tensor, state: SlotState) -> None:
        check_fit(frames, self.size, self.attention.query.weight)
        check_slot_state(state, frames.shape[0], self.slot_dim)
