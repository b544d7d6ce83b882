"""Facts about VONet that hold whatever its weights."""

import subprocess
import sys
from dataclasses import replace

import jaxtyping
import pytest
import torch

from tests import plain
from tests.reduced import random_clip, reduced, small_model
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.errors import BadInput
from vonet.interface import Clip, total
from vonet.model.attention import ContextMapConfig, DotAttention, DotAttentionConfig, UNetAttention
from vonet.model.backbone import BackboneConfig
from vonet.model.sequential_vae import SequentialVAEConfig
from vonet.model.slots import SlotEncoderConfig, Trajectory, TrajectoryConfig
from vonet.model.vonet import VONet, VONetConfig
from vonet.variants.broadcast_decoder import BroadcastDecoder, BroadcastDecoderConfig
from vonet.variants.mask_pooling import MaskPoolingConfig
from vonet.variants.normed_attention import NormedAttention
from vonet.variants.reduced_unet import ReducedUNetAttention, ReducedUNetAttentionConfig
from vonet.variants.scale_shift import ScaleShiftConfig

PAPER = VONetConfig()
ATTENTION = PAPER.attention
KINDS = {
    "paper": PAPER,
    "scale-shift": replace(PAPER, attention=replace(ATTENTION, conditioning=ScaleShiftConfig())),
    "dot": replace(PAPER, attention=DotAttentionConfig()),
    "blend": replace(PAPER, decoder=BroadcastDecoderConfig(reading="blend"), enlargement="bilinear"),
    "mixture": replace(PAPER, decoder=BroadcastDecoderConfig(reading="mixture", reduction=2)),
    "variants": replace(
        PAPER,
        attention=ReducedUNetAttentionConfig(conditioning=ScaleShiftConfig()),
        slot_encoder=MaskPoolingConfig(),
        decoder=BroadcastDecoderConfig(reduction=2),
        enlargement="bilinear",
    ),
    "no-prior": replace(PAPER, sequential_vae=SequentialVAEConfig(prior=None)),
}


@pytest.fixture(params=KINDS)
def model(request) -> VONet:
    """Every kind of VONet, in evaluation mode and with weights away from their symmetric start."""
    model = small_model(KINDS[request.param]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def assert_outputs_close(ours, theirs, tolerance=1e-5):
    for name in ("log_masks", "slots", "previous_slots"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), atol=tolerance, rtol=tolerance)


def test_masks_sum_to_one(model):
    output = model.unroll(random_clip(2, 3))
    torch.testing.assert_close(output.log_masks.logsumexp(dim=2), torch.zeros(2, 3, 16, 16), atol=1e-5, rtol=0)
    assert output.masks.shape == (2, 3, 4, 32, 32)
    torch.testing.assert_close(output.masks.sum(dim=2), torch.ones(2, 3, 32, 32))
    assert torch.isfinite(output.log_masks).all()


def test_masks_sum_to_one_at_extreme_logits():
    model = small_model()
    with torch.no_grad():
        model.attention.unet.logits.weight *= 1e4
        model.attention.estimate.key.weight *= 1e4
    output, _ = model.step(torch.rand(2, 3, 32, 32), model.initial_state(2))
    assert output.log_masks.min() < -1e3  # extreme indeed
    torch.testing.assert_close(output.log_masks.logsumexp(dim=1), torch.zeros(2, 16, 16), atol=1e-3, rtol=0)
    torch.testing.assert_close(output.masks.sum(dim=1), torch.ones(2, 32, 32))


