"""Corrects masks by the colours of the pixels. An addition to the object decoder.

::

    attention's masks m, decoder's masks alpha ──► prior of each pixel's slot ──┐
                                                                                ├─► Bayes' rule ──► corrected masks
    pixel x, colours of the slots ──► likelihood of the pixel in each slot ─────┘

Why: attention and decoder work from vectors and know an object's outline only roughly. The pixels near the outline tell
which of two slots they belong to. The slots' masks and colours are learned. The likelihood has a fixed form and fixed
standard deviations.

Measured on close-ups: docs/log/closeup.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from vonet.errors import BadInput

NEARLY_EMPTY = 1e-3
"""In pixels. The mean colour of a slot with much less area is nearly black, so very dark pixels may go to it."""


@dataclass(frozen=True, kw_only=True)
class PaintedColoursConfig:
    """A pixel is compared with the colour that a slot paints there: −|c_k − x|² / 2 sigma². A slot may have any
    texture. But the slot of an object also paints the object's shadow, and so gets its pixels."""

    sigma: float = 0.07
    """Standard deviation of a pixel's colour around its slot's colour. A smaller value trusts the colours more."""

    def __post_init__(self) -> None:
        _check_positive("sigma", self.sigma)

    def __call__(
        self,
        colours: Float[Tensor, "B K 3 h w"],
        log_alphas: Float[Tensor, "B K h w"],
        frames: Float[Tensor, "B 3 h w"],
    ) -> Float[Tensor, "B K h w"]:
        """The logarithm of each pixel's likelihood, up to a constant."""
        return (colours - frames.unsqueeze(1)).square().sum(2) / (-2 * self.sigma**2)


@dataclass(frozen=True, kw_only=True)
class MeanColoursConfig:
    """A pixel is compared with the mean of the colours that a slot paints in its mask. Light and shade change the
    brightness of an object more than its hue, so brightness has a larger standard deviation. A shadow has the hue of
    the background and not that of the object that casts it, so it goes to the background."""

    brightness: float = 0.2
    """Standard deviation along the grey axis (1, 1, 1) / √3, for colours from 0 to 1."""
    chroma: float = 0.06
    """Standard deviation in the two directions at right angles to the grey axis."""

    def __post_init__(self) -> None:
        _check_positive("brightness", self.brightness)
        _check_positive("chroma", self.chroma)

    def __call__(
        self,
        colours: Float[Tensor, "B K 3 h w"],
        log_alphas: Float[Tensor, "B K h w"],
        frames: Float[Tensor, "B 3 h w"],
    ) -> Float[Tensor, "B K h w"]:
        """The logarithm of each pixel's likelihood, up to a constant."""
        alphas = log_alphas.exp().unsqueeze(2)
        mean = (alphas * colours).sum((-2, -1), keepdim=True) / (alphas.sum((-2, -1), keepdim=True) + NEARLY_EMPTY)
        apart = frames.unsqueeze(1) - mean
        along_grey = apart.sum(2).square() / 3
        across = apart.square().sum(2) - along_grey
        return along_grey / (-2 * self.brightness**2) + across / (-2 * self.chroma**2)


@dataclass(frozen=True, kw_only=True)
class CorrectionConfig:
    """Corrected masks: m'_k ∝ √(m_k alpha_k) p(x | k), pixel by pixel (Bayes' rule), where m are the attention's masks,
    alpha the decoder's, and p(x | k) the likelihood of the pixel x in slot k."""

    colours: PaintedColoursConfig | MeanColoursConfig | None = field(default_factory=MeanColoursConfig)
    """How the likelihood is computed. None: it is the same in all slots, so the two masks are combined without the
    pixels."""

    def __call__(
        self,
        log_masks: Float[Tensor, "B K h w"],
        log_alphas: Float[Tensor, "B K h w"],
        colours: Float[Tensor, "B K 3 h w"],
        frames: Float[Tensor, "B 3 h w"],
    ) -> Float[Tensor, "B K h w"]:
        """The logarithms of the corrected masks."""
        prior = (log_masks + log_alphas) / 2
        if self.colours is None:
            return prior.log_softmax(dim=1)
        return (prior + self.colours(colours, log_alphas, frames)).log_softmax(dim=1)


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise BadInput(f"{name} is {value}; it must be more than 0")
