"""What holds for every baseline. A new model is a row in `ROWS`."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace

import numpy as np
import pytest
import torch

from tests.reduced import reduced, reduced_experiment
from vonet import experiments
from vonet.baselines.scalor import BoxConfig
from vonet.blocks.component import ComponentDecoderConfig, ComponentEncoderConfig
from vonet.blocks.unet import UNetConfig
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.protocol import PROTOCOLS
from vonet.evaluation.run import MODEL, evaluate_model
from vonet.experiments import weights
from vonet.interface import Clip, EmptyState, StreamingModel, VideoModel, total
from vonet.schedule import constant
from vonet.training.loop import Training
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.training.segments import Footage


def halfway(sigma: float) -> Callable[[torch.Tensor], float]:
    """Of frames: what a Gaussian likelihood gives halfway from painting their mean colour to painting them exactly."""

    def loss(frames):
        best = 3 * frames[0, 0, 0].numel() * (np.log(sigma) + 0.5 * np.log(2 * np.pi))
        off = (frames - frames.mean(dim=(-2, -1), keepdim=True)).square().sum((2, 3, 4)).mean() / (2 * sigma**2)
        return best + off.item() / 2

    return loss


@dataclass(frozen=True)
class Row:
    experiment: str
    """Whose model is reduced and tried."""
    divergences: tuple[str, ...]
    """The losses that are never below zero."""
    explains: str = ""
    """The loss that says how badly frames are explained."""
    good: Callable[[torch.Tensor], float] = float
    """Of frames: below which value three of them count as learned by heart."""
    updates: int = 0
    """In which that must be reached; 0: tests of the model's own see to it."""
    rate: float = 1e-3
    """With this learning rate."""
    tiny: dict = field(default_factory=dict)
    """What differs from the reduced model then."""
    learned_frames: int = 1
    """Of the clips that are learned by heart."""
    encodes_last: bool = True
    """Whether a model that learns also watches the last frame of a clip."""
    grows: bool = True
    """Whether it takes any number of slots."""
    frames: int = 4
    """Of a clip."""


TINY_COMPONENTS = {
    "size": (16, 16),
    "slots": 3,
    "latent_dim": 8,
    "unet": UNetConfig(channels=(8, 8, 8), bottleneck=(16,)),
    "encoder": ComponentEncoderConfig(channels=(8, 16), hidden=32),
    "decoder": ComponentDecoderConfig(channels=(16, 16)),
    **{"sigma_first": 0.09, "sigma": 0.11, "initial_log_std": 0.0},
}

ROWS = {
    "monet": Row(
        "monet-laptop-a",
        divergences=("kl", "masks"),
        explains="reconstruction",
        good=halfway(0.11),
        updates=240,
        rate=3e-3,
        tiny=TINY_COMPONENTS,
    ),
    "vimon": Row(
        "vimon-laptop-a",
        divergences=("kl", "masks", "next_masks"),
        explains="reconstruction",
        good=halfway(0.11),
        updates=280,
        rate=3e-3,
        tiny=TINY_COMPONENTS,
        learned_frames=4,
        encodes_last=False,
    ),
    "scalor": Row(
        "scalor-laptop-a",
        divergences=("what", "where", "depth", "presence", "background"),
        explains="reconstruction",
        good=halfway(0.1),
        updates=120,
        rate=5e-4,
        tiny={"slots": 2, "box": BoxConfig(size=0.3, size_range=0.2)},
        learned_frames=2,
    ),
    "savi": Row("savi-laptop-a", ()),
    "steve": Row("steve-laptop-a", ("tokens", "pixels")),
    "simone": Row("simone-laptop-a", ("object_kl", "frame_kl"), grows=False),
}


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


def built(row, **changes):
    config = replace(reduced(experiments.get(row.experiment).model), **changes)
    made = replace(experiments.get(row.experiment), model=config).build_model(seed=0)
    return made.eval()


@pytest.fixture
def model(row):
    return built(row)


def sprites(model, count=2, frames=4, seed=0):
    """Frames of the model's size with something in them."""
    pixels, ids = sprite_videos(count, frames=frames, seed=seed)
    times = model.size[0] // 32
    return pixels.repeat(times, 2).repeat(times, 3), ids.repeat(times, 2).repeat(times, 3)


def clip_of(model, row, count=2, seed=0, frames=None):
    pixels, _ = sprites(model, count, frames or row.frames, seed)
    return Clip(torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).float() / 255)


