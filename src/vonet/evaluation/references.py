"""The methods without learning that stand beside every model: the trivial ones, perfect masks, and `mixture`."""

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
"""Methods without learning, as they are called in tables. A model must beat them to have learned about objects."""
LARGEST_MAP = 64
"""Cells along the longer side of the mixture's masks: more would cost minutes and bring little."""


def evaluate_references(
    model: Any,
    videos: Sequence[Video],
    protocol: Protocol,
    *,
    slots: int | None = None,
    enlargement: Enlargement | None = None,
    progress: bool = True,
) -> list[Row]:
    """With as many segments as the model has slots (`slots` None: its own), for frames of the model's size. The mixture
    is left out where it is the model itself."""
    number = model.slots if slots is None else slots
    rows = evaluate_trivial(videos, protocol, number, model.cells, enlargement or model.enlargement, progress)
    description = registry.get("mixture").model
    mixture = replace(description, size=model.size, slots=number, cell=_cell(model.size)).build()
    if type(mixture) is not type(model):
        found = evaluate_model(mixture, model.size, videos, protocol, progress=progress)
        rows += [replace(row, method=MIXTURE) for row in found]
    return rows


def _cell(size: tuple[int, int]) -> int:
    """The smallest side of a cell with which the map is not too large, among those that divide the frame."""
    wanted = -(-max(size) // LARGEST_MAP)
    return next(cell for cell in range(wanted, min(size) + 1) if not any(side % cell for side in size))
