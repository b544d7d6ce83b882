"""STEVE: Simple Unsupervised Object-Centric Learning for Complex and Naturalistic Videos (Singh and others, 2022).

STEVE uses SAVi's recurrence, but the slots must explain tokens, through a transformer that can model texture::

    p_0 = μ + e^ω · ε,  ε ~ N(0, I)                    μ and ω are learned and the same for all slots
    c_t = Correct(p_{t−1}, x_t)                        slot attention, two iterations; A of the second is the mask
    p_t = Predict(c_t)                                 one transformer block and a norm
    y_t ~ dVAE(x_t)                                    a token for each patch (blocks/dvae.py)
    loss = −Σ_i log P(y_{ti} | y_{t,<i}, W c_t) + ‖x_t − x̂_t‖²      tokens and pixels, sums over the frame

The dVAE learns only from pixels, and everything else only from tokens.

The settings are those of the VONet paper: the authors' values (released code, C), except that slots have width 64.

Deviations from C: In evaluation the most likely tokens are used and the Gumbel-softmax has no noise, where C samples.
The position table has no row after the last token, which C has but never reads (192 parameters). Weights outside the
token transformer are initialised as everywhere in vonet (truncated normal by fan-in, with a gain before ReLU), where C
uses uniform weights, of the same variance for square layers. Biases of convolutions start small, where C's start at
zero. The GRU's recurrent weights are orthogonal per gate, where C's are orthogonal as one matrix. Segments may begin at
any frame, where C cuts videos into fixed segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAE, DVAEConfig
from vonet.blocks.frame_vectors import ConvStackConfig, FrameVectors, four_sided_grid
from vonet.blocks.layers import linear, mlp
from vonet.blocks.recurrent_slots import RecurrentSlots
from vonet.blocks.slot_attention import SlotAttention, SlotAttentionConfig
from vonet.blocks.tokens import TokenPredictor
from vonet.blocks.transformer import check_heads
from vonet.interface import Clip, Explanation, Output, SlotState, StreamingModel, VideoModel, check_size, check_slots
from vonet.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class STEVEConfig:
    """STEVE with the VONet paper's settings for MOVi-A."""

    size: tuple[int, int] = (128, 128)
    slots: int = 11
    """Default number of slots; no parameter depends on it."""
    slot_dim: int = 64
    backbone: ConvStackConfig = field(default_factory=ConvStackConfig)
    attention: SlotAttentionConfig = field(default_factory=lambda: SlotAttentionConfig(iterations=2, hidden=192))
    predictor_heads: int = 4
    dvae: DVAEConfig = field(
        default_factory=lambda: DVAEConfig(
            fine_layers=7, temperature=Schedule(((0, 1.0), (30_000, 0.1)), curve="cosine")
        )
    )
    transformer: CausalTransformerConfig = field(default_factory=CausalTransformerConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))  # a list, as JSON has it, will do
        check_size(self.size)
        check_slots(self.slots)
        check_heads(self.slot_dim, self.predictor_heads)

    @property
    def losses(self) -> tuple[str, ...]:
        return TokenPredictor.losses

    def build(self) -> STEVE:
        return STEVE(self)


class Predictor(nn.Module):
    """One transformer block whose normalised input replaces its residual stream, followed by a norm that keeps slots
    bounded."""

    def __init__(self, slot_dim: int, heads: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(slot_dim)
        self.attention = nn.MultiheadAttention(slot_dim, heads, bias=False, batch_first=True)
        self.mlp_norm = nn.LayerNorm(slot_dim)
        self.mlp = mlp(slot_dim, 4 * slot_dim, slot_dim)
        self.norm = nn.LayerNorm(slot_dim)
        for part in self.attention.in_proj_weight.chunk(3):
            nn.init.xavier_uniform_(part)
        for residual in (self.attention.out_proj, self.mlp[-1]):
            nn.init.xavier_uniform_(residual.weight, gain=0.5**0.5)  # type: ignore[arg-type]

    def forward(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        slots = self.attention_norm(slots)
        slots = slots + self.attention(slots, slots, slots, need_weights=False)[0]
        return self.norm(slots + self.mlp(self.mlp_norm(slots)))


class STEVE(RecurrentSlots):
    """Recurrent slot attention with a token decoder. The masks are the attention of the last iteration."""

    def __init__(self, config: STEVEConfig):
        D = config.slot_dim
        vectors = FrameVectors(config.backbone, config.backbone.channels[-1], four_sided_grid, config.size)
        attention = SlotAttention(config.attention, vectors.width, D)
        predictor = Predictor(D, config.predictor_heads)
        super().__init__(config.size, config.slots, D, "nearest", vectors, attention, predictor)
        self.cells = vectors.cells
        self.mean = nn.Parameter(torch.empty(1, 1, D))
        self.log_std = nn.Parameter(torch.empty(1, 1, D))
        nn.init.xavier_uniform_(self.mean)
        nn.init.xavier_uniform_(self.log_std)
        memory = linear(D, config.transformer.width, bias=False)
        dvae = DVAE(config.dvae, config.size)
        head = nn.Linear(config.transformer.width, dvae.vocabulary, bias=False)
        nn.init.xavier_uniform_(head.weight)
        self.decoder = TokenPredictor(config.transformer, dvae, memory, nn.Identity, head)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # else each convolution copies its weight

    def fresh(self, noise: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def log_masks(
        self, slots: Float[Tensor, "B K D"], log_attention: Float[Tensor, "B K cells"]
    ) -> Float[Tensor, "B K h w"]:
        return log_attention.unflatten(-1, self.cells)

    def forward(self, clip: Clip, state: SlotState | None = None, update: int = 0) -> Output:
        """Computes masks of a clip, the loss of its tokens and the reconstruction error of the dVAE. The tokens are a
        second sample, not the one that the dVAE reconstructs."""
        output = self.unroll(clip, state)
        batch_time, frames = clip.frames.shape[:2], clip.frames.flatten(0, 1)
        dvae = self.decoder.dvae
        logits = dvae.logits(frames)
        losses = {
            "tokens": self.decoder.surprise(dvae.draw_tokens(logits), output.slots.flatten(0, 1)),
            "pixels": dvae.pixel_error(frames, dvae.soft_tokens(logits, update)),
        }
        return replace(output, losses={name: loss.unflatten(0, batch_time) for name, loss in losses.items()})

    @torch.no_grad()
    def pictures(self, output: Output) -> Float[Tensor, "B T 3 H W"]:
        """The frames as feature vectors, one per cell: the input of slot attention."""
        return self.decoder.picture(output.slots.flatten(0, 1)).unflatten(0, output.slots.shape[:2])

    def explain(self, output: Output) -> Explanation:
        return Explanation(reconstruction=self.pictures(output))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The layers that prepare slots for the decoder are trained with the encoder's learning rate, as in C."""
        dvae = list(self.decoder.dvae.parameters())
        others = {id(p) for p in [*dvae, *self.decoder.memory.parameters()]}
        decoder = [p for p in self.decoder.parameters() if id(p) not in others]
        elsewhere = {id(p) for p in [*dvae, *decoder]}
        return {"encoder": [p for p in self.parameters() if id(p) not in elsewhere], "decoder": decoder, "dvae": dvae}


if TYPE_CHECKING:

    def _keeps_the_contract(model: STEVE) -> tuple[VideoModel[SlotState], StreamingModel[SlotState]]:
        return model, model
