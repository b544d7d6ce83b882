"""The discrete VAE: each patch of the picture is encoded as one of V tokens, and tokens are decoded to a picture.

The encoder sees one patch at a time, so it is an MLP on patches. Its logits are linear: the authors' code applies a
ReLU to them, probably by accident, which we do not copy (docs/deviations.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from vonet.blocks.layers import conv, linear
from vonet.blocks.random import gumbel_like
from vonet.errors import BadInput
from vonet.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class DVAEConfig:
    """A discrete VAE that turns patches into tokens."""

    vocabulary: int = 4096
    width: int = 64
    fine_layers: int = 6
    """ReLU layers on 4x4 patches, including the layer that reads the patch."""
    coarse_layers: int = 0
    """ReLU layers after 2x2 patches are joined, including the layer that joins them. None: tokens are 4x4 patches.
    Otherwise tokens are 8x8 patches, a quarter as many, which suits CPUs."""
    temperature: Schedule = field(default_factory=lambda: Schedule(((0, 1.0), (10_000, 0.1))))
    """Temperature of the Gumbel-softmax."""


def _same_width(width: int, count: int) -> list[nn.Module]:
    return [linear(width, width, "relu") for _ in range(count)]


def _relu_layers(*layers: nn.Module) -> list[nn.Module]:
    return [part for layer in layers for part in (layer, nn.ReLU(inplace=True))]


def _refine(width: int, enlargement: int, outputs: int) -> list[nn.Module]:
    """Four convolutions; the last one makes the channels that the pixel shuffle turns into a larger map."""
    shuffled = outputs * enlargement**2
    return [
        *_relu_layers(
            conv(width, width, 3, "relu"),
            conv(width, width, 1, "relu"),
            conv(width, width, 1, "relu"),
            conv(width, shuffled, 1, "relu"),
        ),
        nn.PixelShuffle(enlargement),
    ]


class DVAE(nn.Module):
    """Encodes frames `B 3 H W` to tokens `B N`, and decodes them. Patches are encoded one by one, and decoded together.

    Args:
        config: Vocabulary, layers and temperature.
        size: Height and width of the frames, in pixels.

    Raises:
        BadInput: If the size is not a multiple of the patch.
    """

    def __init__(self, config: DVAEConfig, size: tuple[int, int]):
        super().__init__()
        self.patch = 8 if config.coarse_layers else 4
        if any(side % self.patch for side in size):
            raise BadInput(
                f"frames of {size[0]}x{size[1]} cannot be cut into patches of {self.patch}x{self.patch}: "
                f"use a size that is a multiple of {self.patch}"
            )
        self.temperature = config.temperature
        self.grid = (size[0] // self.patch, size[1] // self.patch)
        width, coarse = config.width, config.width * self.patch // 4  # wider where a token stands for more pixels
        self.fine = nn.Sequential(
            *_relu_layers(linear(3 * 4 * 4, width, "relu"), *_same_width(width, config.fine_layers - 1))
        )
        self.join = nn.Sequential()
        if config.coarse_layers:
            self.join = nn.Sequential(
                *_relu_layers(linear(4 * width, coarse, "relu"), *_same_width(coarse, config.coarse_layers - 1))
            )
        self.to_logits = linear(coarse, config.vocabulary)
        self.from_tokens = linear(config.vocabulary, coarse, "relu")
        self.decoder = nn.Sequential(
            *_refine(coarse, self.patch // 2, width),
            *_refine(width, 2, width),
            conv(width, 3, 1),
        )

    @property
    def tokens(self) -> int:
        """N, the number of tokens of a frame."""
        return self.grid[0] * self.grid[1]

    @property
    def vocabulary(self) -> int:
        """V, the number of kinds of tokens."""
        return self.from_tokens.in_features

    def logits(self, frames: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B N V"]:
        """Logits of the token of each patch."""
        patches = rearrange(frames, "b c (h p) (w q) -> b h w (c p q)", p=4, q=4)
        x = self.fine(patches)
        if len(self.join):
            x = self.join(rearrange(x, "b (h two) (w pair) c -> b h w (two pair c)", two=2, pair=2))
        return self.to_logits(x.flatten(1, 2))

    def _noisy(self, logits: Float[Tensor, "B N V"]) -> Float[Tensor, "B N V"]:
        return gumbel_like(logits).add_(logits) if self.training else logits

    def soft_tokens(self, logits: Float[Tensor, "B N V"], update: int) -> Float[Tensor, "B N V"]:
        """A Gumbel-softmax sample; without noise in evaluation.

        softmax((log p + g)/τ) equals softmax((logits + g)/τ): log p and the logits differ by a constant per token.
        """
        return (self._noisy(logits) / self.temperature(update)).softmax(-1)

    def draw_tokens(self, logits: Float[Tensor, "B N V"]) -> Int[Tensor, "B N"]:
        """Tokens sampled with the probabilities of the logits, whatever the temperature; the most likely ones in
        evaluation. No gradient passes."""
        return hard(self._noisy(logits.detach()))

    @torch.no_grad()
    def kinds_in_use(self, frames: Float[Tensor, "B 3 H W"]) -> int:
        """Number of different tokens in these frames; small if the vocabulary has collapsed."""
        return hard(self.logits(frames)).unique().numel()

    def unevenness(self, logits: Float[Tensor, "B N V"]) -> Float[Tensor, ""]:
        """log V − H(p), where p is the expected frequency of each token in these frames: 0 if all tokens are equally
        frequent, log V if only one is used. As a loss it keeps the vocabulary from collapsing."""
        often = logits.flatten(0, 1).softmax(-1).mean(0)
        return math.log(self.vocabulary) + (often * often.clamp_min(1e-9).log()).sum()

    def _picture(self, embedded: Float[Tensor, "B N C"]) -> Float[Tensor, "B 3 H W"]:
        embedded = F.relu(embedded).unflatten(1, self.grid)
        return self.decoder(embedded.permute(0, 3, 1, 2))  # channels last in memory

    def decode_soft(self, soft: Float[Tensor, "B N V"]) -> Float[Tensor, "B 3 H W"]:
        """Pictures from tokens that are distributions over the vocabulary."""
        return self._picture(self.from_tokens(soft))

    def decode(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B 3 H W"]:
        """Decodes hard tokens: the first layer applied to a one-hot vector is a table look-up."""
        return self._picture(F.embedding(tokens, self.from_tokens.weight.t()) + self.from_tokens.bias)

    def pixel_error(self, frames: Float[Tensor, "B 3 H W"], soft: Float[Tensor, "B N V"]) -> Float[Tensor, " B"]:
        """Squared error of the reconstruction, summed over channels and pixels."""
        return (self.decode_soft(soft) - frames).square().sum((1, 2, 3))


def hard(soft: Float[Tensor, "B N V"]) -> Int[Tensor, "B N"]:
    """The tokens of a Gumbel-softmax sample. No gradient passes, so the dVAE learns from pixels alone."""
    return torch.argmax(soft.detach(), dim=-1)
