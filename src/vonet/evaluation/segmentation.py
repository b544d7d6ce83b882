"""From soft masks to ids (paper, appendix, "Segmentation mask")."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer
from torch import Tensor

from vonet.evaluation.protocol import NULL
from vonet.interface import Enlargement, enlarge


def winners(
    log_masks: Float[Tensor, "*any K h w"], size: tuple[int, int], how: Enlargement, sure_above: float | None
) -> Integer[np.ndarray, "*any H W"]:
    """The best slot of each pixel plus one; `NULL` where it is not surer than `sure_above`."""
    best, slot = enlarge(log_masks, size, how).max(dim=-3)
    ids = slot + 1
    if sure_above is not None:
        ids = torch.where(best > np.log(sure_above), ids, NULL)
    return ids.cpu().numpy()


def segments(
    log_masks: Float[Tensor, "K h w"],
    labels: Int[Tensor, "H W"] | None,
    size: tuple[int, int],
    how: Enlargement,
    sure_above: float | None,
) -> Integer[np.ndarray, "_ _"]:
    """The ids of a frame: the model's own labels where it has a rule of its own, else the `winners`."""
    if labels is None:
        return winners(log_masks, size, how, sure_above)
    return labelled(labels[None], size)[0]


def labelled(labels: Int[Tensor, "T h w"], size: tuple[int, int]) -> Integer[np.ndarray, "T H W"]:
    """A model's own labels, at another size."""
    return F.interpolate(labels[:, None].double(), size=size, mode="nearest")[:, 0].long().cpu().numpy()


def perfect_masks(ids: Integer[np.ndarray, "T H W"], size: tuple[int, int]) -> Float[Tensor, "T n h w"]:
    """The log-masks of a model that knows the true ids but has only cells of this size: in each cell the share of every
    id."""
    numbers = torch.from_numpy(np.unique(ids, return_inverse=True)[1].reshape(ids.shape))
    shares = F.interpolate(F.one_hot(numbers).permute(0, 3, 1, 2).float(), size=size, mode="area")
    return shares.clamp(min=1e-6).log().log_softmax(dim=1)
