"""Regions against the textbook: weighted least squares, Gaussian densities, and EM that only goes downhill."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from tests.reduced import small_model
from vonet.errors import BadInput
from vonet.interface import Clip
from vonet.variants.broadcast_decoder import BroadcastDecoderConfig
from vonet.model.regions import Regions, RegionsConfig
from vonet.model.vonet import VONetConfig

SIZE = (24, 32)
PAPER = VONetConfig()


def regions(**options) -> Regions:
    return Regions(RegionsConfig(**options), SIZE).double()


def boxes(*which, ground=(0.5, 0.5, 0.5)):
    """A frame with boxes of one colour each, and which pixel is of which box."""
    frame, ids = torch.tensor(ground).repeat(*SIZE, 1), torch.zeros(SIZE, dtype=torch.long)
    for number, (top, left, height, width, colour) in enumerate(which, start=1):
        place = slice(top, top + height), slice(left, left + width)
        frame[place], ids[place] = torch.tensor(colour), number
    return frame.permute(2, 0, 1)[None].double(), ids


RED, BLUE = (0.8, 0.1, 0.1), (0.1, 0.2, 0.8)
TWO_RED = ((3, 3, 6, 6, RED), (14, 22, 7, 6, RED))


def drawn(slots=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frame = torch.rand(2, 3, *SIZE, generator=generator, dtype=torch.float64)
    masks = torch.randn(2, slots, SIZE[0] * SIZE[1], generator=generator, dtype=torch.float64).softmax(1)
    return frame, masks


def segments(model: Regions, frame, packed):
    return model.masks(model.looks(frame), packed)[0].argmax(0)


def test_distances_between_looks_are_those_of_hue_and_brightness():
    model = regions(hue=0.05, brightness=0.2)
    grey = torch.full((1, 3, *SIZE), 0.5, dtype=torch.float64)
    lighter = grey + 0.2
    redder = grey + 0.05 * torch.tensor([2.0, -1.0, -1.0], dtype=torch.float64)[:, None, None] / 6**0.5
    for other in (lighter, redder):
        distance = (model.looks(other) - model.looks(grey)).norm(dim=-1)
        torch.testing.assert_close(distance, torch.ones_like(distance))


def test_light_and_shade_do_not_change_a_hue():
    """The lit and the shaded side of one paint are alike in hue; as plain differences of colours they are not. In the
    dark, where a share of next to nothing is noise, hues are small."""
    paint = torch.tensor([0.2, 0.8, 0.8], dtype=torch.float64)[None, :, None, None].expand(1, 3, *SIZE)

    def hue(model, light):
        return model.looks(light * paint)[0, 0, :2].norm()

    share, plain = regions(dark=0.01), regions(dark=1e6)
    assert hue(share, 0.5) / hue(share, 1.0) > 0.97
    torch.testing.assert_close(
        hue(plain, 0.5) / hue(plain, 1.0), torch.tensor(0.5, dtype=torch.float64), atol=1e-5, rtol=0
    )
    middle = regions(dark=0.4)
    assert 0.6 < hue(middle, 0.5) / hue(middle, 1.0) < 0.8
    assert hue(middle, 0.01) < 0.05 * hue(middle, 1.0)


@pytest.mark.parametrize(("dark", "pieces"), [(0.4, 1), (1e6, 2)])
def test_a_box_is_not_cut_where_its_shaded_side_begins(dark, pieces):
    """A slot is to spare, so that a cut is possible; with hue as a plain difference of colours it is made."""
    lit, shaded = (0.2, 0.75, 0.75), (0.11, 0.42, 0.42)
    frame, ids = boxes((4, 4, 12, 7, lit), (4, 11, 12, 7, shaded), (15, 24, 5, 5, BLUE))
    model = regions(hue=0.07, dark=dark)
    found = segments(model, frame, model.begin(model.looks(frame), 4))
    count = found[(ids == 1) | (ids == 2)].bincount(minlength=4)
    assert (count > 20).sum() == pieces


def test_a_fitted_region_has_the_moments_and_the_least_squares_of_its_mask():
    model = regions(stiffness=2.0, extent=0.02, surest=0.3, toll=3.0)
    frame, masks = drawn()
    looks = model.looks(frame)
    share, middle, covariance, velocity, spread, colours = model._parts(model.fit(looks, masks))
    rows, columns = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5, indexing="ij")
    places = np.stack([rows.ravel(), columns.ravel()], axis=-1) / 32
    for b in range(2):
        for k in range(3):
            weights = masks[b, k].numpy()
            mean = np.average(places, axis=0, weights=weights)
            scattered = np.cov(places.T, aweights=weights, ddof=0) + 0.02**2 * np.eye(2)
            np.testing.assert_allclose(middle[b, k], mean)
            np.testing.assert_allclose(covariance[b, k], [scattered[0, 0], scattered[0, 1], scattered[1, 1]])
            v, u = np.tanh((places - mean) / (1.5 * np.sqrt(np.trace(scattered) / 2))).T
            basis = np.stack([np.ones_like(u), v, u, v * v, v * u, u * u], axis=-1)
            # Ridge regression as least squares with rows more: sqrt(weight) of each cell, and of each term.
            rows_more = np.diag(np.sqrt([0.01, 2, 2, 2, 2, 2]))
            root = np.sqrt(weights)[:, None]
            target = np.concatenate([root * looks[b].numpy(), np.zeros((6, 3))])
            found, *_ = np.linalg.lstsq(np.concatenate([root * basis, rows_more]), target, rcond=None)
            np.testing.assert_allclose(colours[b, k].reshape(6, 3), found, atol=1e-8)
            away = (weights[:, None] * (looks[b].numpy() - basis @ found) ** 2).sum(0)
            usual = (np.array([away[:2].mean(), away[2]]) + 300) / (weights.sum() + 300)
            np.testing.assert_allclose(spread[b, k], np.clip(usual, 0.3**2, 1.0))
    worth = masks.sum(-1) - 3.0
    torch.testing.assert_close(share.squeeze(-1).exp(), worth / worth.sum(1, keepdim=True))
    assert not velocity.any()


def test_evidence_is_a_gaussian_of_place_and_looks():
    model = regions(order=0)
    frame, masks = drawn()
    masks = masks * torch.exp(-300 * (model.cells - torch.tensor([0.3, 0.5])).square().sum(-1))  # small regions
    looks = model.looks(frame)
    packed = model.fit(looks, masks)
    share, middle, covariance, _, spread, colours = (part[1, 2].numpy() for part in model._parts(packed))
    place = stats.multivariate_normal(middle, [covariance[:2], covariance[1:]]).logpdf(model.cells.numpy())
    deviations = np.sqrt([spread[0], spread[0], spread[1]])
    look = stats.norm(colours, deviations).logpdf(looks[1].numpy()).sum(-1)
    plain = share + place + look + 1.5 * np.log(2 * np.pi)
    near = place > 0  # far away a region keeps a trace of being everywhere
    assert near.sum() > 20
    np.testing.assert_allclose(model.evidence(looks, packed)[1, 2].numpy()[near], plain[near], atol=1e-5)


def test_a_region_as_wide_as_the_frame_is_even_and_a_small_one_is_not():
    model = regions(order=0)
    frame, _ = boxes()
    looks = model.looks(frame)
    wide = model.evidence(looks, model.fit(looks, torch.ones(1, 1, len(model.cells), dtype=torch.float64)))
    assert wide.max() - wide.min() < 0.5
    corner = (model.cells < 0.3).all(-1).double()[None, None]
    assert np.ptp(model.evidence(looks, model.fit(looks, corner)).numpy()) > 10


def test_em_makes_the_free_energy_smaller():
    model = regions(toll=0.0, stiffness=1e-6, surest=1.0)  # without them, maximisation is exact
    frame, _ = boxes(*TWO_RED, (10, 12, 5, 5, BLUE))
    frame = frame + 0.02 * torch.randn(frame.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    looks = model.looks(frame)
    _, masks = drawn(slots=4)
    masks, energies = masks[:1], []
    for _ in range(12):
        energies.append(model.free_energy(frame, masks.clamp(min=1e-30).log().unflatten(-1, SIZE)).item())
        masks = model.evidence(looks, model.fit(looks, masks)).softmax(1)
    assert all(after < before + 1e-3 for before, after in itertools.pairwise(energies))
    assert energies[-1] < energies[0] - 100


def test_true_masks_have_less_free_energy_than_those_of_colour_or_of_none():
    model = regions()
    frame, ids = boxes(*TWO_RED, (10, 12, 5, 5, BLUE))

    def energy(ids):
        masks = torch.nn.functional.one_hot(ids, 4).permute(2, 0, 1)[None].double().clamp(min=1e-6)
        return model.free_energy(frame, (masks / masks.sum(1, keepdim=True)).log()).item()

    by_colour = torch.where(ids == 2, 1, ids)
    assert energy(ids) < energy(by_colour) - 5
    assert energy(ids) < energy(torch.zeros_like(ids)) - 100


def test_going_against_its_gradient_makes_it_smaller_by_as_much_as_the_gradient_says():
    """The regions are refitted on the way: being the best for the masks, they change the first order little."""
    model = regions(toll=0.0, stiffness=1e-6, surest=1.0, order=0)
    frame, masks = drawn()
    logits = masks.log().requires_grad_()

    def energy(logits):
        return model.free_energy(frame, logits.log_softmax(1).unflatten(-1, SIZE)).sum()

    energy(logits).backward()
    with torch.no_grad():
        step = 1e-4 * logits.grad
        slope = (energy(logits + step) - energy(logits - step)) / 2e-4
    assert slope.item() == pytest.approx(logits.grad.square().sum().item(), rel=0.1)


def test_things_of_one_colour_in_two_places_are_two_regions():
    model = regions()
    frame, ids = boxes(*TWO_RED)
    found = segments(model, frame, model.begin(model.looks(frame), 3))
    slots = [found[ids == number].mode().values.item() for number in range(3)]
    assert len(set(slots)) == 3
    assert (found == torch.tensor(slots)[ids]).double().mean() > 0.98


def test_slots_that_nothing_is_left_for_stay_empty():
    model = regions()
    frame, _ = boxes((8, 8, 6, 6, BLUE))
    found = segments(model, frame, model.begin(model.looks(frame), 5))
    assert len(found.unique()) == 2


def test_two_balls_that_pass_each_other_keep_their_slots():
    """They are of one colour: only place and motion tell which is which."""
    model = regions(inertia=0.01)
    frames, packed = [], torch.zeros(1, 3, model.width, dtype=torch.float64)
    for t in range(12):
        frame, ids = boxes((6, 2 + 2 * t, 4, 4, RED), (12, 26 - 2 * t, 4, 4, RED))
        looks = model.looks(frame)
        expected = model.expect(looks, packed)
        masks = model.masks(looks, expected)
        packed = model.fit(looks, masks.flatten(2).exp(), expected)
        frames.append((masks[0].argmax(0), ids))
    first, ids = frames[0]
    upper, lower = first[ids == 1].unique().item(), first[ids == 2].unique().item()
    assert upper != lower
    last, ids = frames[-1]
    assert (last[ids == 1] == upper).all()
    assert (last[ids == 2] == lower).all()
    np.testing.assert_allclose(model._parts(packed).velocity[0, [upper, lower], 1] * 32, [2.0, -2.0], atol=0.4)


def test_a_thing_that_comes_in_late_gets_the_slot_that_has_nothing():
    model = regions()
    frame, _ = boxes((8, 8, 6, 6, BLUE))
    looks = model.looks(frame)
    packed = model.begin(looks, 3)
    for _ in range(6):  # frames, in which two slots at one box become one
        expected = model.expect(looks, packed)
        packed = model.fit(looks, model.masks(looks, expected).flatten(2).exp(), expected)
    assert (model._parts(packed).share.exp() * len(model.cells) < 1).sum() == 1
    frame, ids = boxes((8, 8, 6, 6, BLUE), (2, 22, 6, 6, RED))
    looks = model.looks(frame)
    found = segments(model, frame, model.expect(looks, packed))
    before = segments(model, boxes((8, 8, 6, 6, BLUE))[0], packed)
    assert len(found[ids == 2].unique()) == 1
    assert found[ids == 2][0] not in before
    assert (found[ids == 1] == before[ids == 1]).all()


def test_where_a_video_begins_regions_are_found_and_elsewhere_kept():
    model = regions()
    frame = torch.cat([boxes((3, 3, 6, 6, RED))[0], boxes((14, 20, 6, 6, BLUE))[0]])
    looks = model.looks(frame)
    kept = model.begin(looks, 3)
    packed = kept.clone()
    packed[1] = 0
    torch.testing.assert_close(model.expect(looks, packed), kept)


def test_nothing_breaks_on_one_colour_and_on_masks_of_nothing():
    model = regions().float()
    frame = torch.full((1, 3, *SIZE), 0.3)
    packed = model.begin(model.looks(frame), 4)
    empty = torch.zeros(1, 4, len(model.cells))
    empty[:, 0] = 1
    for found in (packed, model.fit(model.looks(frame), empty, packed)):
        assert found.isfinite().all()
        assert model.masks(model.looks(frame), found).isfinite().all()


@pytest.mark.parametrize("options", [{"order": 3}, {"grain": 4}, {"doubt": 0.0}, {"surest": 2.0}, {"cell": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(BadInput):
        RegionsConfig(**options)
    with pytest.raises(BadInput, match="no whole number of cells"):
        Regions(RegionsConfig(cell=5), (32, 32))


# ---- in VONet --------------------------------------------------------------------------------------------------------


def vonet_with_regions(**options):
    parts = {"regions": RegionsConfig(), "decoder": BroadcastDecoderConfig(), "enlargement": "bilinear"}
    return small_model(replace(PAPER, **parts, **options))


def test_an_untrained_vonet_is_what_its_regions_expect():
    model = vonet_with_regions().eval()
    frame = torch.rand(2, 3, 32, 32)
    output, _ = model.step(frame, model.initial_state(2))
    looks = model.regions.looks(frame)
    expected = model.regions.masks(looks, model.regions.begin(looks, model.slots))
    torch.testing.assert_close(output.log_masks, expected, atol=1e-5, rtol=1e-5)


def test_permuting_the_slots_of_a_state_permutes_what_follows():
    model = vonet_with_regions().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    clip = Clip(torch.rand(2, 3, 3, 32, 32))
    state = model.unroll(clip).state
    order = torch.tensor([2, 0, 3, 1])
    straight = model.unroll(clip, state)
    permuted = model.unroll(clip, state.map(lambda x: x[:, order]))
    torch.testing.assert_close(permuted.log_masks, straight.log_masks[:, :, order], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(permuted.state.regions, straight.state.regions[:, order], atol=1e-3, rtol=1e-3)


def test_a_state_without_regions_is_refused():
    model, paper = vonet_with_regions(), small_model()
    with pytest.raises(BadInput, match="regions of shape none"):
        model.step(torch.rand(2, 3, 32, 32), paper.initial_state(2))


def test_the_decoder_does_not_teach_the_masks():
    model = vonet_with_regions()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    frames, latents = torch.rand(2, 3, 32, 32), torch.randn(2, 4, model.slot_dim)
    log_masks = torch.randn(2, 4, 32, 32).log_softmax(1).requires_grad_()
    losses = model.decode(frames, latents, log_masks, update=0)
    (of_decoder,) = torch.autograd.grad(losses["reconstruction"].sum(), log_masks, allow_unused=True)
    (of_regions,) = torch.autograd.grad(losses["regions"].sum(), log_masks)
    assert of_decoder is None
    assert of_regions.abs().sum() > 0
