"""Stick-breaking masks (MONet): each slot takes a share of its *scope*, which earlier slots have left; the last takes
the rest. Computed in logarithms, so that no logarithm of zero occurs and the masks sum to one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Attend = Callable[[int, Float[Tensor, "B H W"]], Float[Tensor, "B H W"]]
"""Maps the number of a slot and the logarithm of its scope to the logits of the share that it takes."""


def break_stick(attend: Attend, whole: Float[Tensor, "B H W"], slots: int) -> Float[Tensor, "B K H W"]:
    """Log-masks, slot after slot. `whole` is the logarithm of the first scope: zero at all positions.

    log m_k = log s_{k−1} + log σ(a_k),  log s_k = log s_{k−1} + log σ(−a_k),  log m_K = log s_{K−1}.
    """
    log_scope, log_masks = whole, []
    for k in range(slots - 1):
        logits = attend(k, log_scope)
        log_masks.append(log_scope + F.logsigmoid(logits))
        log_scope = log_scope + F.logsigmoid(-logits)
    return torch.stack([*log_masks, log_scope], dim=1)
