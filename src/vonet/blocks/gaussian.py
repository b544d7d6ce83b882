"""Diagonal Gaussians and their divergence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import mlp
from vonet.blocks.precision import in_float32


@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian, by its mean and log standard deviation."""

    mean: Float[Tensor, "*any D"]
    log_std: Float[Tensor, "*any D"]

    def sample(self) -> Float[Tensor, "*any D"]:
        """A reparameterised sample, through which gradients flow."""
        return torch.addcmul(self.mean, self.log_std.exp(), torch.randn_like(self.mean))

    def detach(self) -> Gaussian:
        """The same distribution, through which no gradient passes."""
        return Gaussian(self.mean.detach(), self.log_std.detach())


def kl_divergence(q: Gaussian, p: Gaussian) -> Float[Tensor, "*any"]:
    """KL(q ‖ p), summed over the dimensions of the latent."""
    squared = (2 * (q.log_std - p.log_std)).exp() + (q.mean - p.mean).square() * (-2 * p.log_std).exp()
    return (0.5 * (squared - 1) + p.log_std - q.log_std).sum(-1)


def unit_divergence(q: Gaussian) -> Float[Tensor, "*any"]:
    """KL(q ‖ N(0, I)), summed over the dimensions of the latent."""
    return (0.5 * ((2 * q.log_std).exp() + q.mean.square() - 1) - q.log_std).sum(-1)


class GaussianHead(nn.Module):
    """An MLP that outputs mean and log standard deviation; the latter starts around `initial_log_std`."""

    def __init__(self, inputs: int, hidden: int, outputs: int, initial_log_std: float):
        super().__init__()
        self.mlp = mlp(inputs, hidden, 2 * outputs)
        with torch.no_grad():
            self.mlp[-1].bias[outputs:] += initial_log_std  # type: ignore

    @in_float32
    def forward(self, x: Float[Tensor, "*any D"]) -> Gaussian:
        parameters = self.mlp(x)
        at_least_float32 = torch.promote_types(parameters.dtype, torch.float32)  # divergences overflow below
        return Gaussian(*parameters.to(at_least_float32).chunk(2, dim=-1))
