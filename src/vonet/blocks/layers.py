"""Linear and convolution layers whose initialisation is chosen where they are constructed."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn

Following = Literal["relu", "linear"]
TRUNCATED_STD = 0.87962566
"""Standard deviation of a unit normal distribution that is truncated at ±2."""


def _fan_in_normal(weight: Tensor, following: Following) -> None:
    """Draw a weight `outputs inputs ...` from a truncated normal distribution, in place.

    Its standard deviation is gain / √fan-in after the truncation, with a gain of √2 before a ReLU and 1 otherwise. So
    the second moment of the activations stays the same from layer to layer, as in the code of VONet and SAVi.
    """
    fan_in = weight[0].numel()
    gain = math.sqrt(2.0) if following == "relu" else 1.0
    std = gain / math.sqrt(fan_in) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def linear(inputs: int, outputs: int, following: Following = "linear", bias: bool = True) -> nn.Linear:
    """A linear layer initialised as in the authors' code: truncated normal by fan-in, zero biases."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    _fan_in_normal(layer.weight, following)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def conv(
    inputs: int, outputs: int, kernel: int, following: Following = "linear", *, stride: int = 1, bias: bool = True
) -> nn.Conv2d:
    """A convolution that keeps the size of the map, divided by the stride."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias)
    _fan_in_normal(layer.weight, following)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound)
    return layer


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """An MLP with one hidden layer and ReLU."""
    return nn.Sequential(linear(inputs, hidden, "relu"), nn.ReLU(), linear(hidden, outputs))
