"""Converts soft masks to ids for evaluation, figures and serving (paper, appendix, "Segmentation mask")."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer
from torch import Tensor

Enlargement = Literal["nearest", "bilinear"]

MIN_PROBABILITY = 0.3
"""The paper's rule (appendix, "Segmentation mask"): a pixel whose best slot has at most this probability gets no id."""
NULL = 0
"""The id of pixels that belong to no slot with enough probability."""


def enlarge(log_masks: Float[Tensor, "*any K h w"], size: tuple[int, int], how: Enlargement) -> Tensor:
    """Resizes log-masks; they still sum to one over K.

    "nearest" repeats cells (the paper). "bilinear" interpolates log-probabilities, which keeps the borders of small
    objects, and normalises them again.
    """
    *leading, slots, h, w = log_masks.shape
    if (h, w) == tuple(size):
        return log_masks
    flat = log_masks.reshape(-1, slots, h, w)
    if how == "nearest":
        flat = F.interpolate(flat, size=size, mode="nearest")
    else:
        flat = F.interpolate(flat, size=size, mode="bilinear", align_corners=False).log_softmax(dim=1)
    return flat.view(*leading, slots, *size)


def slot_ids(log_masks: Float[Tensor, "*any K H W"], min_probability: float | None) -> Int[Tensor, "*any H W"]:
    """The best slot of each pixel plus one; `NULL` where its probability is not above `min_probability`."""
    best, slot = log_masks.max(dim=-3)
    ids = slot + 1
    return ids if min_probability is None else torch.where(best > math.log(min_probability), ids, NULL)


def label_ids(labels: Int[Tensor, "*any h w"], size: tuple[int, int]) -> Int[Tensor, "*any H W"]:
    """Resizes a model's own labels by nearest neighbour."""
    *leading, h, w = labels.shape
    flat = labels.reshape(-1, 1, h, w).double()  # doubles hold any label exactly
    return F.interpolate(flat, size=size, mode="nearest").long().view(*leading, *size)


def segment_ids(
    log_masks: Float[Tensor, "*any K h w"],
    labels: Int[Tensor, "*any _ _"] | None,
    size: tuple[int, int],
    how: Enlargement,
    min_probability: float | None,
) -> Integer[np.ndarray, "*any H W"]:
    """Converts masks to ids (paper, appendix, "Segmentation mask").

    Args:
        log_masks: The model's log-masks, at the size of its features.
        labels: The model's own labels, if it has its own assignment rule; they take precedence over masks.
        size: Height and width of the ids, in pixels.
        how: How masks are enlarged.
        min_probability: Pixels whose best slot has at most this probability get id 0; None: every pixel gets its best
            slot.

    Returns:
        Ids from 1 on; 0 is null.
    """
    if labels is None:
        return slot_ids(enlarge(log_masks, size, how), min_probability).cpu().numpy()
    return label_ids(labels, size).cpu().numpy()
