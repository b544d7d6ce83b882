"""Masks that are corrected by the colours of the pixels, and their plain forms."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from vonet.errors import BadInput
from vonet.variants.slot_colours import CorrectionConfig, MeanColoursConfig, PaintedColoursConfig

GREY = torch.full((3,), 0.6)


def inputs():
    torch.manual_seed(0)
    log_masks, log_alphas = (2 * torch.randn(2, 2, 4, 6, 5)).double().log_softmax(2).unbind(0)
    return log_masks, log_alphas, torch.rand(2, 4, 3, 6, 5).double(), torch.rand(2, 3, 6, 5).double()


def up_to_a_constant(found, expected):
    """The likelihood of each pixel in one slot relative to that in another."""
    torch.testing.assert_close(found - found[:, :1], expected - expected[:, :1])


def test_painted_colours_are_gaussians_around_what_is_painted():
    _, log_alphas, colours, frames = inputs()
    found = PaintedColoursConfig(sigma=0.3)(colours, log_alphas, frames)
    up_to_a_constant(found, Normal(colours, 0.3).log_prob(frames[:, None]).sum(2))


def test_mean_colours_are_gaussians_that_are_longer_along_grey():
    """Slot by slot and pixel by pixel, with the covariance matrix in full."""
    _, log_alphas, colours, frames = inputs()
    along = torch.full((3, 3), 1 / 3, dtype=torch.float64)  # the projection on (1, 1, 1) / √3
    covariance = 0.2**2 * along + 0.06**2 * (torch.eye(3, dtype=torch.float64) - along)
    expected = torch.zeros_like(log_alphas)
    for b in range(2):
        for k in range(4):
            alpha = log_alphas[b, k].exp()
            mean = sum(alpha[y, x] * colours[b, k, :, y, x] for y in range(6) for x in range(5)) / (alpha.sum() + 1e-3)
            likelihood = MultivariateNormal(mean, covariance)
            for y in range(6):
                for x in range(5):
                    expected[b, k, y, x] = likelihood.log_prob(frames[b, :, y, x])
    up_to_a_constant(MeanColoursConfig(brightness=0.2, chroma=0.06)(colours, log_alphas, frames), expected)


@pytest.mark.parametrize("colours", [PaintedColoursConfig(), MeanColoursConfig()])
def test_corrected_masks_are_bayes_rule(colours):
    """m'_k ∝ √(m_k alpha_k) p(x | k), pixel by pixel."""
    log_masks, log_alphas, painted, frames = inputs()
    likelihood = colours(painted, log_alphas, frames).exp()
    joint = (log_masks.exp() * log_alphas.exp()).sqrt() * likelihood
    found = CorrectionConfig(colours=colours)(log_masks, log_alphas, painted, frames).exp()
    torch.testing.assert_close(found, joint / joint.sum(1, keepdim=True))
    assert (found.argmax(1) != log_masks.argmax(1)).any()


def test_without_colours_the_two_masks_are_combined():
    """m'_k ∝ √(m_k alpha_k), whatever the pixels are."""
    log_masks, log_alphas, painted, frames = inputs()
    joint = (log_masks.exp() * log_alphas.exp()).sqrt()
    combine = CorrectionConfig(colours=None)
    found = combine(log_masks, log_alphas, painted, frames)
    torch.testing.assert_close(found.exp(), joint / joint.sum(1, keepdim=True))
    assert torch.equal(found, combine(log_masks, log_alphas, painted, 1 - frames))


@pytest.mark.parametrize("colours", [PaintedColoursConfig(), MeanColoursConfig()])
def test_equal_colours_leave_the_masks_as_they_are(colours):
    log_masks, _, _, frames = inputs()
    painted = torch.full((2, 4, 3, 6, 5), 0.4).double()
    found = CorrectionConfig(colours=colours)(log_masks, log_masks, painted, frames)
    torch.testing.assert_close(found, log_masks, atol=0.05, rtol=0)  # up to NEARLY_EMPTY


def test_the_mean_colour_gives_a_shadow_to_the_background_and_the_painted_colour_to_the_object():
    """A turquoise object above its shadow on a grey floor. Both masks are unsure of the shadow, which the slot of the
    object paints as well."""
    turquoise, shadow = torch.tensor([0.2, 0.6, 0.6]), 0.65 * GREY
    frame = torch.stack([GREY, turquoise, turquoise, shadow], dim=-1)[None, :, None]  # 1 3 1 4
    painted = torch.stack([GREY[:, None, None].expand(3, 1, 4), frame[0]])[None]  # of the floor, of the object
    alphas = torch.tensor([[[0.99, 0.01, 0.01, 0.5]], [[0.01, 0.99, 0.99, 0.5]]])[None].log()
    for colours, owner in ((PaintedColoursConfig(), 1), (MeanColoursConfig(), 0)):
        found = CorrectionConfig(colours=colours)(alphas, alphas, painted, frame)
        assert found.argmax(1)[0, 0].tolist() == [0, 1, 1, owner]


def test_light_and_shade_stay_with_their_object():
    """The dark side of a pale yellow object is nearer in colour to a dark blue one, but only by its brightness."""
    yellow, blue = torch.tensor([0.7, 0.7, 0.5]), torch.tensor([0.25, 0.25, 0.45])
    dark_side = torch.tensor([0.4, 0.4, 0.3])
    assert (dark_side - blue).norm() < (dark_side - yellow).norm()
    frame = torch.stack([yellow, blue, dark_side], dim=-1)[None, :, None]
    painted = torch.stack([yellow, blue])[None, :, :, None, None].expand(1, 2, 3, 1, 3)
    alphas = torch.tensor([[[0.99, 0.01, 0.5]], [[0.01, 0.99, 0.5]]])[None].log()
    for colours, owner in ((MeanColoursConfig(brightness=0.06), 1), (MeanColoursConfig(), 0)):
        assert CorrectionConfig(colours=colours)(alphas, alphas, painted, frame).argmax(1)[0, 0, 2] == owner


def test_an_empty_slot_has_a_mean_colour():
    """In float32 its share of every pixel is zero, and so is the sum of its colours."""
    log_alphas = torch.tensor([0.0, -200.0])[None, :, None, None].expand(1, 2, 3, 3)
    painted = torch.full((1, 2, 3, 3, 3), 0.5)
    assert log_alphas[:, 1].exp().sum() == 0
    assert CorrectionConfig()(log_alphas, log_alphas, painted, painted[:, 0]).isfinite().all()


@pytest.mark.parametrize(
    ("part", "options"),
    [
        (PaintedColoursConfig, {"sigma": 0.0}),
        (MeanColoursConfig, {"brightness": -1.0}),
        (MeanColoursConfig, {"chroma": 0.0}),
    ],
)
def test_colours_without_width_are_refused(part, options):
    with pytest.raises(BadInput, match="more than 0"):
        part(**options)
