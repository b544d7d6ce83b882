"""Slot attention (Locatello and others, 2020): slots compete for the vectors of a frame.

::

    A_{ki} = softmax over the slots k of  W_q LN(s_k) · W_k x̂_i / √D          who takes which vector
    u_k    = Σ_i w_{ki} W_v x̂_i,   w_{ki} = A_{ki} / Σ_i A_{ki}               the mean of what a slot took
    s_k    ← GRU(u_k, s_k), and between two iterations  s_k ← s_k + MLP(LN(s_k))

Keys and values are never computed: q · W_k x̂ = (W_kᵀ q) · x̂, and a mean of values is the value of a mean. There are
about a dozen slots and thousands of vectors, so this is several times cheaper (tests/test_slot_attention.py compares it
with the plain form).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.layers import linear, mlp
from vonet.errors import BadInput

TINY = 1e-8
"""Added to every weight, so that a slot without vectors gets the mean of all instead of a division by zero."""


@dataclass(frozen=True, kw_only=True)
class SlotAttentionConfig:
    """Number of iterations, and the MLP between them."""

    iterations: int = 1
    """Iterations per frame."""
    hidden: int | None = None
    """Hidden width of the MLP between two iterations; None: no MLP."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise BadInput(f"{self.iterations} iterations of slot attention were asked for; at least 1 is needed")
        if self.hidden is not None and self.iterations == 1:
            raise BadInput("the MLP needs two or more iterations, and there is 1: use hidden None, or more iterations")


class SlotAttention(nn.Module):
    """Slots `B K D` compete for vectors `B N F` of a frame (Locatello et al., 2020)."""

    def __init__(self, config: SlotAttentionConfig, vector_dim: int, slot_dim: int):
        super().__init__()
        self.iterations = config.iterations
        self.scale = slot_dim**-0.5
        self.vector_norm = nn.LayerNorm(vector_dim)
        self.slot_norm = nn.LayerNorm(slot_dim)
        self.query = linear(slot_dim, slot_dim, bias=False)
        self.key = linear(vector_dim, slot_dim, bias=False)
        self.value = linear(vector_dim, slot_dim, bias=False)
        self.gru = nn.GRUCell(slot_dim, slot_dim)
        for gate in self.gru.weight_hh.chunk(3):
            nn.init.orthogonal_(gate)
        nn.init.xavier_uniform_(self.gru.weight_ih)
        nn.init.zeros_(self.gru.bias_ih)
        nn.init.zeros_(self.gru.bias_hh)
        self.between: nn.Sequential | None = None
        if config.hidden is not None:
            self.between = nn.Sequential(nn.LayerNorm(slot_dim), mlp(slot_dim, config.hidden, slot_dim))

    def prepare(self, vectors: Float[Tensor, "*any N F"]) -> Float[Tensor, "*any N F"]:
        """x̂, the normalised input vectors. They do not depend on the slots, so all frames can be prepared at once."""
        return self.vector_norm(vectors)

    def forward(
        self, prepared: Float[Tensor, "B N F"], slots: Float[Tensor, "B K D"]
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B K N"]]:
        """The slots after the frame, and log A of the last iteration: the masks."""
        for iteration in range(self.iterations):
            query = self.query(self.slot_norm(slots)) @ (self.key.weight * self.scale)
            log_attention = torch.bmm(query, prepared.mT).log_softmax(dim=1)
            weights = log_attention.exp() + TINY
            taken = torch.bmm(weights, prepared) / weights.sum(-1, keepdim=True)
            slots = self.gru(self.value(taken).flatten(0, 1), slots.flatten(0, 1)).unflatten(0, slots.shape[:2])
            if self.between is not None and iteration < self.iterations - 1:
                slots = slots + self.between(slots)
        return slots, log_attention
