"""MONet's equations and invariants."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests.baselines.overfitting import overfit, three_clips
from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.monet import MONet, MONetConfig
from vonet.blocks.broadcast import mask_divergence, mixture_error
from vonet.blocks.component import ComponentDecoder, ComponentDecoderConfig, components
from vonet.blocks.gaussian import Gaussian, kl_divergence, unit_divergence
from vonet.blocks.scope import break_stick
from vonet.blocks.unet import UNetConfig
from vonet.errors import BadInput


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.fixture
def model():
    torch.manual_seed(0)
    return MONet(reduced(MONetConfig())).eval()


def forced(*logits):
    return break_stick(lambda k, scope: torch.full_like(scope, logits[k]), torch.zeros(1, 2, 2), len(logits) + 1)


# ---- stick breaking --------------------------------------------------------------------------------------------------


def test_what_a_slot_takes_is_taken_from_its_scope():
    scopes = []

    def attend(k, log_scope):
        scopes.append(log_scope)
        return torch.randn_like(log_scope)

    log_masks = break_stick(attend, torch.zeros(2, 5, 5), 4)
    masks, left = log_masks.exp(), [scope.exp() for scope in scopes]
    torch.testing.assert_close(masks.sum(1), torch.ones(2, 5, 5))
    for k in range(2):
        assert (left[k + 1] <= left[k]).all()
        torch.testing.assert_close(left[k], masks[:, k] + left[k + 1])
    torch.testing.assert_close(masks[:, 2] + masks[:, 3], left[2])


def test_all_or_nothing():
    everything = forced(50.0, 0.0, 0.0).exp()
    assert torch.allclose(everything[:, 0], torch.ones(1, 2, 2), atol=1e-6)
    assert (everything[:, 1:] < 1e-6).all()
    nothing = forced(-50.0, -50.0, -50.0).exp()
    assert torch.allclose(nothing[:, -1], torch.ones(1, 2, 2), atol=1e-6)
    assert torch.isfinite(forced(1e4, -1e4, 1e4)).all()


def test_one_slot_takes_everything_without_a_look(model, monkeypatch):
    monkeypatch.setattr(type(model.unet), "encode", lambda *_: pytest.fail("the U-Net was asked"))
    clip = random_clip(1, 1)
    output = model(clip, model.initial_state(1, slots=1))
    assert torch.equal(output.masks, torch.ones(1, 1, 1, 32, 32))
    assert output.losses["masks"].abs().max() < 1e-4


@torch.no_grad()
def test_more_slots_share_what_the_last_one_had(model):
    frames = torch.rand(2, 3, 32, 32)
    few, many = model.attend(frames, 3).exp(), model.attend(frames, 5).exp()
    torch.testing.assert_close(few[:, :2], many[:, :2])
    torch.testing.assert_close(few[:, 2], many[:, 2:].sum(1), atol=1e-5, rtol=1e-5)


# ---- the mixture -----------------------------------------------------------------------------------------------------


def test_the_mixture_is_taken_per_colour_channel():
    """Two slots, one pixel, by hand; a product of the channels inside the mixture would be another number."""
    frame = torch.tensor([0.2, 0.5, 0.9]).view(1, 3, 1, 1)
    pictures = torch.tensor([[0.2, 0.4, 0.8], [0.3, 0.5, 0.1]]).view(1, 2, 3, 1, 1)
    masks, sigmas = torch.tensor([0.3, 0.7]), torch.tensor([0.09, 0.11])
    nll = 0.0
    for c in range(3):
        density = 0.0
        for k in range(2):
            z = (frame.flatten()[c] - pictures[0, k, c, 0, 0]) / sigmas[k]
            density += masks[k] * math.exp(-0.5 * z**2) / (sigmas[k] * math.sqrt(2 * math.pi))
        nll -= math.log(density)
    found = mixture_error(frame, pictures, masks.log().view(1, 2, 1, 1), sigmas)
    assert found.item() == pytest.approx(nll, rel=1e-5)


def test_the_best_that_can_be_said_of_a_pixel():
    frame, one = torch.rand(1, 3, 4, 4), torch.zeros(1, 1, 4, 4)
    for sigma, nats in ((0.09, -1.49), (0.11, -1.29)):
        assert mixture_error(frame, frame[:, None], one, sigma).item() / 48 == pytest.approx(nats, abs=5e-3)


def test_the_first_slot_is_special():
    """Exchanging slots changes the likelihood only because σ_1 differs."""
    frame, pictures = torch.rand(1, 3, 4, 4), torch.rand(1, 2, 3, 4, 4)
    log_masks = torch.randn(1, 2, 4, 4).log_softmax(1)
    swapped = pictures.flip(1), log_masks.flip(1)
    for sigmas, same in ((torch.tensor([0.11, 0.11]), True), (torch.tensor([0.09, 0.11]), False)):
        one, other = mixture_error(frame, pictures, log_masks, sigmas), mixture_error(frame, *swapped, sigmas)
        assert torch.allclose(one, other) == same


def test_divergence_of_masks():
    log_masks = torch.randn(2, 3, 4, 4).log_softmax(1)
    assert mask_divergence(log_masks, log_masks).abs().max() < 1e-6
    assert (mask_divergence(log_masks, torch.randn(2, 3, 4, 4).log_softmax(1)) > 0).all()
    hard = forced(1e4, 0.0)  # a mask of exactly zero is no trouble
    assert torch.isfinite(mask_divergence(hard, torch.zeros(1, 3, 2, 2).log_softmax(1))).all()
    one, other = (torch.randn(1, 3, 4, 4, requires_grad=True) for _ in range(2))
    mask_divergence(one.log_softmax(1), other.log_softmax(1)).sum().backward()
    assert min(one.grad.abs().max(), other.grad.abs().max()) > 0  # both sides learn


def test_divergence_from_the_unit_gaussian():
    q = Gaussian(torch.randn(3, 4), torch.randn(3, 4))
    unit = Gaussian(torch.zeros(3, 4), torch.zeros(3, 4))
    torch.testing.assert_close(unit_divergence(q), kl_divergence(q, unit))
    assert unit_divergence(unit).abs().max() == 0


# ---- the component VAE -----------------------------------------------------------------------------------------------


def plain_decoder(decoder, latents):
    """As the paper says it: the vector tiled over a larger map, coordinates, four convolutions without padding."""
    flat = latents.flatten(0, 1)
    h, w = decoder.coordinates.shape[-2:]
    x = torch.cat([flat[:, :, None, None].expand(-1, -1, h, w), decoder.coordinates.expand(len(flat), -1, -1, -1)], 1)
    for layer in decoder.layers:
        x = F.relu(layer(x))
    x = decoder.output(x).unflatten(0, latents.shape[:2])
    return x[:, :, :3], x[:, :, 3]


def test_the_decoder_is_the_plain_one():
    decoder = ComponentDecoder(ComponentDecoderConfig(channels=(5, 6, 7)), 4, (12, 8)).double()
    latents = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    gradients = []
    for form in (decoder, lambda z: plain_decoder(decoder, z)):
        pictures, logits = form(latents)
        assert pictures.shape == (2, 3, 3, 12, 8)
        gradients.append([pictures, logits, *torch.autograd.grad((pictures.square().sum() + logits.sum()), latents)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_a_decoder_at_a_reduced_size_gives_the_full_one():
    decoder = ComponentDecoder(ComponentDecoderConfig(reduction=2), 4, (16, 16))
    assert decoder(torch.randn(1, 2, 4))[0].shape == (1, 2, 3, 16, 16)
    with pytest.raises(BadInput, match="cannot be reduced 3 times"):
        ComponentDecoder(ComponentDecoderConfig(reduction=3), 4, (16, 16))


@torch.no_grad()
def test_slots_are_encoded_and_painted_on_their_own(model):
    """Permuting the masks permutes latents and pictures; the masks themselves have an order."""
    frames = torch.rand(1, 3, 32, 32)
    log_masks = torch.randn(1, 4, 32, 32).log_softmax(1)
    order = [2, 0, 3, 1]
    q, permuted = model.encode(frames, log_masks), model.encode(frames, log_masks[:, order])
    torch.testing.assert_close(q.mean[:, order], permuted.mean)
    pictures, permuted_pictures = model.decoder(q.mean)[0], model.decoder(permuted.mean)[0]
    torch.testing.assert_close(pictures[:, order], permuted_pictures)
    assert not torch.allclose(model.attend(frames, 4)[:, 0], model.attend(frames, 4)[:, 1], atol=1e-3)


@torch.no_grad()
def test_one_slot_is_a_plain_vae(model):
    """A Gaussian around its picture with the first slot's σ, and the divergence of its latent."""
    clip = random_clip(2, 1)
    losses = model(clip, model.initial_state(2, slots=1)).losses
    q = model.encode(clip.frames[:, 0], torch.zeros(2, 1, 32, 32))
    pixel = torch.distributions.Normal(model.decoder(q.mean)[0][:, 0], 0.09)
    likelihood = pixel.log_prob(clip.frames[:, 0]).sum((1, 2, 3))
    torch.testing.assert_close(losses["reconstruction"][:, 0], -likelihood, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(losses["kl"][:, 0], unit_divergence(q)[:, 0])


def test_the_paper_s_settings():
    for level, slots in zip("abcde", (11, 11, 11, 16, 16), strict=True):
        made = experiments.get(f"monet-movi-{level}")
        assert (made.model.slots, made.model.size, made.training.segment) == (slots, (128, 128), 1)
        assert {name: weight(0) for name, weight in made.training.weights.items()} == {
            "reconstruction": 1,
            "kl": 1,
            "masks": 2,
        }
        assert (made.model.sigma_first, made.model.sigma, made.model.initial_log_std) == (0.09, 0.11, 0)


@torch.no_grad()
def test_latents_may_begin_with_little_noise():
    found = []
    for start in (0.0, -2.0):
        torch.manual_seed(0)
        model = MONet(replace(reduced(MONetConfig()), initial_log_std=start))
        frames = torch.rand(2, 3, 32, 32)
        found.append(model.encode(frames, torch.randn(2, 4, 32, 32).log_softmax(1)))
    torch.testing.assert_close(found[1].log_std, found[0].log_std - 2)
    assert torch.equal(found[1].mean, found[0].mean)


def test_components_are_the_frame_and_each_mask():
    frames, maps = torch.rand(2, 3, 4, 4), torch.rand(2, 5, 4, 4)
    found = components(frames, maps).unflatten(0, (2, 5))
    assert torch.equal(found[:, 3, :3], frames)
    assert torch.equal(found[:, :, 3], maps)


@torch.no_grad()
def test_the_shared_part_of_the_first_convolution(model):
    """Each pass is the U-Net of frame and scope."""
    frames = torch.rand(2, 3, 32, 32)
    plain = break_stick(
        lambda k, s: model.unet(torch.cat([frames, s.exp().unsqueeze(1)], dim=1)), torch.zeros(2, 32, 32), 4
    )
    torch.testing.assert_close(model.attend(frames, 4), plain, atol=1e-4, rtol=1e-4)


# ---- learning --------------------------------------------------------------------------------------------------------


def test_four_slots_explain_squares_better_than_one():
    """In nats for each colour of a pixel, at the end of the same few updates; one slot has the sharper σ besides."""
    weights, clip, nats = {"reconstruction": 1.0, "kl": 0.1, "masks": 0.1}, three_clips(time=1), {}
    for slots in (1, 4):
        torch.manual_seed(0)
        seen = overfit(MONet(replace(reduced(MONetConfig()), slots=slots)), clip, weights, steps=110, rate=5e-3)
        nats[slots] = sum(losses["reconstruction"] for losses in seen[-20:]) / 20 / clip.frames[0].numel()
    assert nats[4] < nats[1] - 0.1
    assert nats[4] < -0.4


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_sizes_at_64_and_128():
    full = experiments.get("monet-movi-c").build_model()
    assert (count(full.unet), count(full.decoder)) == (3_655_777, 46_916)
    assert count(ComponentDecoder(ComponentDecoderConfig(), 16, (64, 64))) == 33_092
    assert full.unet.bottom == (128, 4, 4)
    small = experiments.get("monet-laptop-a").build_model()
    with torch.no_grad():
        step, _ = small.step(torch.rand(1, 3, 64, 64), small.initial_state(1))
        large, _ = full.eval().step(torch.rand(1, 3, 128, 128), full.initial_state(1, slots=2))
    assert (step.masks.shape, large.masks.shape) == ((1, 7, 64, 64), (1, 2, 128, 128))


def test_bad_options_are_refused():
    with pytest.raises(BadInput, match="more than 0"):
        MONetConfig(sigma=0.0)
    with pytest.raises(BadInput, match="two positive integers"):
        MONetConfig(size=(64, 0))
    with pytest.raises(BadInput, match="fewer levels"):
        MONet(MONetConfig(size=(48, 48)))
    assert replace(MONetConfig(), unet=UNetConfig()).slots == 11
