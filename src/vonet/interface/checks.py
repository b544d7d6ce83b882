"""Checks of frames, sizes and numbers of slots. Each raises `BadInput` with one sentence.

While torch traces a model (torch.compile, `vonet export`), frames and states are not checked, because a traced graph
has no values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vonet.errors import BadInput


def check_frames(frames: Tensor, dimensions: str) -> None:
    """Refuse frames that no model can read. `dimensions` names them: "B 3 H W" or "B T 3 H W"."""
    if torch.compiler.is_compiling():
        return
    if not isinstance(frames, Tensor):
        raise BadInput(
            f"frames are a {type(frames).__name__}; expected a torch tensor {dimensions}: use torch.from_numpy"
        )
    names = dimensions.split()
    shape = tuple(frames.shape)
    if len(shape) != len(names) or shape[-3] != 3 or 0 in shape:
        raise BadInput(
            f"frames have the shape {shape}; expected {dimensions}, none of them empty and colour (3 channels) third "
            "from last: permute or unsqueeze them"
        )
    if not frames.is_floating_point():
        raise BadInput(f"frames are {frames.dtype}; expected floats in [0, 1]: use frames.float() / 255 for bytes")
    low, high = (bound.item() for bound in frames.detach().aminmax())
    if not (low >= 0 and high <= 1):
        raise BadInput(f"frames have values from {low:g} to {high:g}; expected [0, 1]: rescale them")


MOST_SLOTS, LARGEST_SIDE = 10_000, 10_000
"""More slots, or more pixels in height or width, would take more memory than present machines have."""


def check_slots(slots: int) -> None:
    """Refuse a number of slots that is not a whole number from 1 to `MOST_SLOTS`."""
    if not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
        raise BadInput(f"{slots} slots were asked for; a model needs a whole number of them, 1 to {MOST_SLOTS}")


def check_size(size: tuple[int, int]) -> None:
    """Refuse a height and width that are not two whole numbers from 1 to `LARGEST_SIDE`."""
    if len(size) != 2 or not all(isinstance(side, int) and 1 <= side <= LARGEST_SIDE for side in size):
        raise BadInput(
            f"size is {size}; it must be the height and width of frames, two positive integers up to {LARGEST_SIDE}"
        )


def check_batch(batch: int) -> None:
    """Refuse a state for no videos."""
    if batch < 1:
        raise BadInput(f"a state of {batch} videos was asked for; at least 1 is needed")


def check_fit(frames: Tensor, size: tuple[int, int], weight: Tensor) -> None:
    """Refuse frames of another size, type or device than the model's; `weight` is any of its parameters or buffers."""
    if torch.compiler.is_compiling():
        return
    if tuple(frames.shape[-2:]) != size:
        raise BadInput(
            f"frames are {frames.shape[-2]}x{frames.shape[-1]}; this model was built for "
            f"{size[0]}x{size[1]}: resize the frames, or build the model with their size"
        )
    if frames.dtype != weight.dtype or frames.device != weight.device:
        raise BadInput(
            f"frames are {frames.dtype} on {frames.device}, the model is {weight.dtype} on {weight.device}: "
            "move one to the other with .to(...)"
        )
