"""The object-wise sequential VAE (paper, equations 6 to 8 and "Computing the KLD").

The posterior of a slot comes from its trajectory latent after the frame. The prior is predicted, for all slots
together, from the latents before the frame. A slot that stays on its object can be predicted; a slot that jumps to
another object cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.gaussian import Gaussian, GaussianHead, kl_divergence
from vonet.blocks.layers import linear
from vonet.blocks.precision import in_float32
from vonet.blocks.transformer import SlotTransformer, SlotTransformerConfig


@dataclass(frozen=True, kw_only=True)
class BalancedKLConfig:
    """KL balancing (paper, equation 10): the prior is trained with a larger weight than the posterior."""

    kappa: float = 0.7
    """Share of the gradient that moves the prior towards the posterior."""

    def __call__(self, posterior: Gaussian, prior: Gaussian) -> Float[Tensor, "*any"]:
        """The value of KL(posterior ‖ prior), with a larger gradient for the prior than for the posterior."""
        train_prior = kl_divergence(posterior.detach(), prior)
        train_posterior = kl_divergence(posterior, prior.detach())
        return self.kappa * train_prior + (1 - self.kappa) * train_posterior


@dataclass(frozen=True, kw_only=True)
class PlainKLConfig:
    """The plain KL divergence, the paper's ablation wo-KLBal."""

    def __call__(self, posterior: Gaussian, prior: Gaussian) -> Float[Tensor, "*any"]:
        return kl_divergence(posterior, prior)


@dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """The prior's transformer, and the choice of KL divergence."""

    transformer: SlotTransformerConfig = field(default_factory=lambda: SlotTransformerConfig(blocks=2))
    kl: BalancedKLConfig | PlainKLConfig = field(default_factory=BalancedKLConfig)


@dataclass(frozen=True, kw_only=True)
class SequentialVAEConfig:
    """Posterior and prior of the slots (paper, equations 6 and 7)."""

    prior: PriorConfig | None = field(default_factory=PriorConfig)
    """None: no prior and no KL divergence (the paper's ablation W = ∞)."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of posterior and prior. 0 is the authors' value; −2 adds less noise to the slots
    at the start, which short trainings need."""


class Prior(nn.Module):
    """p(z_t | r_{t−1} of all slots): predicts each slot from all slots of the frame before."""

    def __init__(self, config: PriorConfig, slot_dim: int, initial_log_std: float):
        super().__init__()
        self.divergence = config.kl
        self.entry = linear(slot_dim, slot_dim)
        self.transformer = SlotTransformer(config.transformer, slot_dim)
        self.head = GaussianHead(slot_dim, slot_dim, slot_dim, initial_log_std)

    @in_float32
    def forward(self, previous_slots: Float[Tensor, "B K D"]) -> Gaussian:
        return self.head(self.transformer(self.entry(previous_slots)))


class SequentialVAE(nn.Module):
    """The posterior q(z_t | r_t), and the prior unless the config has none (paper, equations 6 and 7).

    Both map slots `B K D` to a `Gaussian` of the same shape.
    """

    def __init__(self, config: SequentialVAEConfig, slot_dim: int):
        super().__init__()
        self.posterior = GaussianHead(slot_dim, slot_dim, slot_dim, config.initial_log_std)
        self.prior = Prior(config.prior, slot_dim, config.initial_log_std) if config.prior is not None else None
