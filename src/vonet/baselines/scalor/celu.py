"""SCALOR's layers: convolution, perhaps a pixel shuffle, CELU, group norm. Networks are written as lists of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Layer:
    """One convolution with CELU and group norm."""

    kernel: int
    channels: int
    groups: int
    """Of the norm."""
    stride: int = 1
    padding: int = 0
    enlarge: int = 1
    """By a pixel shuffle, which leaves enlarge² times fewer channels."""


def down(channels: int, groups: int) -> Layer:
    """Halves the map."""
    return Layer(4, channels, groups, stride=2, padding=1)


def same(channels: int, groups: int) -> Layer:
    """Keeps the map, 3x3."""
    return Layer(3, channels, groups, padding=1)


def point(channels: int, groups: int) -> Layer:
    """Keeps the map, 1x1."""
    return Layer(1, channels, groups)


def whole(channels: int, groups: int) -> Layer:
    """All of a 4x4 map."""
    return Layer(4, channels, groups)


def grow(channels: int, enlarge: int, groups: int) -> Layer:
    """Enlarges the map by pixel shuffle."""
    return Layer(1, channels, groups, enlarge=enlarge)


def stack(inputs: int, *layers: Layer) -> nn.Sequential:
    """Initialised as torch does by itself."""
    modules: list[nn.Module] = []
    for layer in layers:
        modules.append(nn.Conv2d(inputs, layer.channels, layer.kernel, layer.stride, layer.padding))
        if layer.enlarge > 1:
            modules.append(nn.PixelShuffle(layer.enlarge))
        inputs = layer.channels // layer.enlarge**2
        modules += [nn.CELU(inplace=True), nn.GroupNorm(layer.groups, inputs)]
    return nn.Sequential(*modules)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """One hidden layer with CELU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.CELU(), nn.Linear(hidden, outputs))
