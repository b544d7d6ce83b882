"""Slots that know where they were: the plain form, what a place does to the masks, and how places move."""

import math
from dataclasses import replace

import pytest
import torch

from tests.reduced import reduced
from vonet.errors import BadInput
from vonet.interface import Clip
from vonet.model.attention import DotAttentionConfig
from vonet.model.vonet import VONetConfig
from vonet.variants.normed_attention import NormedAttentionConfig
from vonet.variants.object_decoder import grid
from vonet.variants.slot_places import SlotPlaces, SlotPlacesConfig, ToldPlacesConfig

SIZE = (6, 8)


def places_of(dim: int = 5, size=SIZE, **options) -> SlotPlaces:
    torch.manual_seed(0)
    part = SlotPlacesConfig(**options).build(dim, size).double()
    torch.nn.init.normal_(part.weights.weight)
    torch.nn.init.normal_(part.weights.bias)
    return part


def placed(config: VONetConfig | None = None) -> VONetConfig:
    return replace(reduced(config or VONetConfig()), signature_dim=2, places=SlotPlacesConfig())


def test_nearness_equals_its_plain_form():
    part, context = places_of(), torch.randn(2, 3, 5, dtype=torch.float64)
    places = torch.rand(2, 3, 4, dtype=torch.float64) + 0.1
    found = part(context, places)
    cells = grid(*SIZE).view(*SIZE, 2).tolist()
    weights = part.weights(part.norm(context)).tolist()
    for b in range(2):
        for k in range(3):
            (y, x, height, width), (far, close, down, right) = places[b, k].tolist(), weights[b][k]
            for i in range(SIZE[0]):
                for j in range(SIZE[1]):
                    sy, sx = (cells[i][j][0] - y) / height, (cells[i][j][1] - x) / width
                    squared = sy * sy + sx * sx
                    expected = -far * math.log(1 + squared) + close * math.exp(-squared / 8)
                    expected += down * math.tanh(sy / 2) + right * math.tanh(sx / 2)
                    assert found[b, k, i, j].item() == pytest.approx(expected, abs=1e-10)


def test_nearness_begins_without_effect():
    model = placed().build().eval()
    frames = torch.rand(1, 3, 3, *model.size)
    output = model.unroll(Clip(frames), state := model.initial_state(1))
    features = model.backbone(frames[:, 0])
    alone = model.attention(features, model.context(state.slots))
    torch.testing.assert_close(output.log_masks[:, 0], alone)


@pytest.mark.parametrize("config", [DotAttentionConfig(), NormedAttentionConfig()])
def test_nearness_is_added_before_the_softmax(config):
    torch.manual_seed(0)
    attention = config.build(7, 5, SIZE).double()
    features, context = torch.randn(2, 7, *SIZE, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)
    near = torch.randn(2, 3, *SIZE, dtype=torch.float64)
    expected = (attention(features, context) + near).log_softmax(1)
    torch.testing.assert_close(attention(features, context, near), expected)


def test_the_u_net_sees_the_nearness():
    """It corrects the estimated masks; added after it, nearness was worth much less (docs/log/sprites-mot.md)."""
    torch.manual_seed(0)
    attention = reduced(VONetConfig()).attention.build(12, 10, (16, 16)).eval()
    features, context = torch.randn(1, 12, 16, 16), torch.randn(1, 3, 10)
    near = torch.randn(1, 3, 16, 16)
    with_it = attention(features, context, near)
    after_it = (attention(features, context) + near).log_softmax(1)
    estimated = attention.estimate(features, context, near)
    plain = (attention.correction(features, estimated, context) + estimated).log_softmax(1)
    torch.testing.assert_close(with_it, plain)
    assert (with_it - after_it).abs().max() > 1e-3


def test_of_two_equal_objects_each_slot_follows_its_own():
    """Nothing but the place tells the two apart. The objects move by a cell per frame."""
    part = SlotPlacesConfig().build(4, (16, 16))
    with torch.no_grad():
        part.weights.bias[0] = 5.0  # far cells count less
    places = part.fresh.repeat(1, 3, 1)
    places[0, 0], places[0, 1] = torch.tensor([0.0, -0.6, 0.1, 0.1]), torch.tensor([0.0, 0.6, 0.1, 0.1])
    for t in range(3):
        objects = torch.zeros(16, 16)
        objects[7:9, 3 + t : 5 + t] = objects[7:9, 11 - t : 13 - t] = 1
        content = torch.stack([10 * objects, 10 * objects, 10 * (1 - objects)])[None]
        log_masks = (content + part(torch.zeros(1, 3, 4), places)).log_softmax(1)
        places = part.moved(log_masks, places)
        assert log_masks.exp()[0, 0, 7:9, 3 + t : 5 + t].min() > 0.9
        assert log_masks.exp()[0, 1, 7:9, 11 - t : 13 - t].min() > 0.9
        assert places[0, 0, 1] < 0 < places[0, 1, 1]


