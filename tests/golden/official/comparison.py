"""Our side of the comparison with official numbers (filling.py says what they are and how weights are filled).

A test writes our parameters as functions of the official ones, in plain code. The functions are differentiable, so one
backward pass gives the gradients of the official parameters through our model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.golden.official import filling


class Official(Mapping[str, Tensor]):
    """A fixture and the official parameters by their official names, which remembers those that were read."""

    def __init__(self, name: str, *, dtype: torch.dtype = torch.float64, outputs_last: bool = False):
        self.fixture = filling.read(name)
        self.tolerance = 1e-8 if dtype == torch.float64 else 1e-4
        self.dtype = dtype
        self.parameters = {
            name: torch.from_numpy(value).to(dtype).requires_grad_()
            for name, value in filling.filled(self.fixture, outputs_last=outputs_last).items()
        }
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.read.add(name)
        return self.parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def tensor(self, kind: str, name: str, *shape: int) -> Tensor:
        """An input; `kind` is "frames" or "noise"."""
        return torch.from_numpy(getattr(filling, kind)(name, shape)).to(self.dtype)

    def run(self, model: nn.Module, ours: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """The model's result with these parameters. All of ours must be given and all official ones read."""
        missing = set(self) - self.read - set(self.fixture.get("zero", ()))
        assert not missing, f"official parameters that are not used: {sorted(missing)}"
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        assert {name: tuple(p.shape) for name, p in ours.items()} == shapes
        return torch.func.functional_call(model, ours, args, kwargs)

    def check(self, *, tolerance: float | None = None, **found: Tensor) -> None:
        """Compare with the numbers that are stored under these names: all elements, or a summary."""
        tolerance = self.tolerance if tolerance is None else tolerance
        for name, tensor in found.items():
            stored, array = self.fixture["numbers"][name], tensor.detach().numpy()
            if isinstance(stored, list):
                scale = max(abs(x) for x in stored)
                assert array.ravel().tolist() == pytest.approx(stored, rel=0, abs=tolerance * scale), name
                continue
            summary, scale = filling.summary(array), max(1.0, abs(array).max())
            assert summary["length"] == stored["length"], name
            assert summary["elements"] == pytest.approx(stored["elements"], rel=0, abs=tolerance * scale), name
            scale *= len(array.ravel()) ** 0.5
            assert summary["sum"] == pytest.approx(stored["sum"], rel=0, abs=tolerance * scale), name

    def check_gradients(self, loss: Tensor) -> None:
        """Compare the gradients of all official parameters. Those that the fixture has no number for are left out."""
        loss.backward()
        for name, (_, stored) in self.fixture["parameters"].items():
            if stored is None:
                continue
            gradient = self.parameters[name].grad
            assert gradient is not None, name
            if name in self.fixture.get("centred", ()):
                gradient = torch.from_numpy(filling.centred(gradient.numpy()))
            found, scale = filling.gradient_sum(name, gradient.numpy()), max(1.0, gradient.norm().item())
            assert found == pytest.approx(stored, rel=0, abs=self.tolerance * scale), name


def rows(*parts: Tensor) -> Tensor:
    """Layers that we compute at once, one below the other."""
    return torch.cat(parts)


def point(kernel: Tensor) -> Tensor:
    """A 1x1 convolution as a linear layer, or a convolution of whole patches: `outputs inputs·k·k`."""
    return kernel.flatten(1)


def token_block(ours: dict[str, Tensor], theirs: Official, name: str, official: str) -> None:
    """A block of the token transformer, which VONet takes from STEVE."""
    self_attention, cross = f"{official}.self_attn.proj_", f"{official}.encoder_decoder_attn.proj_"
    ours[f"{name}.self_qkv.weight"] = rows(*(theirs[f"{self_attention}{part}.weight"] for part in "qkv"))
    ours[f"{name}.self_output.weight"] = theirs[f"{self_attention}o.weight"]
    ours[f"{name}.cross_q.weight"] = theirs[f"{cross}q.weight"]
    ours[f"{name}.cross_kv.weight"] = rows(*(theirs[f"{cross}{part}.weight"] for part in "kv"))
    ours[f"{name}.cross_output.weight"] = theirs[f"{cross}o.weight"]
    layers = {
        "self_norm": "self_attn_layer_norm",
        "cross_norm": "encoder_decoder_attn_layer_norm",
        "mlp_norm": "ffn_layer_norm",
        "mlp_hidden": "ffn.0",
        "mlp_output": "ffn.2",
    }
    for layer, official_layer in layers.items():
        for part in ("weight", "bias"):
            ours[f"{name}.{layer}.{part}"] = theirs[f"{official}.{official_layer}.{part}"]
