"""It learns: in a minute or two on a CPU a small VONet begins to tell moving things apart, without labels."""

import colorsys
from dataclasses import replace

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from vonet import experiments
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.interface import Clip
from vonet.schedule import Schedule, constant
from vonet.training.loop import Training, collapse
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.segments import Footage

TWO = (2, 2)
TWO_IDS = (1, 2)


def foreground_agreement(model, pixels, ids) -> float:
    """The adjusted Rand index over the foreground of whole videos (1 perfect, 0 chance)."""
    frames = torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).float() / 255
    with torch.no_grad():
        state = model.initial_state(len(frames), generator=torch.Generator().manual_seed(0))
        masks = model.eval().unroll(Clip(frames), state).masks
    found = masks.argmax(dim=2).numpy()
    return np.mean([adjusted_rand_score(t[t > 0], f[t > 0]) for t, f in zip(ids, found, strict=True)])


def training_on(pixels, experiment, model) -> Training:
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
    held_out = sprite_videos(16, objects=TWO, seed=2)
    before = foreground_agreement(model, *held_out)
    training = training_on(sprite_videos(128, objects=TWO, seed=1)[0], experiment, model)
    errors = [training.step().losses["reconstruction"] for _ in range(400)]
    assert np.mean(errors[-20:]) < 0.1 * errors[0]
    assert before < 0.1
    assert foreground_agreement(model, *held_out) > 0.3


def large_discs(videos: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames and ids: two large discs in bright or dark colours drift over a grey background."""
    rows, columns = np.mgrid[:32, :32] + 0.5
    pixels, ids = np.full((videos, 12, 32, 32, 3), 0.5), np.zeros((videos, 12, 32, 32), int)
    for i in range(videos):
        rng = np.random.default_rng((seed, i))
        for number in TWO_IDS:
            colour = colorsys.hsv_to_rgb(rng.random(), 1, rng.choice([0.2, 1.0]))
            radius = rng.uniform(5, 9)
            position, velocity = rng.uniform(radius, 32 - radius, 2), rng.normal(0, 1.5, 2)
            for t in range(12):
                inside = (rows - position[0]) ** 2 + (columns - position[1]) ** 2 < radius**2
                pixels[i, t][inside], ids[i, t][inside] = colour, number
                position = np.clip(position + velocity, radius, 32 - radius)
    return (255 * pixels).astype(np.uint8), ids


def test_vonet_with_the_object_decoder_finds_two_moving_objects_from_scratch():
    """The parts of vonet-closeup in half a minute. From random weights to slots that hold an object each."""
    experiment = experiments.get("vonet-closeup")
    off = dict.fromkeys(("alignment", "spread", "area"), constant(0.0))  # they need masks that mean something
    rate = Schedule(((0, 1e-4), (50, 1e-3)))
    training = replace(
        experiment.training,
        batch=8,
        segment=2,
        weights={**experiment.training.weights, **off},
        optimizer=OptimizerConfig(
            groups={name: GroupConfig(learning_rate=rate, clip=10.0) for name in ("encoder", "decoder")}
        ),
    )
    experiment = replace(experiment, model=replace(experiment.model, slots=4), training=training)
    model, held_out = experiment.build_model(seed=0), large_discs(16, seed=2)
    before = foreground_agreement(model, *held_out)
    learning = training_on(large_discs(128, seed=1)[0], experiment, model)
    for _ in range(300):
        learning.step()
    assert before < 0.15
    assert foreground_agreement(model, *held_out) > 0.35


def test_a_bad_start_trips_the_alarm():
    """Latents that begin with a standard deviation of one drown the slots: the masks go uniform, and it is said."""
    experiment = experiments.get("vonet-sprites")
    vae = replace(experiment.model.sequential_vae, initial_log_std=0.0)
    model = replace(experiment, model=replace(experiment.model, sequential_vae=vae)).build_model(seed=0)
    training = training_on(sprite_videos(32, objects=TWO, seed=1)[0], experiment, model)
    alarms = [collapse(training.step()) for _ in range(80)]
    assert alarms[0] is None
    assert sum("nearly uniform" in (alarm or "") for alarm in alarms[-20:]) > 10
