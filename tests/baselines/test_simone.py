"""SIMONe: a whole clip, objects that do not change with time, and pixels painted one by one."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import distributions as td

from tests.baselines.overfitting import overfit, three_clips
from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.simone import SIMONe, SIMONeConfig, pooled, sinusoids, standardised
from vonet.blocks.broadcast import mixture_error
from vonet.errors import BadInput
from vonet.interface import Clip, StreamingModel, total


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.fixture
def model() -> SIMONe:
    return SIMONe(reduced(SIMONeConfig())).eval()


def test_parameter_counts_are_those_of_the_re_implementation():
    model = SIMONe(SIMONeConfig())
    assert count(model.cnn) == 530_816
    assert count(model.cell_transformer[0]) == count(model.slot_transformer[3]) == 1_068_864
    transformers = count(model.cell_transformer) + count(model.slot_transformer)
    assert count(model.entry) + transformers == 8_591_872
    assert count(model.object_head) + count(model.frame_head) == 788_608
    assert count(model.decoder) == 1_087_492
    assert count(model) == 10_998_788
    assert count(SIMONe(SIMONeConfig(layers=1))) == 4_585_604


@pytest.mark.parametrize("level", "abcde")
def test_the_settings_are_the_paper_s(level):
    experiment = experiments.get(f"simone-movi-{level}")
    training = experiment.training
    assert (experiment.model.slots, experiment.model.size) == (16, (64, 64))
    assert (training.batch, training.segment, training.replay) == (40, 24, None)
    group = training.optimizer.groups["model"]
    assert ({group.learning_rate(u) for u in (0, 10**6)}, group.clip) == ({2e-4}, 5.0)
    weights = {name: weight(0) for name, weight in training.weights.items()}
    assert weights == {"reconstruction": 0.2, "object_kl": 1e-5, "frame_kl": 1e-4}


def test_slots_are_the_cells_of_the_grid(model):
    assert SIMONeConfig().slots == (64 // 16) ** 2
    assert experiments.get("simone-laptop-a").model.slots == 8
    assert model.initial_state(2).slots.shape == (2, 4, 0)
    with pytest.raises(BadInput, match="this model has 4"):
        model.initial_state(2, slots=5)
    with pytest.raises(BadInput, match="cannot be pooled"):
        SIMONeConfig(grid=(3, 3))
    with pytest.raises(BadInput, match="pixel_stride"):
        SIMONeConfig(pixel_stride=0)


def test_it_does_not_stream(model):
    assert not isinstance(model, StreamingModel)
    is_first = torch.zeros(1, 3, dtype=torch.bool)
    is_first[0, 0] = True
    model.unroll(Clip(torch.rand(1, 3, 3, 32, 32), is_first))
    is_first[0, 1] = True
    with pytest.raises(BadInput, match="begins inside the clip"):
        model.unroll(Clip(torch.rand(1, 3, 3, 32, 32), is_first))


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_places_have_codes_of_their_own():
    codes = sinusoids((4, 3, 5), 20)
    assert codes.shape == (4, 3, 5, 20)
    assert codes.abs().max() <= 1
    assert len(codes.flatten(0, 2).unique(dim=0)) == 60
    assert not codes.requires_grad
    full = sinusoids((24, 8, 8), 320)  # 108 channels an axis: 54 sines, then 54 cosines
    assert full[7, 0, 0, 3].item() == pytest.approx(math.sin(7 * 10_000 ** (-6 / 108)), abs=1e-5)
    assert full[0, 5, 0, 108 + 54 + 2].item() == pytest.approx(math.cos(5 * 10_000 ** (-4 / 108)), abs=1e-5)
    assert full[0, 0, 6, 216].item() == pytest.approx(math.sin(6), abs=1e-5)


def test_pooling_keeps_the_variance_of_noise_and_is_a_scaled_mean():
    cells = torch.randn(2, 3, 8, 8, 16)
    four, eight = pooled(cells, (4, 4)), pooled(cells, (2, 4))
    means = F.avg_pool2d(cells.permute(0, 1, 4, 2, 3).flatten(0, 1), 2).unflatten(0, (2, 3)).permute(0, 1, 3, 4, 2)
    torch.testing.assert_close(four, 2 * means)
    assert eight.shape == (2, 3, 2, 4, 16)
    for result in (four, eight):
        assert result.var().item() == pytest.approx(1, abs=0.15)


def test_logits_are_standardised_over_the_clip_and_masks_sum_to_one():
    logits = 5 + 30 * torch.randn(2, 3, 4, 10)
    log_masks = standardised(logits)
    torch.testing.assert_close(log_masks.exp().sum(2), torch.ones(2, 3, 10))
    assert torch.equal(log_masks.argmax(2), logits.argmax(2))
    torch.testing.assert_close(log_masks, standardised(0.1 * logits - 7), atol=1e-4, rtol=1e-4)
    by_hand = [(one - one.mean()) / (one.var(unbiased=False) + 1e-5).sqrt() for one in logits]
    torch.testing.assert_close(log_masks, torch.stack(by_hand).log_softmax(2), atol=1e-5, rtol=1e-5)


def test_confidence_has_a_bound():
    """A slot that wins everywhere by the same margin: with 16 slots its probability is 0.81 whatever the margin."""
    logits = torch.zeros(1, 2, 16, 9)
    logits[:, :, 5] = 1e3
    a = math.sqrt(15)
    bound = math.exp(a) / (math.exp(a) + 15 * math.exp(-a / 15))
    assert standardised(logits)[0, 0, 5, 0].exp().item() == pytest.approx(bound, abs=1e-3)
    assert bound == pytest.approx(0.81, abs=0.01)


def test_the_mixture_of_one_slot_is_a_gaussian_and_bounded():
    frames, pictures = torch.rand(2, 3, 4, 4), torch.rand(2, 1, 3, 4, 4)
    error = mixture_error(frames, pictures, torch.zeros(2, 1, 4, 4), 0.08)
    theirs = -td.Normal(pictures[:, 0], 0.08).log_prob(frames).sum((1, 2, 3))
    torch.testing.assert_close(error, theirs, rtol=1e-4, atol=1e-3)
    perfect = mixture_error(frames, frames[:, None], torch.zeros(2, 1, 4, 4), 0.08) / 16
    torch.testing.assert_close(perfect, torch.full((2,), -3 * 1.6067), atol=1e-3, rtol=0)


def test_the_decoder_equals_an_mlp_of_everything_joined(model):
    objects, frames, places = torch.randn(2, 1, 4, 1, 4), torch.randn(2, 3, 1, 1, 4), torch.randn(3, 5, 3)
    colours, logits = model.decoder(objects, frames, places)
    shape = (2, 3, 4, 5)
    joined = [objects.expand(*shape, 4), frames.expand(*shape, 4), places[None, :, None].expand(*shape, 3)]
    x = torch.cat(joined, dim=-1)
    *hidden, last = model.decoder.layers
    for layer in hidden:
        x = F.relu(layer(x))
    torch.testing.assert_close(torch.cat([colours, logits.unsqueeze(-1)], -1), last(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_pixel_depends_on_its_object_its_frame_and_its_place_alone(model):
    objects, frames, places = torch.randn(1, 1, 4, 1, 4), torch.randn(1, 3, 1, 1, 4), torch.randn(3, 5, 3)
    before = model.decoder(objects, frames, places)
    order = torch.tensor([2, 0, 3, 1])
    other = frames.clone()
    other[:, 1] += 1
    permuted, changed = model.decoder(objects[:, :, order], frames, places), model.decoder(objects, other, places)
    for what, of_order, of_frame in zip(before, permuted, changed, strict=True):  # colours, then logits
        torch.testing.assert_close(of_order, what[:, :, order])
        torch.testing.assert_close(of_frame[:, [0, 2]], what[:, [0, 2]])
        assert not torch.allclose(of_frame[:, 1], what[:, 1])


# ---- the whole -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_last_frame_changes_the_masks_of_the_first(model):
    clip = random_clip(1, 4)
    before = model.unroll(clip)
    clip.frames[:, 3] = 1 - clip.frames[:, 3]
    after = model.unroll(clip)
    assert not torch.allclose(before.log_masks[:, 0], after.log_masks[:, 0], atol=1e-6)
    assert (before.slots == before.slots[:, :1]).all()  # objects have no time
    torch.testing.assert_close(before.masks.sum(2), torch.ones(1, 4, 32, 32))


@torch.no_grad()
def test_slots_are_cells_and_so_have_an_order(model):
    clip = random_clip(1, 2)
    mirrored = Clip(clip.frames.flip(-1))
    objects, of_mirror = model.encode(clip.frames)[0].mean, model.encode(mirrored.frames)[0].mean
    assert not torch.allclose(objects[:, [1, 0, 3, 2]], of_mirror, atol=1e-4)


@torch.no_grad()
def test_in_evaluation_nothing_is_drawn_and_everything_is_decoded(model):
    clip = random_clip(2, 3)
    one, other = model(clip), model(clip)
    watched = model.unroll(clip)
    assert torch.equal(one.log_masks, other.log_masks)
    assert torch.equal(one.log_masks, watched.log_masks)
    assert all(torch.equal(one.losses[name], other.losses[name]) for name in one.losses)
    objects, frames = model.encode(clip.frames)
    for name, latents in (("object_kl", objects), ("frame_kl", frames)):
        unit = td.Normal(torch.zeros_like(latents.mean), 1.0)
        theirs = td.kl_divergence(td.Normal(latents.mean, latents.log_std.exp()), unit).sum(-1)
        expected = theirs.mean(1, keepdim=True).expand(2, 3) if name == "object_kl" else theirs
        torch.testing.assert_close(one.losses[name], expected, rtol=1e-4, atol=1e-4)
        assert (one.losses[name] >= 0).all()
    colours, log_masks = model._decode_means(objects, frames)
    means = [mixture_error(clip.frames[:, t], colours[:, t], log_masks[:, t], 0.08) / 32**2 for t in range(3)]
    expected = torch.stack(means).mean(0)[:, None].expand(2, 3)
    torch.testing.assert_close(one.losses["reconstruction"], expected, rtol=1e-4, atol=1e-4)
    assert (one.losses["reconstruction"] >= -4.83).all()


def test_the_divergence_of_the_prior_is_zero(model):
    for head in (model.object_head, model.frame_head):
        torch.nn.init.zeros_(head.mlp[-1].weight)
        torch.nn.init.zeros_(head.mlp[-1].bias)
    losses = model(random_clip(2, 3)).losses
    assert (losses["object_kl"] == 0).all()
    assert (losses["frame_kl"] == 0).all()


@torch.no_grad()
def test_learning_decodes_some_frames_and_pixels_at_their_true_places(model):
    """With latents without noise, what is decoded in training is what evaluation says of the same pixels, before logits
    are standardised; and the targets are those very pixels."""
    seen = {}
    model.pixel_stride = 3
    for head in (model.object_head, model.frame_head):
        head.mlp[-1].bias[4:] = -1e3  # is cut off at −10
    decode = model.decoder.forward
    model.decoder.forward = lambda *inputs: seen.setdefault("out", decode(*inputs))
    chosen = model._chosen
    model._chosen = lambda time: seen.setdefault("chosen", chosen(time))
    clip = random_clip(2, 6)
    output = model.train()(clip)
    which, rows, columns = seen["chosen"]
    assert len(which) == 3
    assert which.tolist() == sorted(set(which.tolist()))
    assert output.log_masks.shape == (2, 3, 4, len(rows), len(columns))
    model.decoder.forward = decode
    objects, frames = model.eval().encode(clip.frames)
    full, _ = model._decode_means(objects, frames)
    picked = full[:, which][..., rows[:, None], columns]
    torch.testing.assert_close(seen["out"][0].mT.unflatten(-1, picked.shape[-2:]), picked, atol=1e-3, rtol=1e-3)
    target = clip.frames[:, which][..., rows[:, None], columns]
    error = mixture_error(target.flatten(0, 1), picked.flatten(0, 1), output.log_masks.flatten(0, 1), 0.08).view(
        2, 3
    ) / (len(rows) * len(columns))
    torch.testing.assert_close(output.losses["reconstruction"][:, 0], error.mean(1), rtol=0.05, atol=0.05)


def test_every_pixel_has_its_turn(model):
    """And each its own place: time from 0 to 1, rows and columns from −1 to 1."""
    model.pixel_stride = 4
    seen = torch.zeros(5, 32, 32)
    for _ in range(200):
        which, rows, columns = model._chosen(5)
        seen[which[:, None, None], rows[:, None], columns] += 1
    assert (seen > 0).all()
    places = model._places(5, torch.tensor([0, 31]), torch.tensor([0, 8, 31]))
    assert places.shape == (5, 6, 3)
    torch.testing.assert_close(places[2, 4], torch.tensor([0.5, 1.0, -1 + 16 / 31]))
    assert places[4, 5].tolist() == [1, 1, 1]


@torch.no_grad()
def test_noise_is_of_the_latents_own_size(model):
    """Hardly any at the smallest log standard deviation, plenty at zero; drawn for each pixel by itself."""
    clip = random_clip(1, 4)
    torch.nn.init.zeros_(model.object_head.mlp[-1].weight)
    torch.nn.init.zeros_(model.frame_head.mlp[-1].weight)
    spread, seen = {}, []
    decode = model.decoder.forward
    model.decoder.forward = lambda objects, *rest: seen.append(objects) or decode(objects, *rest)
    for log_std in (-50.0, 0.0, 50.0):
        seen.clear()
        for head in (model.object_head, model.frame_head):
            head.mlp[-1].bias[4:] = log_std
        model.train()(clip)
        spread[log_std] = seen[0].std().item()
    assert spread[-50.0] < 1e-3
    assert spread[0.0] == pytest.approx(1, abs=0.1)
    assert spread[50.0] == pytest.approx(math.exp(3), rel=0.1)
    assert seen[0].shape[3] > 1


def test_everything_learns_but_what_softmax_ignores(model):
    model.train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    losses = model(random_clip(2, 4)).losses
    total(losses, dict.fromkeys(losses, 1.0)).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    bias = model.decoder.layers[-1].bias.grad.abs()
    assert bias[3] < 1e-4 * bias[:3].max()
    for layer in (*model.cell_transformer, *model.slot_transformer):
        _, key, value = layer.self_attn.in_proj_bias.grad.abs().view(3, -1)
        assert key.max() < 1e-3 * value.max()


def test_three_clips_are_learned_by_heart():
    config = replace(reduced(experiments.get("simone-laptop-a").model), decoder=(32, 32, 32), pixel_stride=2)
    weights = {"reconstruction": 0.2, "object_kl": 1e-5, "frame_kl": 1e-4}
    seen = overfit(SIMONe(config), three_clips(), weights, steps=110, rate=5e-3)
    of_one_colour = three_clips().frames.var((3, 4)).sum(2).mean().item() / (2 * config.sigma**2)
    at_best = 3 * (math.log(config.sigma) + 0.5 * math.log(2 * math.pi))
    assert seen[-1]["reconstruction"] - at_best < 0.65 * of_one_colour
