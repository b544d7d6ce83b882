"""Parts that stay in float32 under autocast to bfloat16 (torch.autocast).

Convolutions and large products gain from bfloat16. Norms, softmaxes, KL divergences and losses need float32, and on
CPUs all other operations are faster in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def halved(x: Tensor) -> bool:
    """Whether products of this tensor are computed in bfloat16."""
    return torch.is_autocast_enabled(x.device.type)


def in_float32(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a module's forward pass so that it is never computed in bfloat16; bfloat16 inputs are converted."""

    @wraps(forward)
    def whole(self: Any, first: Tensor, *others: Any) -> Any:
        if not halved(first):
            return forward(self, first, *others)
        with torch.autocast(first.device.type, enabled=False):
            return forward(self, *(_whole(given) for given in (first, *others)))

    return whole


def _whole(given: Any) -> Any:
    return given.float() if isinstance(given, Tensor) and given.dtype == torch.bfloat16 else given
