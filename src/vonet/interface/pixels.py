"""Converts the bytes of frames to the floats that models take."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor


def frames_tensor(
    pixels: UInt8[np.ndarray, "*any H W 3"], device: torch.device | str = "cpu"
) -> Float[Tensor, "*any 3 H W"]:
    """Bytes 0 to 255 as floats 0 to 1, channels before height and width, on `device`."""
    bytes_ = torch.from_numpy(np.ascontiguousarray(pixels)).to(device, non_blocking=True)
    return bytes_.movedim(-1, -3).float().div_(255)
