"""The paper's token decoder beside an object decoder that trains the encoder first. Replaces `TokenDecoder`.

Why: from random weights, the loss of the tokens leaves the masks uniform for thousands of updates, because neighbouring
tokens explain a simple scene nearly as well as slots do. The object decoder makes slots hold objects; the token decoder
learns to read these slots. The weights of the object decoder's losses then fall to zero, and the rest of the training
has the paper's loss alone (docs/log/tokens.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from vonet.errors import BadInput
from vonet.model.decoder import TokenDecoderConfig
from vonet.variants.object_decoder import ObjectDecoder, ObjectDecoderConfig


@dataclass(frozen=True, kw_only=True)
class TaughtTokensConfig:
    """A token decoder, and the object decoder that trains the encoder first."""

    tokens: TokenDecoderConfig = field(default_factory=TokenDecoderConfig)
    objects: ObjectDecoderConfig = field(default_factory=ObjectDecoderConfig)

    def __post_init__(self) -> None:
        if self.objects.correction is not None:
            raise BadInput("objects.correction is set; it must be None, because the object decoder stops learning")

    @property
    def losses(self) -> tuple[str, ...]:
        return (*self.tokens.losses, *self.objects.losses)

    def build(self, latent_dim: int, size: tuple[int, int]) -> TaughtTokens:
        return TaughtTokens(self, latent_dim, size)


class TaughtTokens(ObjectDecoder):
    """An object decoder that contains a token decoder, so that weights of a model with an object decoder can be
    loaded."""

    def __init__(self, config: TaughtTokensConfig, latent_dim: int, size: tuple[int, int]):
        super().__init__(config.objects, latent_dim, size)
        self.tokens = config.tokens.build(latent_dim, size)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """`decoder` and `dvae` of the token decoder, and `objects`."""
        of_tokens = {id(p) for p in self.tokens.parameters()}
        objects = [p for p in self.parameters() if id(p) not in of_tokens]
        return {**self.tokens.parameter_groups(), "objects": objects}

    def forward(
        self,
        frames: Float[Tensor, "B 3 H W"],
        latents: Float[Tensor, "B K D"],
        log_masks: Float[Tensor, "B K h w"],
        update: int,
    ) -> dict[str, Float[Tensor, " B"]]:
        """The losses of both decoders."""
        of_objects = super().forward(frames, latents, log_masks, update)
        return {**self.tokens(frames, latents, log_masks, update), **of_objects}

    def picture(self, latents: Float[Tensor, "B K D"], log_masks: Float[Tensor, "B K h w"]) -> Float[Tensor, "B 3 H W"]:
        """Pictures from the token decoder."""
        return self.tokens.picture(latents)
