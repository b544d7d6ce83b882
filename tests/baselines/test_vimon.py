"""ViMON's equations and invariants."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests.reduced import random_clip, reduced
from vonet import experiments
from vonet.baselines.vimon import GRU_RANGE, SubsampledUNet, ViMON, ViMONConfig, ViMONState
from vonet.blocks.broadcast import mask_divergence, mixture_error
from vonet.blocks.gaussian import Gaussian, unit_divergence
from vonet.blocks.unet import UNetConfig
from vonet.errors import BadInput
from vonet.interface import Clip


def count(module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ViMON(reduced(ViMONConfig())).eval()


def watch(model, clip, state=None):
    return model._watch(clip, state)


def still(frames=5, batch=2):
    return Clip(torch.rand(batch, 1, 3, 32, 32).expand(-1, frames, -1, -1, -1).contiguous())


# ---- one frame -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_three_kinds_of_masks_sum_to_one(model):
    output, found = watch(model, random_clip(2, 3))
    for log_masks in (output.log_masks, found["attention"], found["next_log_masks"]):
        torch.testing.assert_close(log_masks.exp().sum(2), torch.ones(2, 3, 32, 32), atol=1e-5, rtol=0)


@torch.no_grad()
def test_what_the_attention_sees_of_the_past(model, monkeypatch):
    """Nothing at first; then what was forecast, which sums to one."""
    seen = []
    attend = type(model).attend
    monkeypatch.setattr(type(model), "attend", lambda self, frame, f: seen.append(f) or attend(self, frame, f))
    model.unroll(random_clip(1, 3))
    assert seen[0].abs().max() == 0
    for forecast in seen[1:]:
        torch.testing.assert_close(forecast.exp().sum(1), torch.ones(1, 32, 32), atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_attention_has_an_order(model):
    """Permuting all that slots remember does not permute what they take."""
    frame, order = torch.rand(1, 3, 32, 32), [1, 3, 0, 2]
    state = ViMONState(torch.randn(1, 4, 16), torch.randn(1, 4, 32, 32).log_softmax(1))
    one, other = (model._step(frame, s)[0].attention for s in (state, state.map(lambda x: x[:, order])))
    assert not torch.allclose(one[:, order], other, atol=1e-2)


@torch.no_grad()
def test_a_longer_still_clip_costs_the_same(model):
    """Without memory all its frames are alike, and means do not know how many there are."""
    model.unet.first.weight[:, 4] = 0
    model.gru.weight_hh.zero_()
    model.gru.bias_ih[model.hidden : 2 * model.hidden] = -50
    clip = still(6)
    short, long = (model(Clip(clip.frames[:, :frames])).losses for frames in (4, 6))
    for name in ("reconstruction", "prediction", "kl", "masks"):
        assert short[name].mean().item() == pytest.approx(long[name].mean().item(), rel=1e-4, abs=1e-3)


@torch.no_grad()
def test_the_last_slot_takes_the_rest_whatever_it_forecast(model):
    frame, forecast = torch.rand(1, 3, 32, 32), torch.randn(1, 4, 32, 32).log_softmax(1)
    masks = model.attend(frame, forecast)
    for slot, same in ((3, True), (0, False)):
        other = forecast.clone()
        other[:, slot] -= 3
        assert torch.equal(model.attend(frame, other), masks) == same


def looped(model, frame, state):
    """One slot after another, as the paper says it, with the mean for z."""
    log_scope, masks, hidden, decoded = torch.zeros(len(frame), 32, 32), [], [], []
    for k in range(state.hidden.shape[1]):
        if k < state.hidden.shape[1] - 1:
            a = model.unet(torch.cat([frame, log_scope[:, None], state.forecast[:, k : k + 1]], dim=1))
            masks.append(log_scope + F.logsigmoid(a))
            log_scope = log_scope + F.logsigmoid(-a)
        else:
            masks.append(log_scope)
        y = model.encoder(torch.cat([frame, masks[-1][:, None]], dim=1))
        hidden.append(model.gru(y / 5, state.hidden[:, k]))
        z = model.posterior(5 * hidden[-1]).chunk(2, -1)[0]
        decoded.append([model.decoder(latent[:, None])[1][:, 0] for latent in (z, model.transition(z))])
    now, later = (torch.stack(logits, 1).log_softmax(1) for logits in zip(*decoded, strict=True))
    return torch.stack(masks, 1), torch.stack(hidden, 1), now, later


@torch.no_grad()
def test_all_slots_at_once_is_one_after_another(model):
    model.double()
    state = ViMONState(
        torch.randn(2, 4, 16, dtype=torch.float64), torch.randn(2, 4, 32, 32, dtype=torch.float64).log_softmax(1)
    )
    frame = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    torch.set_default_dtype(torch.float64)
    try:
        attention, hidden, now, later = looped(model, frame, state)
    finally:
        torch.set_default_dtype(torch.float32)
    step, after = model._step(frame, state)
    for one, other in (
        (step.attention, attention),
        (step.slots, hidden),
        (step.log_masks, now),
        (after.forecast, later),
    ):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_slots_are_encoded_on_their_own(model):
    """Permuting masks and states together permutes latents and states: the order comes from the attention alone."""
    frame, log_masks = torch.rand(1, 3, 32, 32), torch.randn(1, 4, 32, 32).log_softmax(1)
    hidden, order = torch.randn(1, 4, 16), [1, 3, 0, 2]
    q, h = model.encode(frame, log_masks, hidden)
    permuted, permuted_h = model.encode(frame, log_masks[:, order], hidden[:, order])
    torch.testing.assert_close(q.mean[:, order], permuted.mean)
    torch.testing.assert_close(h[:, order], permuted_h)


# ---- how it begins ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_it_begins_as_a_running_average(model):
    y = 0.2 * torch.rand(1, model.gru.input_size)
    h = torch.zeros(1, model.hidden)
    for _ in range(12):
        h = model.gru(y / GRU_RANGE, h)
    torch.testing.assert_close(GRU_RANGE * h[:, : y.shape[1]], y, atol=5e-3, rtol=0.02)
    torch.testing.assert_close(model.posterior(GRU_RANGE * h)[:, : y.shape[1]], y, atol=5e-3, rtol=0.02)


@torch.no_grad()
def test_latents_may_begin_with_little_noise():
    log_stds = []
    for start in (0.0, -2.0):
        torch.manual_seed(0)
        model = ViMON(replace(reduced(ViMONConfig()), initial_log_std=start)).eval()
        log_stds.append(watch(model, random_clip(1, 1))[1]["log_std"])
    torch.testing.assert_close(log_stds[1], log_stds[0] - 2)


@torch.no_grad()
def test_at_first_the_next_frame_is_expected_to_be_like_this_one(model):
    output, found = watch(model, random_clip(2, 3))
    torch.testing.assert_close(found["pictures"], found["next_pictures"])
    torch.testing.assert_close(output.log_masks, found["next_log_masks"], atol=1e-4, rtol=1e-4)
    clip = still(6)
    losses = model(clip).losses
    # The same forecast of the same frame, but for the first, whose forecast does not count.
    torch.testing.assert_close(
        losses["prediction"][:, 1:] * 4 / 5, losses["reconstruction"][:, 1:], rtol=1e-4, atol=1.0
    )
    assert losses["prediction"][:, 0].abs().max() == 0


def test_the_initialisation_needs_room():
    with pytest.raises(BadInput, match="make hidden at least twice latent_dim"):
        ViMONConfig(latent_dim=65)


# ---- losses ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_last_frame_is_only_forecast(model):
    clip = random_clip(2, 5)
    learned, watched = model(clip), model.unroll(clip)
    assert learned.log_masks.shape[1] == 4
    assert watched.log_masks.shape[1] == 5
    torch.testing.assert_close(learned.log_masks, watched.log_masks[:, :4])
    changed = clip.frames.clone()
    changed[:, -1] = 1 - changed[:, -1]
    other = model(Clip(changed)).losses
    for name, loss in learned.losses.items():
        assert torch.equal(loss, other[name]) == (name != "prediction")


@torch.no_grad()
def test_normalisers(model):
    """Of T = 6 frames: five are explained, four forecasts count, and three of their masks, divided by four."""
    clip = random_clip(1, 6)
    losses = model(clip).losses
    _, found = watch(model, Clip(clip.frames[:, :-1]))
    terms = [
        (found["attention"][:, t + 1].exp() * (found["attention"][:, t + 1] - found["next_log_masks"][:, t])).sum()
        for t in (1, 2, 3)
    ]
    assert losses["next_masks"].mean().item() == pytest.approx(sum(terms).item() / 4, rel=1e-4)
    assert (losses["next_masks"][0] > 0).tolist() == [False, True, True, True, False]
    assert (losses["prediction"][0] != 0).tolist() == [False, True, True, True, True]
    twice = model(Clip(torch.cat([clip.frames] * 2))).losses
    for name, loss in losses.items():
        assert twice[name].mean().item() == pytest.approx(loss.mean().item(), rel=1e-3, abs=1e-3)


@torch.no_grad()
def test_short_clips_have_empty_terms_and_no_nan(model):
    three = model(random_clip(1, 3)).losses
    assert three["next_masks"].abs().max() == 0
    assert three["prediction"].abs().max() > 0
    two = model(random_clip(1, 2)).losses
    assert two["prediction"].shape == (1, 1)
    assert two["prediction"].item() == two["next_masks"].item() == 0
    with pytest.raises(BadInput, match="two frames or more"):
        model(random_clip(1, 1))


@torch.no_grad()
def test_a_forecast_into_another_video_does_not_count(model):
    clip = random_clip(1, 6)
    begins = torch.zeros(1, 6, dtype=torch.bool)
    begins[0, 3] = True
    losses = model(Clip(clip.frames, begins)).losses
    assert (losses["prediction"][0] != 0).tolist() == [False, True, False, False, True]
    assert (losses["next_masks"][0] != 0).tolist() == [False, True, False, False, False]


def test_gradients_pass_through_time_by_both_ways(model):
    model.train()
    state = model.initial_state(1)
    state = ViMONState(state.hidden.requires_grad_(), state.forecast.requires_grad_())
    step, after = model._step(torch.rand(1, 3, 32, 32), state)
    for name in ("hidden", "forecast"):
        gradient = torch.autograd.grad(step.pictures.square().sum(), getattr(state, name), retain_graph=True)[0]
        assert gradient.abs().max() > 0, name
    assert after.forecast.requires_grad


def test_divergence_of_a_unit_latent_is_zero():
    assert unit_divergence(Gaussian(torch.zeros(2, 3), torch.zeros(2, 3))).abs().max() == 0


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_parameter_counts_are_the_authors():
    five = UNetConfig(channels=(32,) * 5, bottleneck=(128, 128))
    at_64 = ViMONConfig(size=(64, 64), unet=five)
    assert count(SubsampledUNet(five, 5, (64, 64))) == 278_720
    assert count(ViMON(replace(at_64, latent_dim=16))) == 714_900  # as the released checkpoint
    assert count(ViMON(at_64)) == 806_532
    assert count(experiments.get("vimon-movi-a").build_model()) == 1_620_612
    assert count(ViMON(ViMONConfig(unet=five))) == 1_987_716


def plain_unet(unet, x):
    """Every second cell, blocks, skips before halving, nearest enlargement, a concatenation."""
    norm = lambda y: F.relu(F.instance_norm(y))  # noqa: E731
    skips = [norm(unet.first(x))]
    for layer in unet.down:
        skips.append(norm(layer(F.interpolate(skips[-1], scale_factor=0.5, mode="nearest"))))
    u = F.relu(unet.expand(unet.mlp(skips[-1].flatten(1)))).unflatten(1, unet.bottom)
    for i, layer in enumerate(unet.up):
        u = norm(layer(torch.cat([u, skips[-1 - i]], dim=1)))
        if i < len(unet.up) - 1:
            u = F.interpolate(u, scale_factor=2, mode="nearest")
    return unet.logits(u).squeeze(1)


def test_the_u_net_is_the_plain_one():
    unet = SubsampledUNet(UNetConfig(channels=(4,) * 4, bottleneck=(8, 8)), 5, (32, 32)).double()
    x = torch.randn(2, 5, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(unet(x), plain_unet(unet, x), atol=1e-9, rtol=1e-9)
    assert unet.logits.bias is None


def test_the_paper_s_hyper_parameters():
    for level, slots in zip("abcde", (11, 11, 11, 16, 16), strict=True):
        made = experiments.get(f"vimon-movi-{level}")
        assert (made.model.slots, made.model.latent_dim, made.training.segment) == (slots, 64, 6)
        weights = {name: weight(0) for name, weight in made.training.weights.items()}
        assert weights == {"reconstruction": 1, "prediction": 1, "kl": 1, "masks": 2, "next_masks": 2}
        group = made.training.optimizer.groups["model"]
        assert (group.learning_rate(0), group.clip, made.training.batch) == (1e-4, 10, 16)
        assert (made.model.as_monet, made.model.initial_log_std) == (0, 0)
        assert made.model.segments == "found"  # its appendix: all but SCALOR are scored by their attention masks


@torch.no_grad()
@pytest.mark.parametrize("as_monet", [0, 5])
def test_segments_may_be_what_the_attention_found(as_monet):
    """Nothing else changes, learning least of all."""
    outputs = {}
    for segments in ("painted", "found"):
        torch.manual_seed(0)
        model = ViMON(replace(reduced(ViMONConfig()), segments=segments, as_monet=as_monet)).eval()
        outputs[segments] = model(random_clip(2, 4)), watch(model, random_clip(1, 3))
    for name, loss in outputs["painted"][0].losses.items():
        assert torch.equal(loss, outputs["found"][0].losses[name])
    for segments, other in (("painted", "painted"), ("found", "attention")):
        output, found = outputs[segments][1]
        assert torch.equal(output.log_masks, found[other])
    assert not torch.equal(outputs["painted"][0].log_masks, outputs["found"][0].log_masks)


def test_it_may_begin_as_monet():
    """Each frame by itself, explained with the attention's masks, and nothing forecast; then as ever."""
    torch.manual_seed(0)
    model = ViMON(replace(reduced(ViMONConfig()), as_monet=5)).eval()
    clip = random_clip(2, 4)
    alone = model(clip, update=4).losses
    assert alone["prediction"].abs().max() == alone["next_masks"].abs().max() == 0
    for t in range(4):
        frame = clip.frames[:, t]
        log_masks = model.attend(frame, torch.zeros(2, 4, 32, 32))
        posterior, _ = model.encode(frame, log_masks, torch.zeros(2, 4, model.hidden))
        pictures, logits = model.decoder(posterior.mean)
        sigmas = torch.tensor([0.09, 0.11, 0.11, 0.11])
        losses = {
            "reconstruction": mixture_error(frame, pictures, log_masks, sigmas),
            "kl": unit_divergence(posterior).sum(-1),
            "masks": mask_divergence(log_masks, logits.log_softmax(1)),
        }
        for name, loss in losses.items():
            torch.testing.assert_close(alone[name][:, t], loss, atol=1e-2, rtol=1e-5)
    # What was learned so still holds when frames follow each other: forecasts are not looked at, little is remembered.
    _, found = watch(model, still(3))
    torch.testing.assert_close(found["attention"][:, 2], found["attention"][:, 0])
    torch.testing.assert_close(found["mean"][:, 2], found["mean"][:, 0], rtol=0.08, atol=1e-2)
    together = model(clip, update=5).losses
    plain = ViMON(reduced(ViMONConfig())).eval()
    plain.load_state_dict(model.state_dict())
    for name, loss in plain(clip).losses.items():
        assert torch.equal(together[name], loss)
        assert not torch.equal(alone[name][:, :3], loss)
