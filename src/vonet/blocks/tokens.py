"""The token decoder of STEVE and VONet: slots explain a frame as a sequence of tokens.

A discrete VAE turns patches into tokens. A causal transformer predicts each token from those before it and, by
cross-attention, from the slots. They share no gradient: the dVAE learns from pixels, everything else from tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.blocks.autoregressive import CausalTransformer, CausalTransformerConfig
from vonet.blocks.dvae import DVAE
from vonet.blocks.random import dropout


class TokenPredictor(nn.Module):
    """Predicts each token from the ones before it and the slots.

    `memory` is the layer that prepares the slots for cross-attention. `norms` are applied before and after the
    transformer: VONet has layer norms there, STEVE none. `head` maps the transformer's output of width `W` to `V`
    logits; VONet and STEVE initialise it differently.
    """

    losses = ("tokens", "pixels")

    def __init__(
        self,
        config: CausalTransformerConfig,
        dvae: DVAE,
        memory: nn.Module,
        norms: type[nn.Module],
        head: nn.Linear,
    ):
        super().__init__()
        self.dropout = config.dropout
        self.dvae = dvae
        self.memory = memory
        self.embedding = nn.Embedding(dvae.vocabulary, config.width)
        self.begin = nn.Parameter(torch.empty(1, 1, config.width))
        self.positions = nn.Parameter(torch.empty(1, dvae.tokens, config.width))
        nn.init.xavier_uniform_(self.begin)
        nn.init.trunc_normal_(self.positions)
        self.input_norm = norms(config.width)
        self.transformer = CausalTransformer(config)
        self.output_norm = norms(config.width)
        self.head = head

    def predict(
        self, tokens: Int[Tensor, "B N"], latents: Float[Tensor, "B K D"], hidden: float = 0.0
    ) -> Float[Tensor, "B N V"]:
        """Logits of every token, given the true tokens before it.

        hidden: the mean share of the true tokens that are hidden, from 0 to 0.5. The share of each frame is random,
        between none and twice this share.
        """
        known = self.embedding(tokens[:, :-1])
        if hidden > 0:
            share = 2 * hidden * torch.rand(len(known), 1, device=known.device)
            known = known * (torch.rand(known.shape[:2], device=known.device) >= share).unsqueeze(-1)
        before = torch.cat([self.begin.expand(len(tokens), -1, -1), known], dim=1)
        x = self.input_norm(dropout(before + self.positions, self.dropout, self.training))
        return self.head(self.output_norm(self.transformer(x, self.memory(latents))))

    def surprise(
        self, tokens: Int[Tensor, "B N"], latents: Float[Tensor, "B K D"], hidden: float = 0.0
    ) -> Float[Tensor, " B"]:
        """−log P(tokens | slots), a sum over the frame. hidden: as in `predict`."""
        logits = self.predict(tokens, latents, hidden)
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(tokens.shape).sum(-1)

    def generate(self, latents: Float[Tensor, "B K D"]) -> Int[Tensor, "B N"]:
        """Generates the most likely token at each position, one after the other. Keys and values of earlier tokens are
        cached."""
        with torch.inference_mode():
            advance = self.transformer.generator(self.memory(latents), self.dvae.tokens)
            x = self.begin[0].expand(len(latents), -1)
            tokens: list[Tensor] = []
            for i, position in enumerate(self.positions.unbind(1)):
                x = advance(self.input_norm(x + position), i)
                tokens.append(self.head(self.output_norm(x)).argmax(-1))
                x = self.embedding(tokens[-1])
            sequence = torch.stack(tokens, dim=1)
        return sequence.clone()  # outside of inference mode: an ordinary tensor

    def picture(
        self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"] | None = None
    ) -> Float[Tensor, "B 3 H W"]:
        """Generates a frame from the slots. Masks are not needed, because tokens encode their position."""
        return self.dvae.decode(self.generate(latents)).clamp(0, 1)
