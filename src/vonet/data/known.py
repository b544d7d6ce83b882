"""Records what kind of videos a model was trained on; stored with the weights and attached to the loaded model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vonet.data.resize import DEFAULT_FIT, Fit


@dataclass(frozen=True)
class KnownInput:
    """What a model knows about the frames of its training.

    Attributes:
        fit: How training frames of another shape were resized to the model's size.
        grey: Whether the training videos had no colours.
    """

    fit: Fit = DEFAULT_FIT
    grey: bool = False


def known_input(model: Any) -> KnownInput:
    """The record of a model; the defaults if the model was not loaded from weights."""
    return getattr(model, "known_input", KnownInput())
