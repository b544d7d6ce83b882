"""The methods without learning that every evaluation includes: the trivial ones, perfect masks, and `mixture`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vonet.data.video import Video
from vonet.evaluation.protocol import Protocol
from vonet.evaluation.run import Row, evaluate_model, evaluate_trivial
from vonet.evaluation.trivial import TRIVIAL
from vonet.experiments import registry
from vonet.interface import Enlargement

MIXTURE = "mixture (no learning)"
REFERENCES = (*TRIVIAL, MIXTURE)
"""Methods without learning, by their names in tables. A model must beat them to have learned about objects."""
LARGEST = 64
"""Longer side of the frames that the mixture gets, in pixels: larger videos are reduced to it."""


def evaluate_references(
    model: Any,
    videos: Sequence[Video],
    protocol: Protocol,
    *,
    slots: int | None = None,
    enlargement: Enlargement | None = None,
    progress: bool = True,
) -> list[Row]:
    """Scores of these methods with as many segments as the model has slots (`slots` None: the model's own number). The
    scores of `mixture` depend only on the videos and the number of slots, not on the model; it is left out if it is the
    model itself."""
    number = model.slots if slots is None else slots
    rows = evaluate_trivial(videos, protocol, number, model.cells, enlargement or model.enlargement, progress)
    description = registry.get("mixture").model
    if type(model) is not type(description.build()):
        sizes: dict[tuple[int, int], list[Video]] = {}
        for i in range(len(videos)):
            sizes.setdefault(_reduced(videos[i].size), []).append(videos[i])
        for size, of_size in sizes.items():
            mixture = replace(description, size=size, slots=number).build()
            found = evaluate_model(mixture, size, of_size, protocol, progress=progress)
            rows += [replace(row, method=MIXTURE) for row in found]
    return rows


def _reduced(size: tuple[int, int]) -> tuple[int, int]:
    scale = min(1.0, LARGEST / max(size))
    return max(1, round(scale * size[0])), max(1, round(scale * size[1]))
