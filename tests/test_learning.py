"""It learns: in a minute or two on a CPU a small VONet begins to tell moving things apart, without labels."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from vonet import experiments
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.interface import Clip
from vonet.training.loop import Training, collapse
from vonet.training.segments import Footage

TWO = (2, 2)


def foreground_agreement(model) -> float:
    """The adjusted Rand index over the foreground of whole videos never trained on (1 perfect, 0 chance)."""
    pixels, ids = sprite_videos(16, objects=TWO, seed=2)
    frames = torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).float() / 255
    with torch.no_grad():
        masks = model.eval().unroll(Clip(frames), model.initial_state(16)).masks
    found = masks.argmax(dim=2).numpy()
    return np.mean([adjusted_rand_score(t[t > 0], f[t > 0]) for t, f in zip(ids, found, strict=True)])


def training_on_sprites(experiment, model, videos: int) -> Training:
    pixels, _ = sprite_videos(videos, objects=TWO, seed=1)
    footage = Footage([ArrayVideo(f"{i}", video) for i, video in enumerate(pixels)], model.size)
    return Training(model, experiment.training, footage, seed=0)


def test_vonet_separates_two_moving_things():
    """The paper's way, without regions: slots that know nothing learn from the decoder alone."""
    experiment = experiments.get("vonet-sprites")
    experiment = replace(
        experiment,
        model=replace(experiment.model, slots=4),
        training=replace(experiment.training, segment=2),
    )
    model = experiment.build_model(seed=0)
    before = foreground_agreement(model)
    training = training_on_sprites(experiment, model, videos=128)
    errors = [training.step().losses["reconstruction"] for _ in range(400)]
    assert np.mean(errors[-20:]) < 0.1 * errors[0]
    assert before < 0.1
    assert foreground_agreement(model) > 0.3


def test_a_bad_start_trips_the_alarm():
    """Latents that begin with a standard deviation of one drown the slots: the masks go uniform, and it is said."""
    experiment = experiments.get("vonet-sprites")
    vae = replace(experiment.model.sequential_vae, initial_log_std=0.0)
    model = replace(experiment, model=replace(experiment.model, sequential_vae=vae)).build_model(seed=0)
    training = training_on_sprites(experiment, model, videos=32)
    alarms = [collapse(training.step()) for _ in range(80)]
    assert alarms[0] is None
    assert sum("nearly uniform" in (alarm or "") for alarm in alarms[-20:]) > 10
