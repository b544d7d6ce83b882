"""Numbers that the official implementations computed, and the rule by which both sides fill weights and inputs.

A fixture of this directory holds what a public repository computed for weights and inputs that nobody has to store: a
rule makes each tensor from its name and its shape. The official model was filled under its own parameter names, outside
of this repository, and its losses, masks and gradients were written down. A test fills the same tensors, brings them
into our layout and must find the same numbers.

The rule
    A tensor's element i (counted row by row from 0) is u(i) = h(CRC-32 of the name + 2654435769 · i) / 2³¹ − 1, between
    −1 and 1. All is modulo 2³². h is the finaliser of MurmurHash3 for 32 bits. By what a tensor is used for:

    a bias: one dimension, "bias" in its name        0.1 · u
    a scale of a norm: one dimension otherwise       1 + 0.1 · u
    a kernel of a convolution: four dimensions       √(6 / fan-in) · u, so that its variance is 2 / fan-in
    any other weight                                 √(3 / fan-in) · u, so that its variance is 1 / fan-in
    frames                                           (1 + u) / 2
    Gaussian noise                                   √3 · u

    Fan-in is the number of elements divided by the size of the first dimension (torch), or of the last (Flax).
    A fixture may multiply a tensor by a constant, then shift it by one, keep only the middle tap of its kernels, or set
    it to zero: "scaled", "shifted", "centred" and "zero". Its text says why.

What is stored of a tensor is a summary: its length, the sum of its elements weighted by u of the name "summary", and
five of its elements, evenly spaced from the first to the last. What is stored of a parameter is its shape and the sum
of its gradient weighted by u of its name with " gradient" behind it.

`filling` and `summary` need numpy alone, so that the official side can use this very file whatever it is written in.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
Array = NDArray[np.float64]


def uniform(name: str, shape: tuple[int, ...]) -> Array:
    """u of the rule: numbers between −1 and 1 that depend on the name."""
    x = (zlib.crc32(name.encode()) + 2654435769 * np.arange(math.prod(shape), dtype=np.uint64)) % np.uint64(2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) % np.uint64(2**32)
    x ^= x >> np.uint64(16)
    return (x.astype(np.float64) / 2**31 - 1).reshape(shape)


def parameter(name: str, shape: tuple[int, ...], *, outputs_last: bool = False) -> Array:
    """A parameter by its official name and shape. `outputs_last`: the layout of Flax, fan-in is all but the last."""
    u = uniform(name, shape)
    if len(shape) == 1:
        return 0.1 * u if "bias" in name else 1 + 0.1 * u
    fan_in = math.prod(shape) / shape[-1 if outputs_last else 0]
    return math.sqrt((6 if len(shape) == 4 else 3) / fan_in) * u


def frames(name: str, shape: tuple[int, ...]) -> Array:
    return (1 + uniform(name, shape)) / 2


def noise(name: str, shape: tuple[int, ...]) -> Array:
    return math.sqrt(3) * uniform(name, shape)


SQUARES = ((8, 10, 3, 2, (0.9, 0.1, 0.1)), (36, 30, -2, 3, (0.1, 0.2, 0.9)), (20, 44, 1, -4, (0.2, 0.8, 0.2)))
"""Top, left, the steps of both from frame to frame, and the colour."""


def squares(time: int) -> Array:
    """A video `1 T 3 64 64` of three squares, 14 pixels wide, that move over a grey background of 0.4."""
    video = np.full((1, time, 3, 64, 64), 0.4)
    for top, left, down, right, colour in SQUARES:
        for t in range(time):
            y, x = top + down * t, left + right * t
            video[0, t, :, y : y + 14, x : x + 14] = np.array(colour)[:, None, None]
    return video


def labels(case: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """True and predicted ids `4 T H W` of four videos: 3 frames of 24x32 pixels, true ids in blocks of 4x4.

    A predicted id is the true one plus 1, except where u of "swapped" is below −0.9, −0.3, 0.3 or 0.9, by video: there
    it is one of eight. The case "usual" has six true ids. In "many" the true ids 4 and 5 are called 25 and 64. In
    "single" every true id is 1 and the second half of the videos has the predicted id 1 everywhere.
    """
    blocks = np.floor((1 + uniform("true", (4, 3, 6, 8))) / 2 * 6).astype(np.int64)
    true = blocks.repeat(4, axis=2).repeat(4, axis=3)
    swapped = uniform("swapped", true.shape) < np.array([-0.9, -0.3, 0.3, 0.9]).reshape(4, 1, 1, 1)
    predicted = np.where(swapped, np.floor((1 + uniform("predicted", true.shape)) * 4).astype(np.int64), true + 1)
    if case == "many":
        true = np.array([0, 1, 2, 3, 25, 64])[true]
    if case == "single":
        true = np.ones_like(true)
        predicted[2:] = 1
    return true, predicted


def centred(weight: Array) -> Array:
    """The weight `outputs inputs k k` with all taps but the middle one set to zero."""
    kept = np.zeros_like(weight)
    middle = (..., weight.shape[-2] // 2, weight.shape[-1] // 2)
    kept[middle] = weight[middle]
    return kept


def filled(fixture: dict[str, Any], *, outputs_last: bool = False) -> dict[str, Array]:
    """All parameters of the official model, by their official names."""
    tensors = {
        name: parameter(name, tuple(shape), outputs_last=outputs_last)
        for name, (shape, _) in fixture["parameters"].items()
    }
    for name in fixture.get("centred", ()):
        tensors[name] = centred(tensors[name])
    for name in fixture.get("zero", ()):
        tensors[name] = np.zeros_like(tensors[name])
    for name, scale in fixture.get("scaled", {}).items():
        tensors[name] = tensors[name] * scale
    for name, shift in fixture.get("shifted", {}).items():
        tensors[name] = tensors[name] + shift
    return tensors


def summary(tensor: Any) -> dict[str, Any]:
    """What a fixture stores of a tensor of many elements."""
    x = np.asarray(tensor, dtype=np.float64).ravel()
    picked = np.linspace(0, len(x) - 1, 5).round().astype(int)
    return {"length": len(x), "sum": float(x @ uniform("summary", x.shape)), "elements": x[picked].tolist()}


def gradient_sum(name: str, gradient: Any) -> float:
    """What a fixture stores of a parameter's gradient."""
    g = np.asarray(gradient, dtype=np.float64)
    return float((g * uniform(f"{name} gradient", g.shape)).sum())


def read(name: str) -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())


def write(path: Path, fixture: dict[str, Any]) -> None:
    """One line for each parameter and number, in 12 digits."""

    def rounded(x: Any) -> Any:
        if isinstance(x, float):
            return float(f"{x:.12g}")
        if isinstance(x, dict):
            return {key: rounded(v) for key, v in x.items()}
        return [rounded(v) for v in x] if isinstance(x, list | tuple) else x

    lines = []
    for key, value in fixture.items():
        if key in ("parameters", "numbers", "source"):
            inner = ",\n".join(
                f"    {json.dumps(k)}: {json.dumps(rounded(v), ensure_ascii=False)}" for k, v in value.items()
            )
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(rounded(value))}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
