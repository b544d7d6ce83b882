"""What is shown is what was scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vonet import experiments
from vonet.data.resize import resized
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.protocol import PROTOCOLS, score
from vonet.evaluation.run import evaluate_model, fresh_state
from vonet.figures.watched import watch
from vonet.interface import Clip, ExplainingModel
from vonet.model.vonet import VONet


def lively(config) -> VONet:
    """Untrained, with larger weights, so that its masks are not all alike."""
    torch.manual_seed(0)
    made = VONet(config)
    with torch.no_grad():
        for parameter in made.attention.parameters():
            parameter.mul_(1.7)
    return made.eval()


@pytest.fixture(scope="module")
def model():
    return lively(experiments.get("vonet-sprites").model)


@pytest.fixture(scope="module")
def video():
    pixels, ids = sprite_videos(1, frames=6, seed=3)
    return ArrayVideo("sprites", pixels[0], ids[0], "validation")


def test_the_ids_shown_are_those_that_were_scored(model, video):
    rules = PROTOCOLS["vonet"]
    shown = watch(model, video, min_probability=rules.min_probability)
    (row,) = evaluate_model(model, model.size, [video], rules, progress=False)
    assert score(shown.true_ids, shown.ids) == pytest.approx(row.scores)
    assert len(np.unique(shown.ids)) > 2
    assert np.array_equal(shown.frames, video.frames)


def test_what_is_shown_of_the_inside_is_the_models_own(model, video):
    shown = watch(model, video)
    clip = Clip(torch.from_numpy(video.frames).permute(0, 3, 1, 2)[None].float() / 255)
    with torch.no_grad():
        output = model.unroll(clip, fresh_state(model, video))
    for source, pixels in (("posterior", shown.reconstruction), ("prior", shown.prior_reconstruction)):
        expected = (model.pictures(output, source)[0].permute(0, 2, 3, 1) * 255).round().byte().numpy()
        assert np.array_equal(pixels, expected)
    assert np.allclose(shown.divergence, model.slot_divergence(output)[0].numpy())
    assert not np.array_equal(shown.reconstruction, shown.prior_reconstruction)


def test_models_need_not_explain_themselves(model, video):
    class Silent(torch.nn.Module):
        """Watches as the model does, and has nothing more to say."""

        size, scale = model.size, torch.nn.Parameter(torch.ones(1))
        initial_state, unroll = staticmethod(model.initial_state), staticmethod(model.unroll)

        def parameters(self, recurse=True):
            return iter([self.scale])

    silent = watch(Silent(), video)
    assert not isinstance(Silent(), ExplainingModel)
    assert isinstance(model, ExplainingModel)
    assert silent.reconstruction is silent.prior_reconstruction is silent.divergence is None
    assert np.array_equal(silent.ids, watch(model, video).ids)


@pytest.mark.parametrize("name", ["savi-laptop-a", "monet-laptop-a", "simone-laptop-a"])
def test_other_methods_show_what_they_have(video, name):
    torch.manual_seed(0)
    shown = watch(experiments.get(name).build_model().eval(), video)
    assert (shown.reconstruction is not None) == (name == "savi-laptop-a")
    assert shown.prior_reconstruction is shown.divergence is None
    assert shown.ids.shape == video.ids.shape


def test_labels_of_a_model_s_own_are_shown(video):
    """SCALOR has more names than slots, and its own rule for who has a pixel."""
    torch.manual_seed(2)
    model = experiments.get("scalor-laptop-a").build_model().eval()
    with torch.no_grad():
        model.discovery.heads["presence"].bias.fill_(1.0)  # so that there are objects
    rules = PROTOCOLS["vonet"]
    shown = watch(model, video, min_probability=rules.min_probability)
    (row,) = evaluate_model(model, model.size, [video], rules, progress=False)
    assert score(shown.true_ids, shown.ids) == pytest.approx(row.scores)
    assert sorted(np.unique(shown.ids)) == list(range(1, shown.slots + 1))
    assert shown.slots > 2


def test_without_a_prior_there_is_no_prior_reconstruction(video):
    config = experiments.get("vonet-sprites").model
    config = replace(config, sequential_vae=replace(config.sequential_vae, prior=None))
    shown = watch(lively(config), video)
    assert shown.prior_reconstruction is shown.divergence is None
    assert shown.reconstruction.shape == shown.frames.shape


def test_masks_that_are_not_numbers_are_refused(video):
    broken = lively(experiments.get("vonet-sprites").model)
    with torch.no_grad():
        next(broken.backbone.parameters()).fill_(float("nan"))
    with pytest.raises(BadInput, match="some masks of sprites are not finite"):
        watch(broken, video)


def test_long_and_large_videos_are_cut_and_shrunk(model):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (7, 60, 100, 3), np.uint8)
    shown = watch(model, ArrayVideo("large", frames), longest=5, largest=50)
    assert shown.frames.shape == shown.reconstruction.shape == (5, 30, 50, 3)
    assert shown.ids.shape == (5, 30, 50)
    assert shown.true_ids is None
    assert np.array_equal(shown.frames, resized(frames[:5], (30, 50), "stretch"))