def test_permuting_the_slots_permutes_everything_and_leaves_the_losses(model):
    clip, order = random_clip(2, 3), torch.tensor([2, 0, 3, 1])
    state = model.unroll(random_clip(2, 1)).state
    permuted = state.map(lambda x: x[:, order])
    ours, theirs = model(clip, permuted), model(clip, state)
    torch.testing.assert_close(ours.log_masks, theirs.log_masks[:, :, order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.masks, theirs.masks[:, :, order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.slots, theirs.slots[:, :, order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.state.slots, theirs.state.slots[:, order], atol=1e-4, rtol=1e-4)
    for name, loss in theirs.losses.items():
        torch.testing.assert_close(ours.losses[name], loss, atol=1e-3, rtol=1e-4)
    assert not torch.allclose(theirs.slots, theirs.slots[:, :, order], atol=1e-3)  # slots do differ


def test_initial_slots_are_permuted_with_their_noise(model):
    state, order = model.initial_state(2), torch.tensor([2, 0, 3, 1])
    restarted = model.restart(state.map(lambda x: x[:, order]), torch.ones(2, dtype=torch.bool))
    torch.testing.assert_close(restarted.slots, state.slots[:, order])


def test_a_frame_never_influences_an_earlier_one(model):
    clip, state = random_clip(2, 4), model.initial_state(2)
    changed = clip.frames.clone()
    changed[:, 2] = torch.rand_like(changed[:, 2])
    before, after = model(clip, state), model(Clip(changed), state)
    assert torch.equal(before.log_masks[:, :2], after.log_masks[:, :2])
    assert torch.equal(before.slots[:, :2], after.slots[:, :2])
    for name in before.losses:
        torch.testing.assert_close(before.losses[name][:, :2], after.losses[name][:, :2])
    assert not torch.equal(before.log_masks[:, 2], after.log_masks[:, 2])
    assert not torch.equal(before.slots[:, 3], after.slots[:, 3])


def test_elements_of_a_batch_do_not_meet(model):
    clip, state = random_clip(3, 2), model.initial_state(3)
    alone = model(Clip(clip.frames[1:2]), state.map(lambda x: x[1:2]))
    together = model(clip, state)
    torch.testing.assert_close(alone.log_masks[0], together.log_masks[1], atol=1e-5, rtol=1e-4)
    for name in alone.losses:
        torch.testing.assert_close(alone.losses[name][0], together.losses[name][1], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("pieces", [[12, 12], [1, 22, 1], [5, 7, 11, 1], [1] * 24])
def test_any_split_of_a_video_gives_the_same(model, pieces):
    is_first = torch.zeros(2, 24, dtype=torch.bool)
    is_first[0, 7] = is_first[1, 12] = True
    clip, state = Clip(torch.rand(2, 24, 3, 32, 32), is_first), model.initial_state(2)
    with torch.no_grad():
        whole, parts = model(clip, state), []
        for frames, first in zip(clip.frames.split(pieces, 1), is_first.split(pieces, 1), strict=True):
            parts.append(model(Clip(frames, first), state))
            state = parts[-1].state
    log_masks = torch.cat([part.log_masks for part in parts], dim=1)
    torch.testing.assert_close(log_masks, whole.log_masks, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(state.slots, whole.state.slots, atol=1e-5, rtol=1e-5)
    for name, loss in whole.losses.items():
        torch.testing.assert_close(torch.cat([p.losses[name] for p in parts], 1), loss, atol=1e-3, rtol=1e-4)


def test_a_video_is_a_scan_of_the_step(model):
    clip, state = random_clip(2, 3), model.initial_state(2)
    whole = model.unroll(clip, state)
    for t in range(3):
        output, state = model.step(clip.frames[:, t], state)
        torch.testing.assert_close(output.log_masks, whole.log_masks[:, t])
        torch.testing.assert_close(output.masks, whole.masks[:, t])
        torch.testing.assert_close(output.slots, whole.slots[:, t])


def test_a_video_that_begins_resets_its_own_element_only(model):
    clip, state = random_clip(3, 4), model.initial_state(3)
    is_first = torch.zeros(3, 4, dtype=torch.bool)
    is_first[1, 2] = True
    whole, restarted = model.unroll(clip, state), model.unroll(Clip(clip.frames, is_first), state)
    untouched = [0, 2]
    torch.testing.assert_close(restarted.log_masks[untouched], whole.log_masks[untouched])
    torch.testing.assert_close(restarted.log_masks[1, :2], whole.log_masks[1, :2])
    assert not torch.allclose(restarted.slots[1, 2:], whole.slots[1, 2:])
    fresh = model.restart(state, torch.ones(3, dtype=torch.bool)).map(lambda x: x[1:2])
    alone = model.unroll(Clip(clip.frames[1:2, 2:]), fresh)
    torch.testing.assert_close(restarted.slots[1:2, 2:], alone.slots, atol=1e-5, rtol=1e-5)


def test_a_fresh_state_and_a_first_frame_mean_the_same(model):
    clip, state = random_clip(2, 2), model.initial_state(2)
    is_first = torch.tensor([[True, False]] * 2)
    assert_outputs_close(model.unroll(Clip(clip.frames, is_first), state), model.unroll(clip, state))
    forgotten = replace(state, slots=torch.randn_like(state.slots))
    assert_outputs_close(model.unroll(Clip(clip.frames, is_first), forgotten), model.unroll(clip, state))


@pytest.mark.parametrize(("kind", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_gradients_of_a_clip_are_those_of_its_frames_one_by_one(kind, bound):
    """Videos begin at several frames: the fresh slots, computed once, learn from all of them."""
    model = small_model(KINDS["variants"]).to(kind)
    is_first = torch.tensor([[True, False, True], [False, True, False]])
    clip, state = Clip(random_clip(2, 3).frames.to(kind), is_first), model.initial_state(2).detach()
    parameters = [p for name, p in model.named_parameters() if not name.startswith(("decoder", "sequential_vae"))]

    def gradients(output):
        return torch.autograd.grad(output.log_masks.square().mean() + output.slots.square().mean(), parameters)

    slow = plain.PlainVONet.unroll(model, clip, state)  # type: ignore[arg-type]
    for ours, theirs in zip(gradients(model.unroll(clip, state)), gradients(slow), strict=True):
        torch.testing.assert_close(ours, theirs, atol=bound, rtol=bound)


def test_the_generator_decides_the_initial_slots(model):
    def draw(seed):
        return model.initial_state(2, generator=torch.Generator().manual_seed(seed)).slots

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


@pytest.mark.parametrize("slots", [1, 2, 7])
def test_any_number_of_slots_works_with_the_same_weights(model, slots):
    output = model(random_clip(2, 2), model.initial_state(2, slots=slots))
    assert output.masks.shape == (2, 2, slots, 32, 32)
    assert all(torch.isfinite(loss).all() for loss in output.losses.values())


@pytest.mark.parametrize("config", [SlotEncoderConfig(), MaskPoolingConfig()])
def test_a_slot_sees_only_what_its_mask_covers(config):
    encoder = config.build(feature_dim=4, slot_dim=5)
    top = torch.zeros(1, 2, 6, 6)
    top[:, 0, :3], top[:, 1, 3:] = 1, 1  # slot 0 the top half, slot 1 the bottom half
    features = torch.randn(1, 4, 6, 6)
    before = encoder(features, top.log())
    features[:, :, 3:] += torch.randn(4, 3, 6)
    after = encoder(features, top.log())
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.allclose(before[:, 1], after[:, 1])


def test_an_empty_slot_pools_nothing_and_a_whole_one_its_mean():
    """With a smallest area, traces of a mask no longer look like what they lie on."""
    plainly, gently = (MaskPoolingConfig(smallest_area=area).build(4, 5) for area in (1e-6, 2.0))
    gently.load_state_dict(plainly.state_dict())
    features = torch.randn(1, 4, 6, 6)
    masks = torch.stack([torch.full((6, 6), 1 - 1e-4), torch.full((6, 6), 1e-4)])[None]
    of_trace, of_whole = plainly(features, masks.log())[0, 1], plainly(features, masks.log())[0, 0]
    torch.testing.assert_close(of_trace, of_whole)  # the fault: a trace looks like the background
    pooled = gently(features, masks.log())[0]
    torch.testing.assert_close(pooled[0], of_whole)
    torch.testing.assert_close(pooled[1], of_whole * 36e-4 / 2)


def test_a_slot_with_half_the_frame_has_half_the_mean():
    """The paper averages over the frame, not over the mask."""
    module = SlotEncoderConfig().build(4, 5)
    features = torch.randn(1, 4, 6, 6)
    shares = torch.tensor([0.5, 0.25, 0.25])[None, :, None, None].expand(1, 3, 6, 6)
    mean = module.value(features.mean((2, 3)))
    torch.testing.assert_close(module(features, shares.log()), torch.stack([mean / 2, mean / 4, mean / 4], dim=1))


def test_estimated_masks_are_the_softmax_of_products_over_the_root_of_the_width():
    module = DotAttentionConfig().build(4, 16, (6, 6))
    features, context = torch.randn(2, 4, 6, 6), torch.randn(2, 3, 16)
    keys = module.key(features.permute(0, 2, 3, 1))
    wanted = (torch.einsum("bhwd,bkd->bkhw", keys, context) / 4).softmax(1)
    torch.testing.assert_close(module(features, context).exp(), wanted)


def test_the_trajectory_is_a_gru_an_mlp_and_a_norm():
    module = Trajectory(TrajectoryConfig(), slot_dim=6).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    y, r = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(module(y, r), plain.trajectory(module, y, r))


def test_features_know_where_they_lie():
    backbone = small_model().backbone
    grid = backbone.grid
    assert grid.shape == (16, 16, 4)
    assert grid[0, 0].tolist() == [0, 0, 1, 1]  # y, x, 1 − y, 1 − x
    assert grid[15, 0].tolist() == [1, 0, 0, 1]
    assert grid[3, 15].tolist() == pytest.approx([3 / 15, 1, 12 / 15, 0])
    features = backbone(torch.zeros(1, 3, 32, 32))
    assert not torch.allclose(features[..., 8, 8], features[..., 8, 9])


def test_a_slot_s_latent_depends_only_on_what_its_mask_covers():
    """Through the trajectory as well: y and r of slot k change with what lies under its mask, and nothing else."""
    model = small_model().eval()
    features, slots = torch.randn(1, 12, 16, 16), torch.randn(1, 2, 10)
    log_masks = torch.zeros(1, 2, 16, 16)
    log_masks[:, 0, :8], log_masks[:, 1, 8:] = -torch.inf, -torch.inf
    before = model.trajectory(model.slot_encoder(features, log_masks), slots)
    features[:, :, :8] = torch.randn(12, 8, 16)  # under slot 1 only
    after = model.trajectory(model.slot_encoder(features, log_masks), slots)
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.allclose(before[:, 1], after[:, 1])


@pytest.mark.parametrize("pooling", [SlotEncoderConfig(), MaskPoolingConfig(), MaskPoolingConfig(smallest_area=400.0)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_encoder_equals_its_plain_form(dtype, tolerance, pooling):
    """All shortcuts together: masks and slots of the paper's model, at a size where every one is in use."""
    config = replace(reduced(PAPER), size=(64, 64), slot_encoder=pooling)
    fast = VONet(config).to(dtype).eval()
    slow = plain.PlainVONet(fast)
    clip, state = random_clip(2, 2, 64, dtype), fast.initial_state(2).detach()
    ours, theirs = fast(clip, state), slow(clip, state)
    assert_outputs_close(ours, theirs, tolerance)
    for name, loss in theirs.losses.items():
        torch.testing.assert_close(ours.losses[name], loss, atol=1e-2 * tolerance, rtol=tolerance)
    if dtype == torch.float64:
        weights = dict.fromkeys(ours.losses, 1.0)
        total(ours.losses, weights).backward()
        total(theirs.losses, weights).backward()
        for (name, a), b in zip(fast.named_parameters(), slow.parameters(), strict=True):
            if not name.startswith("initial_slots"):  # the state was given
                scale = b.grad.abs().max().item()
                torch.testing.assert_close(a.grad, b.grad, atol=1e-10 * max(scale, 1), rtol=1e-7, msg=name)


def test_the_attention_equals_its_plain_form_at_the_paper_s_size():
    attention = UNetAttention(PAPER.attention, 128, 128, (64, 64)).eval()
    features = torch.randn(1, 128, 64, 64).to(memory_format=torch.channels_last)
    context = torch.randn(1, 3, 128)
    with torch.no_grad():
        ours, theirs = attention(features, context), plain.attention(attention, features.contiguous(), context)
    torch.testing.assert_close(ours.exp(), theirs.exp(), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-5)  # logarithms of masks near zero are less exact


def reduced_unet(reduction: int) -> ReducedUNetAttentionConfig:
    paper = reduced(PAPER).attention
    unet = replace(paper.unet, channels=(4, 6))
    return ReducedUNetAttentionConfig(unet=unet, transformer=paper.transformer, reduction=reduction)


@pytest.mark.parametrize("reduction", [1, 2, 4])
def test_the_attention_with_a_reduced_u_net_equals_its_plain_form(reduction):
    attention = reduced_unet(reduction).build(12, 10, (16, 24)).double().eval()
    features, context = torch.randn(2, 12, 16, 24, dtype=torch.float64), torch.randn(2, 3, 10, dtype=torch.float64)
    with torch.no_grad():
        ours, theirs = attention(features, context), plain.attention(attention, features, context)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_a_map_that_cannot_be_reduced_is_refused():
    with pytest.raises(BadInput, match="Cannot reduce a map of 16x18 cells 4 times"):
        reduced_unet(4).build(12, 10, (16, 18))


def test_the_context_map_is_nearly_erased_by_the_norm_and_scale_shift_is_not():
    """Why there are two ways to condition: far from the border the U-Net's input does not know the context map."""

    def influence(conditioning):
        config = replace(reduced(PAPER).attention, conditioning=conditioning)
        attention = UNetAttention(config, 12, 10, (32, 32)).eval()
        if isinstance(conditioning, ScaleShiftConfig):
            torch.nn.init.normal_(attention.conditioning.at_first.weight, std=0.3)
        features, estimated = torch.randn(1, 12, 32, 32), torch.randn(1, 2, 32, 32).log_softmax(1)

        def first_block(context):
            first = attention._first(features, estimated, context)
            film = None
            if isinstance(conditioning, ScaleShiftConfig):
                film = attention.conditioning.at_first(context).chunk(2, dim=-1)
            return attention.unet.encode(first, film)[1][0][:, :, 2:-2, 2:-2]

        with torch.no_grad():
            one, other = (first_block(torch.randn(2, 10)) for _ in range(2))
        return ((one - other).abs().mean() / one.abs().mean()).item()

    assert influence(ContextMapConfig()) < 0.15 < 0.3 < influence(ScaleShiftConfig())


def test_watching_does_not_run_what_only_learning_needs(model, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("the decoder or the VAE was run")

    for part in [*model.sequential_vae.modules(), *model.decoder.modules()]:
        monkeypatch.setattr(part, "forward", forbidden)
    clip = random_clip(2, 2)
    output = model.unroll(clip)
    assert output.losses == {}
    model.step(clip.frames[:, 0], model.initial_state(2))
    with pytest.raises(AssertionError, match="was run"):
        model(clip)


def test_evaluation_is_deterministic_and_training_draws(model):
    clip, state = random_clip(1, 2), model.initial_state(1)
    name = next(iter(model(random_clip(1, 1)).losses))
    assert torch.equal(model(clip, state).losses[name], model(clip, state).losses[name])
    model.train()
    assert not torch.equal(model(clip, state).losses[name], model(clip, state).losses[name])


def test_losses_are_per_frame_and_named_as_the_config_says():
    for config in KINDS.values():
        model = small_model(config)
        losses = model(random_clip(2, 3)).losses
        assert set(losses) == set(config.losses)
        assert all(loss.shape == (2, 3) for loss in losses.values())


def test_kl_is_not_negative_and_is_the_sum_over_slots(model):
    output = model(random_clip(2, 3))
    if model.sequential_vae.prior is None:
        assert "kl" not in output.losses
        with pytest.raises(BadInput, match="no prior"):
            model.slot_divergence(output)
        return
    assert (output.losses["kl"] >= 0).all()
    divergence = model.slot_divergence(output)
    assert divergence.shape == (2, 3, 4)
    torch.testing.assert_close(divergence.sum(-1) * 10, output.losses["kl"])


# What is the same for all slots is taken away by the softmax over the slots: the bias of the U-Net's last layer (kept
# because the U-Net is MONet's too, whose masks do depend on it), and, where masks come from scalar products alone, the
# bias of the contexts.
WITHOUT_GRADIENT = {
    UNetAttention: {"attention.unet.logits.bias"},
    ReducedUNetAttention: {"attention.unet.logits.bias"},
    DotAttention: {"context.mlp.2.bias"},
    NormedAttention: {"attention.context_norm.bias"},
}


def test_every_parameter_gets_a_gradient(model):
    """But the exceptions above. (Of the token embedding some rows get none: tests/test_decoder.py.)"""
    model.train().double()
    clip = Clip(torch.rand(2, 2, 3, 32, 32, dtype=torch.float64), torch.tensor([[True, False]] * 2))
    losses = model(clip, model.initial_state(2).detach()).losses
    total(losses, dict.fromkeys(losses, 1.0)).backward()
    scale = max(p.grad.abs().max() for p in model.parameters())
    without = {name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-14 * scale}
    assert without == WITHOUT_GRADIENT[type(model.attention)]
    grouped = [p for group in model.parameter_groups().values() for p in group]
    assert len(grouped) == len(set(map(id, grouped))) == len(list(model.parameters()))


def test_pictures_from_posterior_and_prior(model):
    output = model.unroll(random_clip(2, 2))
    posterior = model.pictures(output)
    assert posterior.shape == (2, 2, 3, 32, 32)
    assert ((posterior >= 0) & (posterior <= 1)).all()
    if model.sequential_vae.prior is None:
        with pytest.raises(BadInput, match="this model has: posterior"):
            model.pictures(output, "prior")
    else:
        assert not torch.equal(model.pictures(output, "prior"), posterior)
    with pytest.raises(BadInput, match="'future'"):
        model.pictures(output, "future")


def test_a_forecast_is_made_before_the_frame_is_seen(model):
    """The prior of frame t, and the picture of it, depend on frames before t alone."""
    if model.sequential_vae.prior is None:
        pytest.skip("no prior in this kind")
    clip, state = random_clip(1, 3), model.initial_state(1)
    changed = clip.frames.clone()
    changed[:, 2] = torch.rand_like(changed[:, 2])
    before, after = model.unroll(clip, state), model.unroll(Clip(changed), state)
    prior = model.sequential_vae.prior
    assert torch.equal(prior(before.previous_slots[:, 2]).mean, prior(after.previous_slots[:, 2]).mean)
    assert not torch.equal(before.slots[:, 2], after.slots[:, 2])
    assert torch.equal(model.pictures(before, "prior"), model.pictures(after, "prior"))
    if isinstance(model.decoder, BroadcastDecoder):  # of an untrained token decoder both may be the same few tokens
        assert not torch.equal(model.pictures(before)[:, 2], model.pictures(after)[:, 2])


def test_a_forecast_does_not_remember_another_video():
    """Where a video begins, not even the masks of the frame before are used."""
    model = small_model(KINDS["blend"]).eval()
    frames, state = torch.rand(1, 3, 3, 32, 32), model.initial_state(1)
    is_first = torch.tensor([[False, False, True]])
    together = model.pictures(model.unroll(Clip(frames, is_first), state), "prior")
    alone = model.pictures(model.unroll(Clip(frames[:, 2:]), model.restart(state, is_first[:, 2])), "prior")
    torch.testing.assert_close(together[:, 2:], alone)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_frames_and_states_are_refused_where_they_enter():
    model = small_model()
    state = model.initial_state(2)
    with pytest.raises(BadInput, match="shape"):
        model.step(torch.rand(3, 32, 32), state)
    with pytest.raises(BadInput, match="uint8"):
        model.step(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), state)
    with pytest.raises(BadInput, match="from 0 to 255"):
        model.step(torch.tensor([0.0, 255.0]).view(2, 1, 1, 1).expand(2, 3, 32, 32), state)
    with pytest.raises(BadInput, match="64x32; this model was built for 32x32"):
        model.step(torch.rand(2, 3, 64, 32), state)
    for batch in (1, 3):
        with pytest.raises(BadInput, match=r"model.initial_state"):
            model.step(torch.rand(batch, 3, 32, 32), state)
        with pytest.raises(BadInput, match=r"model.initial_state"):
            model(random_clip(batch, 2), state)


def test_frames_and_states_of_another_kind_are_refused():
    model = small_model()
    state, frame = model.initial_state(2), torch.rand(2, 3, 32, 32)
    with pytest.raises(BadInput, match=r"frames are torch.float64 .* the model is torch.float32"):
        model.step(frame.double(), state)
    with pytest.raises(BadInput, match="at least 1 slot"):
        model.step(frame, state.map(lambda x: x[:, :0]))


def test_shapes_of_flags_are_enforced_in_tests():
    model = small_model()
    for flags in (torch.zeros(2), torch.zeros(2, 1, 1, dtype=torch.bool)):
        with pytest.raises(jaxtyping.TypeCheckError):
            model.restart(model.initial_state(2), flags)


@pytest.mark.parametrize("slots", [0, -1])
def test_a_model_needs_a_slot(slots):
    with pytest.raises(BadInput, match="1 to 10000"):
        small_model().initial_state(1, slots=slots)
    with pytest.raises(BadInput, match="1 to 10000"):
        VONetConfig(slots=slots)


def test_an_empty_batch_is_refused():
    with pytest.raises(BadInput, match="at least 1"):
        small_model().initial_state(0)


BAD_OPTIONS = {
    "interface.Clip([[1, 2]])": "frames are a list; expected a torch tensor B T 3 H W: use torch.from_numpy",
    "interface.Clip(torch.rand(1, 2, 3, 4, 4), [True, False])": (
        "is_first is [True, False]; expected a tensor of one boolean per frame: (1, 2)"
    ),
    "vonet.VONetConfig(slots=2.5)": "2.5 slots were asked for; a model needs a whole number of them, 1 to 10000",
    "broadcast_decoder.BroadcastDecoderConfig(reading='sum')": "reading is 'sum'; expected one of 'blend', 'mixture'",
    "vonet.VONetConfig(enlargement='cubic')": "enlargement is 'cubic'; expected one of 'nearest', 'bilinear'",
    "vimon.ViMONConfig(segments='best')": "segments is 'best'; expected one of 'painted', 'found'",
}


def test_values_of_a_wrong_type_get_a_sentence():
    """In a process of its own: where shapes and types are checked, the check of types comes first."""
    code = "import torch\nfrom vonet import interface\nfrom vonet.errors import BadInput\n"
    code += "from vonet.baselines import vimon\nfrom vonet.model import vonet\n"
    code += "from vonet.variants import broadcast_decoder\n"
    for expression in BAD_OPTIONS:
        code += f"try:\n    {expression}\nexcept BadInput as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(BAD_OPTIONS.values())


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="3 heads"):
        CausalTransformerConfig(width=16, heads=3)
    with pytest.raises(BadInput, match="2 blocks have 1 strides"):
        BackboneConfig(channels=(8, 8), strides=(2,))
    with pytest.raises(BadInput, match="in 8 groups"):
        BackboneConfig(channels=(12,), strides=(2,))


@pytest.mark.parametrize("size", [(33, 32), (36, 36), (8, 8)])
def test_sizes_that_cannot_be_halved_are_refused(size):
    with pytest.raises(BadInput, match="multiple"):
        small_model(size=size)


# Signatures


def test_a_signature_stays_for_the_whole_video_and_begins_anew_with_the_next():
    model = replace(reduced(VONetConfig()), signature_dim=3).build().eval()
    is_first = torch.zeros(2, 5, dtype=torch.bool)
    is_first[1, 2] = True
    state = model.initial_state(2)
    state = replace(state, slots=torch.randn_like(state.slots))  # as if in the middle of a video
    output = model.unroll(Clip(torch.rand(2, 5, 3, *model.size), is_first), state)
    signatures, noise = output.slots[..., :3], state.noise[..., :3]
    assert torch.equal(signatures[0], state.slots[0, :, :3].expand(5, -1, -1))
    assert torch.equal(signatures[1, :2], state.slots[1, :, :3].expand(2, -1, -1))
    assert torch.equal(signatures[1, 2:], noise[1].expand(3, -1, -1))
    assert (output.slots[:, 1:, :, 3:] != output.slots[:, :-1, :, 3:]).any()


def test_a_signature_tells_slots_apart_that_are_equal_otherwise():
    """Equal slots have equal masks for ever: nothing in a symmetric encoder can tell them apart."""
    for signature_dim, apart in ((0, False), (3, True)):
        torch.manual_seed(0)
        model = replace(reduced(VONetConfig()), signature_dim=signature_dim).build().eval()
        state = model.initial_state(1)
        slots = state.slots.clone()
        slots[:, 1, signature_dim:] = slots[:, 0, signature_dim:]
        output = model.unroll(Clip(torch.rand(1, 4, 3, *model.size)), replace(state, slots=slots))
        difference = (output.log_masks[:, :, 0] - output.log_masks[:, :, 1]).abs().max().item()
        assert (difference > 1e-4) == apart


@pytest.mark.parametrize("dim", [-1, 10])
def test_a_signature_leaves_room_for_the_slot(dim):
    with pytest.raises(BadInput, match=f"signature_dim is {dim}"):
        replace(reduced(VONetConfig()), signature_dim=dim)
