"""What videos a model knows: it is stored with its weights, and the loaded model carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vonet.data.resize import DEFAULT_FIT, Fit


@dataclass(frozen=True)
class KnownInput:
    """fit: how frames of another shape came to the model's size in training. grey: whether they had no colours."""

    fit: Fit = DEFAULT_FIT
    grey: bool = False


def known_input(model: Any) -> KnownInput:
    """Of a model that was not loaded from weights: the defaults."""
    return getattr(model, "known_input", KnownInput())
