"""A video is a scan of the step over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from vonet.interface import Clip, StateT


def scan(
    step: Callable[[Any, StateT], tuple[Any, StateT]],
    restart: Callable[[StateT, Tensor], StateT],
    clip: Clip,
    state: StateT,
    seen: Sequence[Any] | None = None,
) -> tuple[dict[str, Tensor], StateT]:
    """Apply `step` to each frame in order, after `restart` where a video begins. `seen`: Inputs of the step in place of
    the frames, if they do not depend on the state and were computed for all frames at once.

    Returns the tensors of the step's outputs stacked over time, by name, and the state after the last frame.
    """
    each: Sequence[Any] = clip.frames.unbind(1) if seen is None else seen
    begins = clip.is_first.any(dim=0).tolist()
    outputs = []
    for t, some_video_begins in enumerate(begins):
        if some_video_begins:
            state = restart(state, clip.is_first[:, t])
        output, state = step(each[t], state)
        outputs.append(output)
    tensors = [f.name for f in fields(outputs[0]) if isinstance(getattr(outputs[0], f.name), Tensor)]
    return {name: torch.stack([getattr(o, name) for o in outputs], dim=1) for name in tensors}, state
