"""SCALOR's layers: convolution, perhaps a pixel shuffle, CELU, group norm. Networks are written as lists of these
layers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Layer:
    """Describes a convolution followed by CELU and group norm."""

    kernel: int
    channels: int
    groups: int
    """Groups of the group norm."""
    stride: int = 1
    padding: int = 0
    enlarge: int = 1
    """Factor of the pixel shuffle, which leaves enlarge² times fewer channels."""


def down(channels: int, groups: int) -> Layer:
    """Halves the map."""
    return Layer(4, channels, groups, stride=2, padding=1)


def same(channels: int, groups: int) -> Layer:
    """A 3x3 convolution that keeps the size of the map."""
    return Layer(3, channels, groups, padding=1)


def point(channels: int, groups: int) -> Layer:
    """A 1x1 convolution."""
    return Layer(1, channels, groups)


def whole(channels: int, groups: int) -> Layer:
    """A 4x4 convolution that reduces a 4x4 map to one cell."""
    return Layer(4, channels, groups)


def grow(channels: int, enlarge: int, groups: int) -> Layer:
    """Enlarges the map by pixel shuffle."""
    return Layer(1, channels, groups, enlarge=enlarge)


def stack(inputs: int, *layers: Layer) -> nn.Sequential:
    """A sequence of these layers, with torch's default initialisation."""
    modules: list[nn.Module] = []
    for layer in layers:
        modules.append(nn.Conv2d(inputs, layer.channels, layer.kernel, layer.stride, layer.padding))
        if layer.enlarge > 1:
            modules.append(nn.PixelShuffle(layer.enlarge))
        inputs = layer.channels // layer.enlarge**2
        modules += [nn.CELU(inplace=True), nn.GroupNorm(layer.groups, inputs)]
    return nn.Sequential(*modules)


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """An MLP with one hidden layer and CELU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.CELU(), nn.Linear(hidden, outputs))
