"""The transformer over slots: pre-norm, without position code, so that slots have no order."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import mlp
from vonet.blocks.precision import in_float32
from vonet.errors import BadInput


def check_heads(width: int, heads: int) -> None:
    """Refuse a width that the number of heads does not divide."""
    if heads < 1 or width % heads:
        raise BadInput(f"a width of {width} cannot be shared by {heads} heads: use a multiple")


@dataclass(frozen=True, kw_only=True)
class SlotTransformerConfig:
    """A transformer over slots, without position codes."""

    blocks: int = 3
    heads: int = 3
    head_width: int | None = None
    """Width of one head; None: the model's whole width, as the paper sets query, key and value sizes."""
    hidden_ratio: int = 2


class SlotTransformerBlock(nn.Module):
    """Pre-norm self-attention and an MLP (paper, appendix, "U-Net and mask transformer")."""

    def __init__(self, config: SlotTransformerConfig, width: int):
        super().__init__()
        self.heads = config.heads
        inner = config.heads * (config.head_width or width)
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, inner)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = mlp(width, config.hidden_ratio * width, width)
        key, value = self.key_value.weight.chunk(2)
        for weight in (self.query.weight, key, value, self.output.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.query.bias)

    def forward(self, u: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        normed = self.attention_norm(u)
        q = rearrange(self.query(normed), "b k (heads d) -> b heads k d", heads=self.heads)
        k, v = rearrange(self.key_value(normed), "b k (two heads d) -> two b heads k d", two=2, heads=self.heads)
        attended = rearrange(self._attended(q, k, v), "b heads k d -> b k (heads d)")
        v = u + self.output(attended)
        return v + self.mlp(self.mlp_norm(v))

    @in_float32
    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class SlotTransformer(nn.Sequential):
    """Slots `B K W` to slots `B K W`; their order does not matter."""

    def __init__(self, config: SlotTransformerConfig, width: int):
        super().__init__(*(SlotTransformerBlock(config, width) for _ in range(config.blocks)))