def assert_same(one, other, **tolerance):
    for name in ("masks", "slots", "labels"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None:
            torch.testing.assert_close(a, b, msg=name, **(tolerance or {"atol": 1e-3, "rtol": 1e-3}))


# ---- masks and losses ------------------------------------------------------------------------------------------------


def test_it_keeps_the_contract(model, row):
    assert isinstance(model, VideoModel)
    clip = clip_of(model, row)
    output = model.unroll(clip)
    assert output.losses == {}
    assert output.log_masks.shape == (2, row.frames, model.slots, *model.cells)
    assert output.masks.shape == (2, row.frames, model.slots, *model.size)
    torch.testing.assert_close(output.masks.sum(2), torch.ones(2, row.frames, *model.size), atol=1e-5, rtol=0)
    assert (output.masks >= 0).all()
    assert output.slots.shape[:3] == output.previous_slots.shape[:3] == output.log_masks.shape[:3]


def test_losses_are_named_and_finite(model, row):
    clip = clip_of(model, row)
    for mode in (model.train(), model.eval()):
        losses = mode(clip, mode.initial_state(2), update=3).losses
        assert set(losses) == set(experiments.get(row.experiment).model.losses)
        for loss in losses.values():
            assert loss.shape == (2, row.frames if row.encodes_last else row.frames - 1)
            assert torch.isfinite(loss).all()
        for name in row.divergences:
            assert (losses[name] >= -1e-3).all(), name


def test_every_parameter_learns_and_has_one_group(row):
    model = built(row).train()
    torch.manual_seed(1)
    for update in range(3):  # where something was drawn that hid a part, another draw may show it
        losses = model(clip_of(model, row, seed=update), update=10**9).losses
        total(losses, dict.fromkeys(losses, 1.0)).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []
    grouped = [p for group in model.parameter_groups().values() for p in group]
    assert len(grouped) == len(set(map(id, grouped))) == len(list(model.parameters()))


def test_evaluation_draws_nothing_and_videos_do_not_meet(model, row):
    clip = clip_of(model, row)
    state = model.initial_state(2, generator=torch.Generator().manual_seed(0))
    both, again = model.unroll(clip, state), model.unroll(clip, state)
    assert_same(both, again, atol=0, rtol=0)
    alone = model.unroll(Clip(clip.frames[1:]), state.map(lambda x: x[1:]))
    for name in ("masks", "slots"):
        torch.testing.assert_close(getattr(alone, name), getattr(both, name)[1:], atol=1e-3, rtol=1e-3)


def test_any_number_of_slots(row):
    model = built(row)
    if not row.grows:
        with pytest.raises(BadInput, match="slots"):
            model.initial_state(1, slots=model.slots + 2)
        return
    output = model.unroll(clip_of(model, row), model.initial_state(2, slots=6))
    assert output.masks.shape[2] == 6


def parts_of(config):
    yield config
    for option in fields(config):
        if is_dataclass(value := getattr(config, option.name)):
            yield from parts_of(value)


def test_every_option_is_read(row, monkeypatch):
    config = reduced(experiments.get(row.experiment).model)
    parts = list(parts_of(config))
    options, seen = {(type(part), option.name) for part in parts for option in fields(part)}, set()

    def spy(self, name):
        seen.add((type(self), name))
        return object.__getattribute__(self, name)

    for kind in {type(part) for part in parts}:
        monkeypatch.setattr(kind, "__getattribute__", spy)
    model = config.build()
    model(clip_of(model, row))  # schedules are read when they are used
    assert options - seen == set()


# ---- time ------------------------------------------------------------------------------------------------------------


def streaming(model):
    if not isinstance(model, StreamingModel):
        pytest.skip("needs the whole clip")
    return model


@torch.no_grad()
def test_streaming_is_the_whole_clip(model, row):
    streaming(model)
    clip = clip_of(model, row)
    state = start = model.initial_state(2, generator=torch.Generator().manual_seed(0))
    whole = model.unroll(clip, start)
    for t in range(row.frames):
        step, state = model.step(clip.frames[:, t], state)
        of_frame = {n: None if getattr(whole, n) is None else getattr(whole, n)[:, t] for n in ("labels", "slots")}
        assert_same(step, replace(step, log_masks=whole.log_masks[:, t], **of_frame))
    assert type(whole.state) is type(state)
    for name in vars(state):
        torch.testing.assert_close(getattr(whole.state, name), getattr(state, name), atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_the_past_does_not_know_the_future(model, row):
    streaming(model)
    clip = clip_of(model, row)
    changed = clip.frames.clone()
    changed[:, 2:] = torch.rand_like(changed[:, 2:])
    state = model.initial_state(2, generator=torch.Generator().manual_seed(0))
    one, other = model.unroll(clip, state), model.unroll(Clip(changed), state)
    assert torch.equal(one.log_masks[:, :2], other.log_masks[:, :2])
    assert not torch.equal(one.log_masks[:, 2:], other.log_masks[:, 2:])


@torch.no_grad()
def test_where_a_video_begins_nothing_is_remembered(model, row):
    streaming(model)
    clip = clip_of(model, row)
    begins = torch.zeros(2, row.frames, dtype=torch.bool)
    begins[0, 2] = True
    state = model.initial_state(2, generator=torch.Generator().manual_seed(0))
    whole = model.unroll(Clip(clip.frames, begins), state)
    fresh = model.unroll(Clip(clip.frames[:1, 2:]), state.map(lambda x: x[:1]))
    torch.testing.assert_close(whole.masks[:1, 2:], fresh.masks, atol=1e-3, rtol=1e-3)
    went_on = model.unroll(clip, state)
    torch.testing.assert_close(whole.masks[:, :2], went_on.masks[:, :2], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(whole.masks[1], went_on.masks[1], atol=1e-3, rtol=1e-3)
    same = torch.equal(whole.masks[0, 2:], went_on.masks[0, 2:])
    assert same == isinstance(state, EmptyState)


# ---- learning, scoring, keeping --------------------------------------------------------------------------------------


def squares(size, frames):
    """Three clips of a coloured square that moves before grey."""
    pixels = np.full((3, frames, size, size, 3), 50, np.uint8)
    unit = size // 16
    for i, colour in enumerate([(230, 50, 30), (30, 200, 80), (50, 80, 230)]):
        for t in range(frames):
            rows, columns = slice((3 + 2 * i) * unit, (9 + 2 * i) * unit), slice((2 + t) * unit, (8 + t) * unit)
            pixels[i, t, rows, columns] = colour
    return pixels


def test_three_clips_are_learned_by_heart(row):
    if not row.updates:
        pytest.skip("its own tests see to it")
    model = built(row, **row.tiny)
    pixels = squares(model.size[0], row.learned_frames)
    footage = Footage([ArrayVideo(f"{i}", video) for i, video in enumerate(pixels)], model.size)
    config = experiments.get(row.experiment).training
    groups = {name: GroupConfig(learning_rate=constant(row.rate), clip=10.0) for name in config.optimizer.groups}
    config = replace(
        config,
        batch=3,
        segment=pixels.shape[1],
        weights={name: constant(0.1 if name in row.divergences else 1.0) for name in config.weights},
        optimizer=OptimizerConfig(groups=groups),
    )
    frames = torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).float() / 255
    training = Training(model, config, footage, seed=0)

    def explained():
        with torch.no_grad():
            return model.eval()(Clip(frames)).losses[row.explains].mean().item()

    before = explained()
    for _ in range(row.updates):
        training.step()
    assert before > row.good(frames) > explained()


def test_it_is_evaluated_and_kept(row, tmp_path, monkeypatch):
    made = reduced_experiment(experiments.get(row.experiment))
    model = made.build_model(seed=0).eval()
    pixels, ids = sprites(model, count=2, frames=row.frames)
    videos = [ArrayVideo(f"{i}", *pair) for i, pair in enumerate(zip(pixels, ids, strict=True))]
    rows = evaluate_model(model, model.size, videos, PROTOCOLS["vonet"], progress=False)
    assert [found.method for found in rows] == [MODEL, MODEL]
    weights.save(tmp_path, model, made)
    loaded, read = weights.load(tmp_path)
    assert read == made
    again = evaluate_model(loaded, loaded.size, videos, PROTOCOLS["vonet"], batch=1, progress=False)
    for one, other in zip(rows, again, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=2e-3)


def test_what_does_not_fit_is_refused_with_a_sentence(model, row):
    clip = clip_of(model, row)
    with pytest.raises(BadInput, match="this model was built for"):
        model.unroll(Clip(clip.frames[..., :-8]))
    with pytest.raises(BadInput, match=r"start with model\.initial_state"):
        model.unroll(clip, model.initial_state(3))
    with pytest.raises(BadInput, match="slots were asked for"):
        model.initial_state(1, slots=0)
    with pytest.raises(BadInput, match="a state of 0 videos"):
        model.initial_state(0)
    with pytest.raises(BadInput, match="float64"):
        model.unroll(Clip(clip.frames.double()))
    if isinstance(model, StreamingModel):
        with pytest.raises(BadInput, match="expected B 3 H W"):
            model.step(clip.frames, model.initial_state(2))
