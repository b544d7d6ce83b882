"""The U-Net of MONet and VONet: an encoder and a decoder with a bottleneck vector.

::

    first ─► down 1 ─► down 2 ─► … ─► down M ─► MLP ─► e          encode
               │skip      │skip          │skip
    logits ◄─ up M ◄─── up M−1 ◄─ … ◄─ up 1 ◄── linear ◄── e      decode

Down-blocks: convolution, instance norm, ReLU, and from the second on a max pooling. Up-blocks: convolution of
[enlarged result of the block below | skip], instance norm, ReLU. The skip of down-block m joins the *input* of
up-block M−m+1, for every m.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.conv import conv_up_and_skip
from vonet.blocks.layers import conv, linear
from vonet.blocks.norm import InstanceNorm
from vonet.errors import BadInput

Modulation = tuple[Float[Tensor, "N _"], Float[Tensor, "N _"]] | None
"""A scale (around zero) and a shift for each channel."""


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """Channels of the blocks and widths at the bottleneck."""

    channels: tuple[int, ...] = (32, 64, 64, 128, 128)
    """Channels of the M down-blocks; the up-blocks mirror them."""
    bottleneck: tuple[int, ...] = (512, 512)
    """Widths of the MLP at the bottleneck; the last is the width of the vector e."""

    def __post_init__(self) -> None:
        for name, widths in (("channels", self.channels), ("bottleneck", self.bottleneck)):
            if not widths or not all(isinstance(width, int) and width > 0 for width in widths):
                raise BadInput(f"the U-Net's {name} are {widths}; they must be whole numbers above 0, at least one")


class UNet(nn.Module):
    """Maps a map `inputs h w` to a map of logits `h w`.

    `encode` takes the output of the first convolution, `first`, because a caller may compute it in a cheaper way (VONet
    shares most of its input among the slots).
    """

    norm: type[InstanceNorm] = InstanceNorm
    logits_bias = True

    def __init__(self, config: UNetConfig, inputs: int, size: tuple[int, int]):
        super().__init__()
        channels, halvings = config.channels, len(config.channels) - 1
        if any(side % 2**halvings or side // 2**halvings < 2 for side in size):
            raise BadInput(
                f"a U-Net of {halvings + 1} levels halves its {size[0]}x{size[1]} map {halvings} times and must end at "
                f"2x2 or more: make both sides multiples of {2**halvings} and at least {2 ** (halvings + 1)}, "
                "or use fewer levels"
            )
        self.size = size
        self.bottom = (channels[-1], *(side // 2**halvings for side in size))
        flat = self.bottom[0] * self.bottom[1] * self.bottom[2]
        self.first = conv(inputs, channels[0], 3, "relu", bias=False)
        self.first_norm = self.norm(channels[0])
        self.down = nn.ModuleList(conv(a, b, 3, "relu", bias=False) for a, b in itertools.pairwise(channels))
        self.down_norms = nn.ModuleList(self.norm(c) for c in channels[1:])
        widths = (flat, *config.bottleneck)
        self.mlp = nn.Sequential(
            *(layer for a, b in itertools.pairwise(widths) for layer in (linear(a, b, "relu"), nn.ReLU()))
        )
        self.expand = linear(widths[-1], flat, "relu")
        mirrored = (*reversed(channels), channels[0])
        self.up = nn.ModuleList(conv(2 * a, b, 3, "relu", bias=False) for a, b in itertools.pairwise(mirrored))
        self.up_norms = nn.ModuleList(self.norm(c) for c in mirrored[1:])
        self.logits = conv(channels[0], 1, 1, bias=self.logits_bias)

    @property
    def width(self) -> int:
        """The width of the bottleneck vector."""
        return self.expand.in_features

    def encode(
        self,
        first: Float[Tensor, "N C h w"],
        scale_shift: Modulation = None,
    ) -> tuple[Float[Tensor, "N E"], list[Tensor]]:
        """The bottleneck vector e, and the skips. `scale_shift` acts after the first normalisation."""
        x = self.first_norm(first)
        if scale_shift is not None:
            scale, shift = (part[:, :, None, None] for part in scale_shift)
            x = torch.addcmul(shift, x, 1 + scale)
        skips = [F.relu_(x)]
        for convolution, norm in zip(self.down, self.down_norms, strict=True):
            skips.append(self._down(skips[-1], convolution, norm))
        return self.mlp(skips[-1].flatten(1)), skips

    def _down(self, x: Tensor, convolution: nn.Module, norm: nn.Module) -> Tensor:
        return F.relu_(F.max_pool2d(norm(convolution(x)), 2))  # ReLU and maximum commute: a quarter of the work

    def decode(self, e: Float[Tensor, "N E"], skips: list[Tensor]) -> Float[Tensor, "N h w"]:
        """The logits of a mask from the bottleneck vector and the maps of the way down."""
        x = F.relu(self.expand(e)).unflatten(1, self.bottom)
        x = self.up[0](torch.cat([x, skips[-1]], dim=1))  # the only up-block whose input is not enlarged
        x = F.relu_(self.up_norms[0](x))
        for convolution, norm, skip in zip(self.up[1:], self.up_norms[1:], reversed(skips[:-1]), strict=True):
            x = F.relu_(norm(conv_up_and_skip(x, skip, convolution.weight)))  # type: ignore[arg-type]
        return self.logits(x).squeeze(1)

    def forward(self, x: Float[Tensor, "N inputs h w"]) -> Float[Tensor, "N h w"]:
        return self.decode(*self.encode(self.first(x)))
