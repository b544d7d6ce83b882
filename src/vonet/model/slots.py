"""Slots: initial slots from noise, slot encoder, trajectory (memory), and context for the next frame
(paper, equations 4, 5 and "Computing the per-trajectory slot latent")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import linear, mlp
from vonet.blocks.precision import in_float32
from vonet.blocks.transformer import SlotTransformer, SlotTransformerConfig


@dataclass(frozen=True, kw_only=True)
class InitialSlotsConfig:
    """The transformer that computes initial slots from noise."""

    transformer: SlotTransformerConfig = field(default_factory=SlotTransformerConfig)


class InitialSlots(nn.Module):
    """r_0 = Transformer_slot(ε): initial slots from noise, before the first frame."""

    def __init__(self, config: InitialSlotsConfig, slot_dim: int):
        super().__init__()
        self.transformer = SlotTransformer(config.transformer, slot_dim)

    @in_float32
    def forward(self, noise: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        return self.transformer(noise)


@runtime_checkable
class PlacesConfig(Protocol):
    """Describes a module that stores the position of each slot in some dimensions of its state; not in the paper.

    `variants/slot_places.py` shows what the module must offer."""

    @property
    def numbers(self) -> int:
        """Number of slot dimensions that hold the position."""

    def build(self, slot_dim: int, size: tuple[int, int]) -> Any:
        """`size`: height and width of the feature map, in cells."""


@dataclass(frozen=True, kw_only=True)
class SlotEncoderConfig:
    """y = the masked values, averaged over the whole frame."""

    def build(self, feature_dim: int, slot_dim: int) -> SlotEncoder:
        return SlotEncoder(self, feature_dim, slot_dim)


class SlotEncoder(nn.Module):
    """y_k = Σ m_k · value(features) over the cells, divided by the number of cells, not by the area of the mask (paper,
    equation 4).

    Averaging and the linear value map commute, so the average is taken first: Σ m (W f + b) = W Σ m f + b Σ m.
    """

    def __init__(self, config: SlotEncoderConfig, feature_dim: int, slot_dim: int):
        super().__init__()
        self.value = linear(feature_dim, slot_dim)

    def weights(self, masks: Float[Tensor, "B K cells"]) -> Float[Tensor, "B K cells"]:
        """Weight of each cell for each slot."""
        return masks / masks.shape[-1]

    @in_float32
    def forward(
        self, features: Float[Tensor, "B C h w"], log_masks: Float[Tensor, "B K h w"]
    ) -> Float[Tensor, "B K D"]:
        weights = self.weights(log_masks.exp().flatten(2))
        pooled = weights @ features.flatten(2).mT
        return pooled @ self.value.weight.t() + weights.sum(-1, keepdim=True) * self.value.bias


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig:
    """`hidden_ratio`: width of the MLP's hidden layer, as a multiple of D."""

    hidden_ratio: int = 2


class Trajectory(nn.Module):
    """r = LayerNorm(r' + MLP(r')) with r' = GRU(y, r before). The norm keeps r bounded in videos of any length."""

    def __init__(self, config: TrajectoryConfig, slot_dim: int):
        super().__init__()
        self.gru = nn.GRUCell(slot_dim, slot_dim)
        self.mlp = mlp(slot_dim, config.hidden_ratio * slot_dim, slot_dim)
        self.norm = nn.LayerNorm(slot_dim)

    @in_float32
    def forward(self, frame_slots: Float[Tensor, "B K D"], slots: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        updated = self.gru(frame_slots.flatten(0, 1), slots.flatten(0, 1)).unflatten(0, slots.shape[:2])
        return self.norm(updated + self.mlp(updated))


@dataclass(frozen=True, kw_only=True)
class ContextConfig:
    """`hidden_ratio`: width of the MLP's hidden layer, as a multiple of D."""

    hidden_ratio: int = 2


class Context(nn.Module):
    """c = MLP(r): tells the attention which object a slot looks for in the next frame."""

    def __init__(self, config: ContextConfig, slot_dim: int):
        super().__init__()
        self.mlp = mlp(slot_dim, config.hidden_ratio * slot_dim, slot_dim)

    @in_float32
    def forward(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        return self.mlp(slots)
