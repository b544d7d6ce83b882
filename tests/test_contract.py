"""Any model can be an experiment: built, trained, saved, loaded and evaluated without anyone knowing which it is.

The stand-ins are as small as models get: one that sees each frame on its own, one that needs the whole clip, and one
that streams and has a rule of its own for labels.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.video import ArrayVideo
from vonet.evaluation import evaluate as evaluation
from vonet.evaluation.protocol import PROTOCOLS
from vonet.evaluation.run import MODEL, OFFLINE, evaluate_model
from vonet.experiments import Experiment, registry, weights
from vonet.figures.masks import write_mask_sheet
from vonet.interface import (
    Clip,
    EmptyState,
    Output,
    SlotState,
    StepOutput,
    StreamingModel,
    VideoModel,
)
from vonet.schedule import constant
from vonet.training.config import TrainingConfig
from vonet.training.distributed import Processes
from vonet.training.loop import Training
from vonet.training.optimizer import GroupConfig, OptimizerConfig, RMSpropConfig
from vonet.training.replay import Replay, ReplayConfig
from vonet.training.run import Run, TrainOptions
from vonet.training.segments import Footage, Windows

SIZE = (16, 16)


@dataclass(frozen=True, kw_only=True)
class WholeClipConfig:
    slots: int = 3
    losses = ("error",)

    def build(self):
        return KINDS[type(self)](self)


class WholeClip(nn.Module):
    """Compares each pixel with the mean colour of the whole clip: no frame can be told before the last is seen."""

    size, cells, enlargement = SIZE, SIZE, "nearest"

    def __init__(self, config: WholeClipConfig):
        super().__init__()
        self.slots = config.slots
        self.colours = nn.Parameter(torch.linspace(0, 1, config.slots)[:, None].repeat(1, 3))

    def initial_state(self, batch, slots=None, generator=None):
        return EmptyState(torch.zeros(batch, slots or self.slots, 0))

    def unroll(self, clip, state=None):
        centred = clip.frames - clip.frames.mean(dim=(1, 3, 4), keepdim=True) + 0.5
        distance = (centred.unsqueeze(2) - self.colours[None, None, :, :, None, None]).square().sum(3)
        slots = self.colours.expand(*clip.frames.shape[:2], -1, -1)
        last = self.initial_state(len(clip.frames))
        masks = (-9 * distance).log_softmax(2)
        return Output(masks, self.size, self.enlargement, slots, torch.zeros_like(slots), last)

    def forward(self, clip, state=None, update=0):
        output = self.unroll(clip, state)
        seen = torch.einsum("btkhw,kc->btchw", output.masks, self.colours)
        return replace(output, losses={"error": (clip.frames - seen).square().sum((2, 3, 4))})

    def parameter_groups(self):
        return {"all": list(self.parameters())}


@dataclass(frozen=True, kw_only=True)
class PerFrameConfig(WholeClipConfig):
    pass


class PerFrame(WholeClip):
    """Frame by frame, and remembers nothing."""

    def unroll(self, clip, state=None):
        frames = [super(PerFrame, self).unroll(Clip(clip.frames[:, t : t + 1])) for t in range(clip.frames.shape[1])]
        parts = {name: torch.cat([getattr(o, name) for o in frames], dim=1) for name in ("log_masks", "slots")}
        zeros = torch.zeros_like(parts["slots"])
        return replace(frames[0], **parts, previous_slots=zeros)

    def step(self, frame, state):
        output = self.unroll(Clip(frame[:, None]))
        tensors = [getattr(output, name)[:, 0] for name in ("log_masks", "slots", "previous_slots")]
        return StepOutput(tensors[0], self.size, self.enlargement, *tensors[1:]), state


@dataclass(frozen=True, kw_only=True)
class LabellingConfig(WholeClipConfig):
    pass


class Labelling(PerFrame):
    """Streams, counts its frames, and names segments after the number of the frame."""

    def initial_state(self, batch, slots=None, generator=None):
        return SlotState(torch.zeros(batch, slots or self.slots, 1), torch.zeros(batch, slots or self.slots, 1))

    def step(self, frame, state):
        output, _ = super().step(frame, state)
        number = state.slots[:, :1] + 1
        labels = number.expand(-1, *self.size).long()
        return replace(output, labels=labels), replace(state, slots=state.slots + 1)


KINDS = {WholeClipConfig: WholeClip, PerFrameConfig: PerFrame, LabellingConfig: Labelling}


def stand_in(config, replay=None, optimizer=OptimizerConfig):
    group = GroupConfig(learning_rate=constant(1e-2), clip=1.0)
    training = TrainingConfig(
        updates=3,
        batch=2,
        segment=4,
        weights={"error": constant(1.0)},
        optimizer=optimizer(groups={"all": group}),
        replay=replay,
    )
    return Experiment(name="stand-in", summary="a stand-in", dataset="none", model=config, training=training)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "a"
    generate(WorldConfig("A", size=16, frames=8, objects=(2, 3)), {"train": 3, "validation": 2}, path, workers=1)
    return path


def test_the_kinds_are_told_apart_by_their_methods():
    for config, model in KINDS.items():
        made = stand_in(config()).build_model()
        assert type(made) is model
        assert isinstance(made, VideoModel)
        assert isinstance(made, StreamingModel) == (model is not WholeClip)


@pytest.mark.parametrize("config", KINDS)
def test_any_model_is_trained_saved_loaded_and_evaluated(config, monkeypatch, tmp_path, world):
    made = stand_in(config())
    monkeypatch.setitem(registry._OWN, made.name, made)
    run = Run(made, world, tmp_path / "run", TrainOptions(log_every=1, pictures=1), Processes(), resume=False)
    before = run.training.model.colours.detach().clone()
    run.learn({"asked": False})
    assert not torch.equal(run.training.model.colours, before)
    assert len(list((tmp_path / "run/pictures").glob("*.png"))) == 3
    loaded, read = weights.load(tmp_path / "run")
    assert read == made
    assert torch.equal(loaded.colours, run.training.model.colours)
    report = evaluation.evaluate(tmp_path / "run", world, progress=False)
    methods = {row.method for row in report.rows}
    assert MODEL in methods
    assert (OFFLINE in methods) == (config is LabellingConfig)  # going back needs a memory
    assert report.about["slots"] == 3


def test_only_a_streaming_model_gets_replay(world):
    footage = Footage([ArrayVideo("grey", np.full((8, *SIZE, 3), 128, np.uint8))], SIZE)
    replay = ReplayConfig(videos=2, length=8, frames_per_update=1, frames_before_first_update=8)
    kinds = {WholeClipConfig: Windows, PerFrameConfig: Replay, LabellingConfig: Replay}
    for config, source in kinds.items():
        made = stand_in(config(), replay)
        training = Training(made.build_model(), made.training, footage, seed=0)
        assert type(training.segments) is source
        training.step()


def flicker(frames=7):
    """Black and white pictures in turn, with a square in them; as a whole they are grey."""
    pixels = np.zeros((frames, *SIZE, 3), np.uint8)
    pixels[1::2] = 255
    ids = np.zeros((frames, *SIZE), np.int64)
    ids[:, 4:8, 4:8] = 1
    return ArrayVideo("flicker", pixels, ids, "validation")


def test_a_whole_clip_model_sees_all_frames_before_it_says_anything():
    whole, single = (stand_in(config()).build_model() for config in (WholeClipConfig, PerFrameConfig))
    rules = PROTOCOLS["savi"]
    seen = {kind: evaluate_model(kind, SIZE, [flicker()], rules, progress=False)[0].scores for kind in (whole, single)}
    assert seen[whole]["slots_used"] > 1  # black and white differ from the clip's mean
    assert seen[single]["slots_used"] == 1  # each frame is its own mean


def test_a_whole_clip_model_is_given_the_protocols_windows():
    model, lengths = stand_in(WholeClipConfig()).build_model(), []
    unroll = model.unroll
    model.unroll = lambda clip, state: lengths.append(clip.frames.shape[1]) or unroll(clip, state)
    rows = evaluate_model(model, SIZE, [flicker(14)], PROTOCOLS["steve"], progress=False)
    assert lengths == [6, 6]
    assert [row.start for row in rows] == [0, 6]


def test_labels_of_the_model_s_own_are_scored_at_any_size():
    model = stand_in(LabellingConfig()).build_model()
    video = flicker(5)
    large = ArrayVideo("large", video.frames.repeat(2, 1).repeat(2, 2), video.ids.repeat(2, 1).repeat(2, 2))
    for v in (video, large):
        scores = evaluate_model(model, SIZE, [v], PROTOCOLS["vonet"], progress=False)[0].scores
        assert scores["slots_used"] == 5  # a new segment in every frame
        assert scores["identity_switches"] == 4
        assert scores["null_share"] == 0


def test_labels_are_drawn(tmp_path):
    model = stand_in(LabellingConfig()).build_model()
    unroll = model.unroll

    def labelled(clip, state):
        output = unroll(clip, state)
        labels = torch.full((1, clip.frames.shape[1], *SIZE), 5)
        labels[..., 4:8, 4:8] = 7  # the square, which then has the colour of the true object
        return replace(output, labels=labels)

    write_mask_sheet(tmp_path / "slots.png", model, [flicker()])
    model.unroll = labelled
    write_mask_sheet(tmp_path / "labels.png", model, [flicker()])
    assert (tmp_path / "slots.png").read_bytes() != (tmp_path / "labels.png").read_bytes()


def test_rmsprop_is_a_part_like_any_other(monkeypatch, tmp_path):
    """It is used, and put away and taken up again exactly."""
    made = stand_in(PerFrameConfig(), optimizer=RMSpropConfig)
    footage = Footage([flicker()], SIZE)
    one, other = (Training(made.build_model(seed=0), made.training, footage, seed=0) for _ in range(2))
    assert isinstance(one.optimizer.rule, torch.optim.RMSprop)
    one.step()
    other.recall(deepcopy(one.remember()))
    one.step()
    other.step()
    assert torch.equal(one.model.colours, other.model.colours)
    monkeypatch.setitem(registry._OWN, made.name, made)
    weights.save(tmp_path, one.model, made)
    assert weights.load(tmp_path)[1] == made
