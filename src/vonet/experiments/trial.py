"""Builds a model on torch's meta device: its shapes are known, but its parameters take no memory.

So a description of a model that is too large is refused before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from vonet.errors import BadInput
from vonet.experiments import registry
from vonet.experiments.experiment import Experiment, parts

MOST_PARAMETERS = 10_000
"""Largest number of parameter tensors of a model, not of their elements."""
MOST_ELEMENTS = 5_000_000_000
"""Largest number of elements of all parameters and buffers: 20 GB in float32."""


def trial_model(experiment: Experiment, most_parameters: int = MOST_PARAMETERS) -> Any | None:
    """Build the model on the meta device, which takes no memory for its weights.

    Args:
        experiment: Description of the model.
        most_parameters: Building stops as soon as there are more parameter tensors than this.

    Returns:
        The model; None for a model with user-defined parts, which may not support the meta device.

    Raises:
        BadInput: If it cannot be built or is too large.
    """
    if not all(registry.is_ours(kind) for kind in parts(experiment)):
        return None
    try:
        with torch.device("meta"), _at_most(most_parameters):
            model = experiment.build_model()
    except BadInput:
        raise
    except Exception as error:  # numbers that do not go together fail anywhere
        why = str(error).partition("\n")[0]
        raise BadInput(f"the model cannot be built ({type(error).__name__}: {why})") from None
    elements = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if elements > MOST_ELEMENTS:
        raise BadInput(f"the model has {elements:,} numbers, more than the limit of {MOST_ELEMENTS:,}")
    return model


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    seen = 0

    def register(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            raise BadInput(f"the model has more than {count} parameters")

    handle = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        handle.remove()
