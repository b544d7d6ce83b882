"""What the slots must explain: the frame as a sequence of tokens (paper, "Decoder"), after STEVE.

A discrete VAE turns patches into tokens; a causal transformer predicts each token from those before it and, by
cross-attention, from the slots. Two systems that share no gradient: the dVAE learns from pixels, all else from tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.blocks.autoregressive import CausalTransformer, CausalTransformerConfig
from vonet.blocks.dvae import DVAE, DVAEConfig, hard
from vonet.blocks.layers import mlp
from vonet.blocks.random import dropout


@dataclass(frozen=True, kw_only=True)
class TokenDecoderConfig:
    dvae: DVAEConfig = field(default_factory=DVAEConfig)
    transformer: CausalTransformerConfig = field(default_factory=CausalTransformerConfig)
    memory_hidden: int = 256
    """Hidden layer of the MLP that prepares the slots for cross-attention."""


class TokenDecoder(nn.Module):
    losses = ("tokens", "pixels")

    def __init__(self, config: TokenDecoderConfig, latent_dim: int, size: tuple[int, int]):
        super().__init__()
        width = config.transformer.width
        self.dropout = config.transformer.dropout
        self.dvae = DVAE(config.dvae, size)
        self.memory = mlp(latent_dim, config.memory_hidden, width)
        self.embedding = nn.Embedding(self.dvae.vocabulary, width)
        self.begin = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, self.dvae.tokens, width))
        nn.init.xavier_uniform_(self.begin)
        nn.init.trunc_normal_(self.positions)
        self.input_norm = nn.LayerNorm(width)
        self.transformer = CausalTransformer(config.transformer)
        self.output_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.dvae.vocabulary, bias=False)
        nn.init.xavier_uniform_(self.head.weight)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        dvae = list(self.dvae.parameters())
        of_dvae = {id(p) for p in dvae}
        return {"decoder": [p for p in self.parameters() if id(p) not in of_dvae], "dvae": dvae}

    def forward(
        self,
        frames: Float[Tensor, "B 3 H W"],
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
        update: int,
    ) -> dict[str, Float[Tensor, " B"]]:
        """−log P(frame | slots) in tokens, and the dVAE's squared error in pixels; both are sums over the frame."""
        soft = self.dvae.soft_tokens(frames, update)
        tokens = hard(soft)
        logits = self.predict(tokens, latents)
        surprise = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
        return {
            "tokens": surprise.view(tokens.shape).sum(-1),
            "pixels": self.dvae.pixel_error(frames, soft),
        }

    def predict(self, tokens: Int[Tensor, "B N"], latents: Float[Tensor, "B K D"]) -> Float[Tensor, "B N V"]:
        """Logits of every token, given the true ones before it."""
        before = torch.cat([self.begin.expand(len(tokens), -1, -1), self.embedding(tokens[:, :-1])], dim=1)
        x = self.input_norm(dropout(before + self.positions, self.dropout, self.training))
        return self.head(self.output_norm(self.transformer(x, self.memory(latents))))

    def generate(self, latents: Float[Tensor, "B K D"]) -> Int[Tensor, "B N"]:
        """The most likely token after token. Keys and values of earlier tokens are kept, not computed again."""
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

    def picture(self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]) -> Float[Tensor, "B 3 H W"]:
        """A frame from slots alone. The masks are not needed: tokens know where they are."""
        return self.dvae.decode(self.generate(latents)).clamp(0, 1)
