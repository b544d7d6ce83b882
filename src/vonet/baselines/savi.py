"""SAVi: Conditional Object-Centric Learning from Video (Kipf and others, ICLR 2022), without its conditioning.

Recurrent slot attention: each slot is decoded to a picture and a mask, and their blend must reconstruct the frame::

    p_0 = ε ~ N(0, I)
    c_t = Correct(p_{t−1}, x_t)                        slot attention, one iteration (blocks/slot_attention.py)
    (μ_{tk}, α̂_{tk}) = Dec(c_{tk}),  α = softmax_k α̂   spatial broadcast, transposed 5x5 convolutions
    p_t = Predict(c_t)                                 one post-norm transformer block
    loss = Σ_t ‖x_t − Σ_k α_{tk} μ_{tk}‖²              a sum over pixels and colours; the masks are α

The settings are those of the VONet paper (its appendix): no conditioning, slots from unit Gaussian noise, a ResNet of
nine layers.

Deviations. Deviations from the released code (C), which has no unconditional setting. Weights are initialised as
everywhere in vonet (truncated normal by fan-in, with a gain before ReLU; small biases of convolutions; torch's default
in the predictor), where C uses LeCun's initialisation and zeros. Strided and transposed convolutions are padded
symmetrically, where C uses Flax's padding, which shifts maps by a cell. A small constant is added to each attention
weight, where C adds it to their sum. Norms have ε = 1e-5 instead of 1e-6. The GRU has torch's two biases (256
parameters more). Segments may begin at any frame, where C cuts videos into fixed segments. According to reports, the
paper uses two iterations with an MLP between them, where C has one: `SlotAttentionConfig` has both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vonet.blocks.broadcast import SpatialBroadcast, SpatialBroadcastConfig, blend, blend_error
from vonet.blocks.frame_vectors import ConvStackConfig, FrameVectors, ResNetConfig, centred_grid
from vonet.blocks.recurrent_slots import RecurrentSlots
from vonet.blocks.slot_attention import SlotAttention, SlotAttentionConfig
from vonet.blocks.transformer import check_heads
from vonet.errors import BadInput, check_choice
from vonet.interface import (
    Clip,
    Enlargement,
    Explanation,
    Output,
    SlotState,
    StreamingModel,
    VideoModel,
    check_size,
    check_slots,
)

SQUARED_ERROR = 0.5**0.5
"""The σ for which (x − μ)² / 2σ² = (x − μ)²."""


@dataclass(frozen=True, kw_only=True)
class SAViConfig:
    """SAVi with the VONet paper's settings for MOVi-A."""

    size: tuple[int, int] = (128, 128)
    slots: int = 11
    """Default number of slots; no parameter depends on it."""
    slot_dim: int = 128
    backbone: ResNetConfig | ConvStackConfig = field(default_factory=ResNetConfig)
    vector_hidden: int = 64
    """Hidden width of the MLP on the feature vectors of a frame."""
    attention: SlotAttentionConfig = field(default_factory=SlotAttentionConfig)
    predictor_heads: int = 4
    predictor_hidden: int = 256
    decoder: SpatialBroadcastConfig = field(default_factory=lambda: SpatialBroadcastConfig(kernel=5))
    reduction: int = 1
    """Frame and masks are reconstructed at the frame's size divided by this."""
    enlargement: Enlargement = "nearest"
    """How masks are then enlarged to the frame's size."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", tuple(self.size))  # a list, as JSON has it, will do
        check_size(self.size)
        check_slots(self.slots)
        check_heads(self.slot_dim, self.predictor_heads)
        check_choice("enlargement", self.enlargement, Enlargement)
        if self.reduction < 1 or any(side % self.reduction for side in self.size):
            raise BadInput(
                f"frames of {self.size[0]}x{self.size[1]} cannot be reduced {self.reduction} times: use a number that "
                "divides both sides"
            )

    @property
    def losses(self) -> tuple[str, ...]:
        return ("reconstruction",)

    def build(self) -> SAVi:
        return SAVi(self)


class SAVi(RecurrentSlots):
    """Recurrent slot attention with a spatial-broadcast decoder. The masks are the decoder's."""

    def __init__(self, config: SAViConfig):
        D, heads = config.slot_dim, config.predictor_heads
        vectors = FrameVectors(config.backbone, config.vector_hidden, centred_grid, config.size)
        attention = SlotAttention(config.attention, vectors.width, D)
        predictor = nn.TransformerEncoderLayer(D, heads, config.predictor_hidden, dropout=0.0, batch_first=True)
        super().__init__(config.size, config.slots, D, config.enlargement, vectors, attention, predictor)
        self.reduction = config.reduction
        self.cells = (config.size[0] // config.reduction, config.size[1] // config.reduction)
        self.decoder = SpatialBroadcast(config.decoder, D, 4, self.cells)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # else each convolution copies its weight

    def fresh(self, noise: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        return noise

    def decode(self, slots: Float[Tensor, "B K D"]) -> tuple[Float[Tensor, "B K 3 h w"], Float[Tensor, "B K h w"]]:
        """The picture of each slot, and log α, the logarithm of its mask."""
        colours, logits = self.decoder(slots).split([3, 1], dim=2)
        return colours, logits.squeeze(2).log_softmax(dim=1)

    def log_masks(
        self, slots: Float[Tensor, "B K D"], log_attention: Float[Tensor, "B K cells"]
    ) -> Float[Tensor, "B K h w"]:
        return self.decode(slots)[1]

    def forward(self, clip: Clip, state: SlotState | None = None, update: int = 0) -> Output:
        """Computes masks of a clip and the reconstruction error of its frames."""
        batch_time = clip.frames.shape[:2]
        seen, last = self.watch(clip, state)
        colours, log_masks = self.decode(seen.slots.flatten(0, 1))
        target = F.avg_pool2d(clip.frames.flatten(0, 1), self.reduction)
        error = blend_error(target, colours, log_masks, SQUARED_ERROR)
        output = self._output(seen, log_masks.unflatten(0, batch_time), last)
        return replace(output, losses={"reconstruction": error.unflatten(0, batch_time)})

    @torch.no_grad()
    def pictures(self, output: Output) -> Float[Tensor, "B T 3 H W"]:
        """The frames as feature vectors, the input of slot attention."""
        painted = [blend(*self.decode(slots)) for slots in output.slots.unbind(1)]
        enlarged = [F.interpolate(x, size=self.size, mode="bilinear", align_corners=False) for x in painted]
        return torch.stack(enlarged, dim=1).clamp(0, 1)

    def explain(self, output: Output) -> Explanation:
        return Explanation(reconstruction=self.pictures(output))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"model": list(self.parameters())}


if TYPE_CHECKING:

    def _keeps_the_contract(model: SAVi) -> tuple[VideoModel[SlotState], StreamingModel[SlotState]]:
        return model, model
