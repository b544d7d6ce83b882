"""The token decoder: slots must explain the frame as a sequence of tokens (paper, "Decoder"), as in STEVE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAE, DVAEConfig, hard
from vonet.blocks.layers import linear, mlp
from vonet.blocks.tokens import TokenPredictor
from vonet.errors import BadInput
from vonet.schedule import Schedule


@runtime_checkable
class DecoderConfig(Protocol):
    """Describes the part that reconstructs the frame from the slots; `TokenDecoder` shows what the module must
    offer."""

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of the decoder's losses."""

    def build(self, latent_dim: int, size: tuple[int, int]) -> Any:
        """`size`: height and width of the frames, in pixels."""


@runtime_checkable
class CorrectingDecoder(Protocol):
    """A decoder that can correct the attention's masks by the colours it paints; not in the paper."""

    @property
    def corrects_masks(self) -> bool:
        """Whether it does."""

    def corrected(
        self, frames: Float[Tensor, "B 3 H W"], latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]
    ) -> Float[Tensor, "B K H W"]:
        """Log-masks at the frame's size."""


@dataclass(frozen=True, kw_only=True)
class TokenDecoderConfig:
    """The paper's decoder: a discrete VAE, and a causal transformer that reads the slots."""

    dvae: DVAEConfig = field(default_factory=DVAEConfig)
    transformer: CausalTransformerConfig = field(default_factory=CausalTransformerConfig)
    memory_hidden: int = 256
    """Width of the hidden layer of the MLP that prepares the slots for cross-attention."""
    even_vocabulary: bool = False
    """Add the loss `vocabulary`, which makes the dVAE use its vocabulary more evenly. Not in the paper; without it, few
    different tokens are used if frames are small and mostly background (docs/log/tokens.md). Its gradient reaches only
    the dVAE."""
    hidden_tokens: Schedule | None = None
    """Mean share, up to 0.5, of the earlier tokens that are hidden from the transformer in training, so that it has to
    read the slots. Not in the paper; None hides nothing."""

    def __post_init__(self) -> None:
        shares = () if self.hidden_tokens is None else [share for _, share in self.hidden_tokens.points]
        if not all(0 <= share <= 0.5 for share in shares):
            raise BadInput(f"hidden_tokens has the shares {shares}; they must be from 0 to 0.5")

    @property
    def losses(self) -> tuple[str, ...]:
        return (*TokenPredictor.losses, "vocabulary") if self.even_vocabulary else TokenPredictor.losses

    def build(self, latent_dim: int, size: tuple[int, int]) -> TokenDecoder:
        return TokenDecoder(self, latent_dim, size)


class TokenDecoder(TokenPredictor):
    """Slots explain a frame as a sequence of tokens (paper, equation 11).

    Args:
        config: Options of the discrete VAE and the transformer.
        latent_dim: D, the width of the slots.
        size: Height and width of the frames, in pixels.
    """

    def __init__(self, config: TokenDecoderConfig, latent_dim: int, size: tuple[int, int]):
        dvae = DVAE(config.dvae, size)
        memory = mlp(latent_dim, config.memory_hidden, config.transformer.width)
        head = linear(config.transformer.width, dvae.vocabulary, bias=False)
        super().__init__(config.transformer, dvae, memory, nn.LayerNorm, head)
        self.even_vocabulary, self.hidden_tokens = config.even_vocabulary, config.hidden_tokens

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
        """The losses of frames, given their slots.

        Args:
            frames: `B 3 H W`, floats in [0, 1].
            latents: z of each slot, `B K D`.
            log_masks: Not used here; other decoders need them.
            update: Number of the gradient update, for the temperature of the Gumbel-softmax.

        Returns:
            −log P(frame | slots) as "tokens", in nats, and the squared error of the discrete VAE as "pixels". Both are
            sums over the frame, one number per frame. With `even_vocabulary` also the loss "vocabulary".
        """
        logits = self.dvae.logits(frames)
        soft = self.dvae.soft_tokens(logits, update)
        hidden = self.hidden_tokens(update) if self.training and self.hidden_tokens is not None else 0.0
        losses = {"tokens": self.surprise(hard(soft), latents, hidden), "pixels": self.dvae.pixel_error(frames, soft)}
        if self.even_vocabulary:
            losses["vocabulary"] = self.dvae.unevenness(logits).expand(len(frames))
        return losses