def test_places_are_middle_and_extent_and_a_hidden_slot_keeps_its_own():
    part = places_of(half_area=1 / 256, size=(32, 32))
    before = torch.tensor([[[0.5, -0.5, 0.2, 0.3]] * 2], dtype=torch.float64)
    masks = torch.full((1, 2, 32, 32), 1e-9, dtype=torch.float64)
    masks[0, 0, 8:16, 16:32] = 1  # rows from −0.5 to 0, columns from 0 to 1
    after = part.moved(masks.log(), before)[0]
    share = 8 * 16 / 1024
    expected = torch.tensor([-0.25, 0.5, math.sqrt(0.5**2 / 12 + 0.1**2), math.sqrt(1 / 12 + 0.1**2)])
    moved = share / (share + 1 / 256)
    torch.testing.assert_close(after[0], before[0, 0].lerp(expected.double(), moved), atol=2e-3, rtol=0)
    torch.testing.assert_close(after[1], before[0, 1], atol=1e-6, rtol=0)


def test_no_gradient_passes_through_places():
    part = places_of()
    log_masks = torch.randn(1, 2, *SIZE, dtype=torch.float64, requires_grad=True)
    assert not part.moved(log_masks.log_softmax(1), part.fresh.double().repeat(1, 2, 1)).requires_grad


def test_the_state_holds_signature_and_place_and_a_new_video_begins_anew():
    model = placed().build().eval()
    is_first = torch.zeros(2, 5, dtype=torch.bool)
    is_first[1, 2] = True
    state = model.initial_state(2)
    assert torch.equal(state.slots[..., 2:6], torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(2, 4, 4))
    output = model.unroll(Clip(torch.rand(2, 5, 3, *model.size), is_first), state)
    assert torch.equal(output.slots[..., :2], state.noise[:, None, :, :2].expand(-1, 5, -1, -1))
    before = output.previous_slots[..., 2:6]
    for t in range(5):
        expected = model.places.moved(output.log_masks[:, t], before[:, t])
        torch.testing.assert_close(output.slots[:, t, :, 2:6], expected)
    assert torch.equal(before[1, 2], state.slots[1, :, 2:6])
    assert torch.equal(before[0, 2], output.slots[0, 1, :, 2:6])


@pytest.mark.parametrize("option", ["smallest", "half_area"])
def test_sizes_must_be_positive(option):
    with pytest.raises(BadInput, match=f"{option} is 0.0; it must be more than 0"):
        SlotPlacesConfig(**{option: 0.0})


def test_signature_and_place_leave_room_for_the_slot():
    with pytest.raises(BadInput, match=r"signature_dim is 6; .* less than slot_dim minus the 4 numbers of the place"):
        replace(placed(), signature_dim=6)


def test_a_place_that_is_told_is_in_the_latent_and_the_decoder_gets_it():
    for config, told in ((SlotPlacesConfig(), False), (ToldPlacesConfig(), True)):
        torch.manual_seed(0)
        model = replace(placed(), places=config).build()
        output = model.unroll(Clip(torch.rand(1, 2, 3, *model.size)))
        slots = output.slots.flatten(0, 1)
        posterior, head = model.posterior(slots), model.sequential_vae.posterior(slots)
        assert torch.equal(posterior.log_std, head.log_std)
        assert torch.equal(posterior.mean[..., :2], head.mean[..., :2])
        assert torch.equal(posterior.mean[..., 6:], head.mean[..., 6:])
        expected = 3 * slots[..., 2:6] if told else head.mean[..., 2:6]
        assert torch.equal(posterior.mean[..., 2:6], expected)


def test_the_divergence_and_the_pictures_use_the_told_place():
    torch.manual_seed(0)
    model = replace(placed(), places=ToldPlacesConfig()).build().eval()
    clip = Clip(torch.rand(1, 2, 3, *model.size))
    output = model(clip, model.initial_state(1))
    part = model.sequential_vae.prior
    slots, before = output.slots.flatten(0, 1), output.previous_slots.flatten(0, 1)
    kl = part.divergence(model.posterior(slots), model.prior(before)).sum(-1)
    torch.testing.assert_close(output.losses["kl"].flatten(), kl)
    torch.testing.assert_close(10 * model.slot_divergence(output).sum(-1).flatten(), kl)
    for posterior, prior in (
        (model.sequential_vae.posterior(slots), model.prior(before)),
        (model.posterior(slots), part(before)),
    ):
        assert (kl - part.divergence(posterior, prior).sum(-1)).abs().min() > 1e-3
    masks = output.log_masks.flatten(0, 1)
    painted = model.decoder.picture(model.posterior(slots).mean, masks)
    assert torch.equal(model.pictures(output).flatten(0, 1), painted)
    forecast = model.decoder.picture(model.prior(before).mean, masks)
    assert torch.equal(model.pictures(output, "prior").flatten(0, 1), forecast)


def test_the_prior_forecasts_how_a_told_place_changes():
    torch.manual_seed(0)
    model = replace(placed(), places=ToldPlacesConfig()).build().eval()
    before = model.unroll(Clip(torch.rand(1, 2, 3, *model.size))).slots.flatten(0, 1)
    network, forecast = model.sequential_vae.prior(before), model.prior(before)
    torch.testing.assert_close(forecast.mean[..., 2:6], 3 * before[..., 2:6] + network.mean[..., 2:6])
    assert torch.equal(forecast.mean[..., :2], network.mean[..., :2])
    assert torch.equal(forecast.mean[..., 6:], network.mean[..., 6:])
    assert torch.equal(forecast.log_std, network.log_std)


def test_without_a_prior_nothing_is_forecast():
    vae = replace(placed().sequential_vae, prior=None)
    model = replace(placed(), sequential_vae=vae, places=ToldPlacesConfig()).build()
    with pytest.raises(BadInput, match="no prior"):
        model.prior(model.initial_state(1).slots)
