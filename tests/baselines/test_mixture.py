"""The mixture against the textbook: weighted least squares, Gaussian densities, and EM that only goes downhill. And
against itself: the numbers that it gave when it was a part of VONet."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import vonet
from vonet.baselines.mixture import Mixture, MixtureConfig
from vonet.data.scenes.video import WorldConfig
from vonet.errors import BadInput
from vonet.interface import Clip, StreamingModel, VideoModel, device_of, frames_tensor

GOLDEN = Path(__file__).parents[1] / "golden" / "mixture.json"
SIZE = (24, 32)


def mixture(**options) -> Mixture:
    return Mixture(MixtureConfig(size=SIZE, **options)).double()


def boxes(*which, background=(0.5, 0.5, 0.5)):
    """A frame with boxes of one colour each, and which pixel is of which box."""
    frame, ids = torch.tensor(background).repeat(*SIZE, 1), torch.zeros(SIZE, dtype=torch.long)
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


def segments(model: Mixture, frame, packed):
    return model.log_masks(model.colours(frame), packed)[0].argmax(0)


def test_distances_between_colours_are_in_standard_deviations():
    model = mixture(chroma_std=0.05, brightness_std=0.2)
    grey = torch.full((1, 3, *SIZE), 0.5, dtype=torch.float64)
    lighter = grey + 0.2
    redder = grey + 0.05 * torch.tensor([2.0, -1.0, -1.0], dtype=torch.float64)[:, None, None] / 6**0.5
    for other in (lighter, redder):
        distance = (model.colours(other) - model.colours(grey)).norm(dim=-1)
        torch.testing.assert_close(distance, torch.ones_like(distance))


def test_light_and_shade_do_not_change_the_chroma():
    """The lit and the shaded side of one paint are alike in hue; as plain differences of colours they are not. In the
    dark, where a share of next to nothing is noise, hues are small."""
    paint = torch.tensor([0.2, 0.8, 0.8], dtype=torch.float64)[None, :, None, None].expand(1, 3, *SIZE)

    def hue(model, light):
        return model.colours(light * paint)[0, 0, :2].norm()

    share, plain = mixture(brightness_offset=0.01), mixture(brightness_offset=1e6)
    assert hue(share, 0.5) / hue(share, 1.0) > 0.97
    torch.testing.assert_close(
        hue(plain, 0.5) / hue(plain, 1.0), torch.tensor(0.5, dtype=torch.float64), atol=1e-5, rtol=0
    )
    middle = mixture(brightness_offset=0.4)
    assert 0.6 < hue(middle, 0.5) / hue(middle, 1.0) < 0.8
    assert hue(middle, 0.01) < 0.05 * hue(middle, 1.0)


@pytest.mark.parametrize(("dark", "pieces"), [(0.4, 1), (1e6, 2)])
def test_a_box_is_not_cut_where_its_shaded_side_begins(dark, pieces):
    """A slot is to spare, so that a cut is possible; with hue as a plain difference of colours it is made."""
    lit, shaded = (0.2, 0.75, 0.75), (0.11, 0.42, 0.42)
    frame, ids = boxes((4, 4, 12, 7, lit), (4, 11, 12, 7, shaded), (15, 24, 5, 5, BLUE))
    model = mixture(chroma_std=0.07, brightness_offset=dark)
    found = segments(model, frame, model.seed(model.colours(frame), 4))
    count = found[(ids == 1) | (ids == 2)].bincount(minlength=4)
    assert (count > 20).sum() == pieces


def test_a_fitted_component_has_the_moments_and_the_least_squares_of_its_mask():
    model = mixture(shading_ridge=2.0, min_position_std=0.02, min_relative_std=0.3, min_component_mass=3.0)
    frame, masks = drawn()
    colours = model.colours(frame)
    log_weight, centre, covariance, velocity, variance, shading = model._parts(model.fit(colours, masks))
    rows, columns = np.meshgrid(np.arange(SIZE[0]) + 0.5, np.arange(SIZE[1]) + 0.5, indexing="ij")
    places = np.stack([rows.ravel(), columns.ravel()], axis=-1) / 32
    for b in range(2):
        for k in range(3):
            weights = masks[b, k].numpy()
            mean = np.average(places, axis=0, weights=weights)
            scattered = np.cov(places.T, aweights=weights, ddof=0) + 0.02**2 * np.eye(2)
            np.testing.assert_allclose(centre[b, k], mean)
            np.testing.assert_allclose(covariance[b, k], [scattered[0, 0], scattered[0, 1], scattered[1, 1]])
            v, u = np.tanh((places - mean) / (1.5 * np.sqrt(np.trace(scattered) / 2))).T
            basis = np.stack([np.ones_like(u), v, u, v * v, v * u, u * u], axis=-1)
            # Ridge regression as least squares with rows more: sqrt(weight) of each cell, and of each term.
            rows_more = np.diag(np.sqrt([0.01, 2, 2, 2, 2, 2]))
            root = np.sqrt(weights)[:, None]
            target = np.concatenate([root * colours[b].numpy(), np.zeros((6, 3))])
            found, *_ = np.linalg.lstsq(np.concatenate([root * basis, rows_more]), target, rcond=None)
            np.testing.assert_allclose(shading[b, k].reshape(6, 3), found, atol=1e-8)
            away = (weights[:, None] * (colours[b].numpy() - basis @ found) ** 2).sum(0)
            usual = (np.array([away[:2].mean(), away[2]]) + 300) / (weights.sum() + 300)
            np.testing.assert_allclose(variance[b, k], np.clip(usual, 0.3**2, 1.0))
    worth = masks.sum(-1) - 3.0
    torch.testing.assert_close(log_weight.squeeze(-1).exp(), worth / worth.sum(1, keepdim=True))
    assert not velocity.any()


def test_the_joint_density_is_a_gaussian_of_position_and_colour():
    model = mixture(shading_order=0)
    frame, masks = drawn()
    masks = masks * torch.exp(-300 * (model.grid - torch.tensor([0.3, 0.5])).square().sum(-1))  # small components
    colours = model.colours(frame)
    packed = model.fit(colours, masks)
    log_weight, centre, covariance, _, variance, shading = (part[1, 2].numpy() for part in model._parts(packed))
    place = stats.multivariate_normal(centre, [covariance[:2], covariance[1:]]).logpdf(model.grid.numpy())
    deviations = np.sqrt([variance[0], variance[0], variance[1]])
    look = stats.norm(shading, deviations).logpdf(colours[1].numpy()).sum(-1)
    plain = log_weight + place + look + 1.5 * np.log(2 * np.pi)
    near = place > 0  # far away a component keeps a trace of being everywhere
    assert near.sum() > 20
    np.testing.assert_allclose(model.log_joint(colours, packed)[1, 2].numpy()[near], plain[near], atol=1e-5)


def test_a_component_as_wide_as_the_frame_is_uniform_and_a_small_one_is_not():
    model = mixture(shading_order=0)
    frame, _ = boxes()
    colours = model.colours(frame)
    wide = model.log_joint(colours, model.fit(colours, torch.ones(1, 1, len(model.grid), dtype=torch.float64)))
    assert wide.max() - wide.min() < 0.5
    corner = (model.grid < 0.3).all(-1).double()[None, None]
    assert np.ptp(model.log_joint(colours, model.fit(colours, corner)).numpy()) > 10


def free_energy(model: Mixture, colours, masks) -> float:
    """Σ m (log m − log P), in nats, for the components that the masks cover: what variational EM minimises."""
    return (masks * (masks.clamp(min=1e-30).log() - model.log_joint(colours, model.fit(colours, masks)))).sum().item()


def test_em_makes_the_free_energy_smaller():
    model = mixture(min_component_mass=0.0, shading_ridge=1e-6, min_relative_std=1.0)  # then the M step is exact
    frame, _ = boxes(*TWO_RED, (10, 12, 5, 5, BLUE))
    frame = frame + 0.02 * torch.randn(frame.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    colours = model.colours(frame)
    _, masks = drawn(slots=4)
    masks, energies = masks[:1], []
    for _ in range(12):
        energies.append(free_energy(model, colours, masks))
        masks = model.log_joint(colours, model.fit(colours, masks)).softmax(1)
    assert all(after < before + 1e-3 for before, after in itertools.pairwise(energies))
    assert energies[-1] < energies[0] - 100


def test_true_masks_have_less_free_energy_than_masks_of_colours_or_one_mask():
    model = mixture()
    frame, ids = boxes(*TWO_RED, (10, 12, 5, 5, BLUE))

    def energy(ids):
        masks = torch.nn.functional.one_hot(ids, 4).permute(2, 0, 1)[None].double().clamp(min=1e-6).flatten(2)
        return free_energy(model, model.colours(frame), masks / masks.sum(1, keepdim=True))

    by_colour = torch.where(ids == 2, 1, ids)
    assert energy(ids) < energy(by_colour) - 5
    assert energy(ids) < energy(torch.zeros_like(ids)) - 100


def test_things_of_one_colour_in_two_places_are_two_components():
    model = mixture()
    frame, ids = boxes(*TWO_RED)
    found = segments(model, frame, model.seed(model.colours(frame), 3))
    slots = [found[ids == number].mode().values.item() for number in range(3)]
    assert len(set(slots)) == 3
    assert (found == torch.tensor(slots)[ids]).double().mean() > 0.98


def test_slots_that_nothing_is_left_for_stay_empty():
    model = mixture()
    frame, _ = boxes((8, 8, 6, 6, BLUE))
    found = segments(model, frame, model.seed(model.colours(frame), 5))
    assert len(found.unique()) == 2


def test_two_balls_that_pass_each_other_keep_their_slots():
    """They are of one colour: only place and motion tell which is which."""
    model = mixture(velocity_prior_mass=0.01)
    frames, packed = [], torch.zeros(1, 3, model.width, dtype=torch.float64)
    for t in range(12):
        frame, ids = boxes((6, 2 + 2 * t, 4, 4, RED), (12, 26 - 2 * t, 4, 4, RED))
        colours = model.colours(frame)
        expected = model.predict(colours, packed)
        masks = model.log_masks(colours, expected)
        packed = model.fit(colours, masks.flatten(2).exp(), expected)
        frames.append((masks[0].argmax(0), ids))
    first, ids = frames[0]
    upper, lower = first[ids == 1].unique().item(), first[ids == 2].unique().item()
    assert upper != lower
    last, ids = frames[-1]
    assert (last[ids == 1] == upper).all()
    assert (last[ids == 2] == lower).all()
    np.testing.assert_allclose(model._parts(packed).velocity[0, [upper, lower], 1] * 32, [2.0, -2.0], atol=0.4)


def test_a_thing_that_comes_in_late_gets_the_slot_that_has_nothing():
    model = mixture()
    frame, _ = boxes((8, 8, 6, 6, BLUE))
    colours = model.colours(frame)
    packed = model.seed(colours, 3)
    for _ in range(6):  # frames, in which two slots at one box become one
        expected = model.predict(colours, packed)
        packed = model.fit(colours, model.log_masks(colours, expected).flatten(2).exp(), expected)
    assert (model._parts(packed).log_weight.exp() * len(model.grid) < 1).sum() == 1
    frame, ids = boxes((8, 8, 6, 6, BLUE), (2, 22, 6, 6, RED))
    colours = model.colours(frame)
    found = segments(model, frame, model.predict(colours, packed))
    before = segments(model, boxes((8, 8, 6, 6, BLUE))[0], packed)
    assert len(found[ids == 2].unique()) == 1
    assert found[ids == 2][0] not in before
    assert (found[ids == 1] == before[ids == 1]).all()


def test_where_a_video_begins_components_are_seeded_and_elsewhere_kept():
    model = mixture()
    frame = torch.cat([boxes((3, 3, 6, 6, RED))[0], boxes((14, 20, 6, 6, BLUE))[0]])
    colours = model.colours(frame)
    kept = model.seed(colours, 3)
    packed = kept.clone()
    packed[1] = 0
    torch.testing.assert_close(model.predict(colours, packed), kept)


def test_nothing_breaks_on_one_colour_and_on_masks_of_nothing():
    model = mixture().float()
    frame = torch.full((1, 3, *SIZE), 0.3)
    packed = model.seed(model.colours(frame), 4)
    empty = torch.zeros(1, 4, len(model.grid))
    empty[:, 0] = 1
    for found in (packed, model.fit(model.colours(frame), empty, packed)):
        assert found.isfinite().all()
        assert model.log_masks(model.colours(frame), found).isfinite().all()


@pytest.mark.parametrize(
    "options",
    [
        {"shading_order": 3},
        {"seed_window": 4},
        {"uniform_share": 0.0},
        {"min_relative_std": 2.0},
        {"brightness_offset": 0.0},
        {"em_iterations": -1},
        {"cell": 0},
        {"cell": 5, "size": (32, 32)},
        {"slots": 0},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(BadInput):
        MixtureConfig(**options)


# ---- as a method like any other --------------------------------------------------------------------------------------


def test_it_keeps_the_contract_without_parameters():
    model, experiment = vonet.load("mixture")
    assert isinstance(model, VideoModel)
    assert isinstance(model, StreamingModel)
    assert not list(model.parameters())
    assert (model.parameter_groups(), model.state_dict(), experiment.training) == ({}, {}, None)
    assert device_of(model) == torch.device("cpu")
    clip = Clip(torch.rand(2, 3, 3, 64, 64))
    output = model(clip)
    assert output.losses == {}
    torch.testing.assert_close(output.masks.sum(2), torch.ones(2, 3, 64, 64))
    state = model.initial_state(2)
    for t in range(3):
        step, state = model.step(clip.frames[:, t], state)
        torch.testing.assert_close(step.log_masks, output.log_masks[:, t])
    assert model.unroll(clip, model.initial_state(2, slots=3)).masks.shape[2] == 3


def test_a_video_that_begins_inside_a_clip_is_seeded_anew():
    model = Mixture(MixtureConfig(size=(32, 32), slots=4))
    frames = torch.rand(1, 4, 3, 32, 32)
    begins = torch.tensor([[False, False, True, False]])
    joined, alone = model.unroll(Clip(frames, begins)), model.unroll(Clip(frames[:, 2:]))
    torch.testing.assert_close(joined.log_masks[:, 2:], alone.log_masks)


def test_a_state_of_another_model_is_refused():
    one, other = Mixture(MixtureConfig(size=(32, 32))), Mixture(MixtureConfig(size=(32, 32), shading_order=0))
    with pytest.raises(BadInput, match=r"the state holds components of shape .*start with model.initial_state\(1\)"):
        one.step(torch.rand(1, 3, 32, 32), other.initial_state(1))


def test_its_reconstruction_shows_the_objects_in_their_places():
    model = mixture(slots=4).float()
    frame, ids = boxes(*TWO_RED, (10, 12, 5, 5, BLUE))
    output = model.unroll(Clip(frame.float()[:, None]))
    shown = model.explain(output).reconstruction[0, 0]
    assert (shown - frame[0].float()).abs().mean() < 0.03
    assert (shown[:, ids == 3].mean(1) - torch.tensor(BLUE)).abs().max() < 0.1


def numbers(output) -> dict[str, np.ndarray]:
    """The area and the centre of each mask in each frame, in pixels: B T K."""
    masks = output.log_masks.exp().double()
    rows, columns = torch.arange(64.0)[:, None].double(), torch.arange(64.0)[None].double()
    area = masks.sum((-2, -1))
    row, column = ((masks * place).sum((-2, -1)) / area.clamp(min=1e-9) for place in (rows, columns))
    return {"area": area.numpy(), "row": row.numpy(), "column": column.numpy()}


def test_it_gives_the_masks_that_the_untrained_laptop_a_gave():
    """Numbers of commit 50d7aff, where this mixture was a part of VONet: untrained `laptop-a` on two generated videos,
    forwards (streaming) and then backwards from the last state (offline)."""
    golden = json.loads(GOLDEN.read_text())
    worlds = [WorldConfig("A", size=64, frames=10, seed=seed, objects=(3, 5)) for seed in (41, 42)]
    pixels = [world.video("test", 0).frames for world in worlds]
    assert [int(video.astype(np.int64).sum()) for video in pixels] == golden["pixels"]  # the same videos
    frames = frames_tensor(np.stack(pixels))
    model, _ = vonet.load("mixture")
    streaming = model.unroll(Clip(frames))
    offline = model.unroll(Clip(frames.flip(1)), streaming.state)
    for name, output in (("streaming", streaming), ("offline", offline)):
        for what, found in numbers(output).items():
            np.testing.assert_allclose(found, np.array(golden[name][what]), atol=0.01, err_msg=f"{name} {what}")
