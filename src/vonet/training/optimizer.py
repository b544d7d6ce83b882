"""Adam or RMSprop on named parameter groups, each with its own learning rate and clipping."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vonet.errors import BadInput
from vonet.schedule import Product, Schedule


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Learning rate and clipping of one group of parameters."""

    learning_rate: Schedule | Product
    clip: float | None
    """Largest norm of the group's gradient; None: no clipping."""

    def __post_init__(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise BadInput(f"clip is {self.clip}; it must be more than 0, or None")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Adam."""

    groups: Mapping[str, GroupConfig]
    """The names must be exactly those of the model's parameter groups."""
    eps: float = 1e-7
    largest: float | None = None
    """Largest entry of all gradients. If one exceeds it, all gradients are scaled down by the same factor (STEVE).
    None: no limit."""

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise BadInput(f"eps is {self.eps}; it must be more than 0")
        if self.largest is not None and not self.largest > 0:
            raise BadInput(f"largest is {self.largest}; it must be more than 0, or None")


@dataclass(frozen=True, kw_only=True)
class RMSpropConfig(OptimizerConfig):
    """Uses RMSprop, as the authors of SCALOR do."""

    eps: float = 1e-8


class NotFiniteGradient(ArithmeticError):
    """Training must stop before a step with a non-finite gradient."""


class Optimizer:
    """Adam or RMSprop with a learning rate and a largest gradient norm for each group of parameters.

    Args:
        config: Options, with one entry per group name.
        parameters: From `model.parameter_groups()`; the group names must agree.

    Raises:
        BadInput: If the group names differ.
    """

    def __init__(self, config: OptimizerConfig, parameters: Mapping[str, list[nn.Parameter]]):
        if config.groups.keys() != parameters.keys():
            raise BadInput(
                f"the model has the parameter groups {sorted(parameters)} but the optimiser names "
                f"{sorted(config.groups)}: they must be the same names"
            )
        self.groups, self.largest = config.groups, config.largest
        self.parameters = parameters
        groups = [{"params": parameters[name], "name": name} for name in config.groups]
        self.rule: torch.optim.Optimizer
        if isinstance(config, RMSpropConfig):
            self.rule = torch.optim.RMSprop(groups, lr=0.0, eps=config.eps)
        else:  # one call for all parameters: a loop over them costs ten times as much
            self.rule = torch.optim.Adam(groups, lr=0.0, eps=config.eps, fused=True)

    def step(self, update: int) -> dict[str, float]:
        """Take a step and clear the gradients. Returns the norm of each group's gradient before clipping."""
        norms = {}
        for group in self.rule.param_groups:
            config = self.groups[group["name"]]
            group["lr"] = config.learning_rate(update)
            gradients = [p.grad for p in group["params"] if p.grad is not None]
            norms[group["name"]] = norm = _norm(gradients)
            if config.clip is not None and norm > config.clip:
                torch._foreach_mul_(gradients, config.clip / (norm + 1e-6))
        if self.largest is not None:
            everything = [p for group in self.parameters.values() for p in group]
            nn.utils.clip_grad_norm_(everything, self.largest, norm_type=torch.inf)
        self.rule.step()
        self.rule.zero_grad()
        return norms

    def recall(self, moments: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Continue with these moments, indexed by the number of the parameter. They get the parameter's memory format,
        which a checkpoint loses: the fused optimiser reads both in memory order and ignores their strides."""
        parameters = [p for group in self.rule.param_groups for p in group["params"]]
        state = {
            number: {name: ordered_like(parameters[number], tensor) for name, tensor in of_parameter.items()}
            for number, of_parameter in moments.items()
        }
        self.rule.load_state_dict({"state": state, "param_groups": self.rule.state_dict()["param_groups"]})


def _norm(gradients: list[Tensor]) -> float:
    """The joint norm of all gradients."""
    if not gradients:
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))).item()
    if not math.isfinite(norm):
        raise NotFiniteGradient("a gradient is not finite")
    return norm


def ordered_like(parameter: Tensor, values: Tensor) -> Tensor:
    """The values in the parameter's memory format, if they have its shape."""
    if values.shape != parameter.shape or values.stride() == parameter.stride():
        return values
    return torch.empty_like(parameter, dtype=values.dtype).copy_(values)
