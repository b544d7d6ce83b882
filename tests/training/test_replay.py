"""Replay against a plain version: which states, which frames, where videos begin, how the ring wraps."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.interface import SlotState, State, StepOutput
from vonet.training.replay import Replay, ReplayConfig
from vonet.training.segments import Footage, Windows

LENGTHS = (5, 3, 9, 4, 7)
DECAY = 0.5


@dataclass(frozen=True)
class Trace(State):
    """A running sum over the frames since the video began, and noise that need not be kept."""

    drawn = ("noise",)
    sums: torch.Tensor
    noise: torch.Tensor


class Tracer:
    """A model whose state tells exactly what it has seen."""

    def initial_state(self, batch, slots=None, generator=None):
        return Trace(torch.zeros(batch, 1), torch.rand(batch, 1))

    def step(self, frame, state):
        sums = DECAY * state.sums + code(frame)[:, None]
        masks = torch.zeros(len(frame), 1, 2, 2)
        slots = torch.zeros(len(frame), 1, 1)
        return StepOutput(masks, (2, 2), "nearest", slots, slots), Trace(sums, state.noise)


def code(frames):
    """The number that a frame shows."""
    return (frames[..., 0, 0, 0] * 255).round()


def number(video, frame):
    return 20 * video + frame + 1


def videos(lengths=LENGTHS):
    return [
        ArrayVideo(f"{v}", np.stack([np.full((2, 2, 3), number(v, t), np.uint8) for t in range(n)]))
        for v, n in enumerate(lengths)
    ]


def sum_before(video, frame):
    """The plain version of a stored state."""
    total = 0.0
    for t in range(frame):
        total = DECAY * total + number(video, t)
    return total


def made(watched=3, length=40, per_update=2, first=0, seed=0, lengths=LENGTHS):
    config = ReplayConfig(videos=watched, length=length, frames_per_update=per_update, frames_before_first_update=first)
    return Replay(config, Footage(videos(lengths), (2, 2)), np.random.default_rng(seed))


class PlainReplay:
    """Lists instead of rings; the same dice."""

    def __init__(self, watched, length, seed, lengths=LENGTHS):
        self.rng, self.lengths, self.length = np.random.default_rng(seed), lengths, length
        self.queue, self.now, self.entries = [], [None] * watched, [[] for _ in range(watched)]

    def watch_frame(self):
        for watcher, now in enumerate(self.now):
            if now is None or now[1] == self.lengths[now[0]]:
                if not self.queue:
                    self.queue = self.rng.permutation(len(self.lengths)).tolist()
                self.now[watcher] = (self.queue.pop(), 0)
        for watcher, (video, frame) in enumerate(self.now):
            self.entries[watcher].append((video, frame))
            self.entries[watcher] = self.entries[watcher][-self.length :]
            self.now[watcher] = (video, frame + 1)

    def sample(self, batch, length):
        filled = len(self.entries[0])
        watchers = self.rng.integers(0, len(self.entries), batch)
        starts = self.rng.integers(0, filled - length + 1, batch)
        return [self.entries[w][s : s + length] for w, s in zip(watchers, starts, strict=True)]


@pytest.mark.parametrize("length", [6, 11, 40])
def test_replay_is_the_plain_version(length):
    """Over three times the ring's length, every sample has the right frames, flags and states."""
    replay, plain, model = made(length=length), PlainReplay(3, length, 0), Tracer()
    for update in range(2 * length):
        replay.advance(model)
        plain.watch_frame()
        plain.watch_frame()
        if update < 2:
            continue
        clip, state = replay.sample(model, 5, 3)
        expected = plain.sample(5, 3)
        assert code(clip.frames).tolist() == [[number(v, t) for v, t in segment] for segment in expected]
        assert clip.is_first.tolist() == [[t == 0 for _, t in segment] for segment in expected]
        assert state.sums[:, 0].tolist() == pytest.approx([sum_before(*segment[0]) for segment in expected])


def test_everything_is_watched_and_sampled_evenly():
    replay, model = made(watched=2, length=60, first=2 * 56), Tracer()
    replay.advance(model, frames=replay.frames_to_begin)
    assert replay.unrolled_frames == 56  # two passes over the 28 frames, for each of the two
    seen = np.zeros(120)
    for _ in range(400):
        clip, _ = replay.sample(model, 8, 1)
        np.add.at(seen, code(clip.frames).long().flatten().numpy(), 1)
    shown = {number(v, t) for v, n in enumerate(LENGTHS) for t in range(n)}
    assert set(np.flatnonzero(seen)) == shown
    assert seen[seen > 0].min() > 0.5 * seen[seen > 0].mean()


def test_a_share_of_the_segments_begins_with_a_video():
    for share, low, high in ((0.0, 0.1, 0.3), (0.5, 0.5, 0.7), (1.0, 1.0, 1.0)):
        config = ReplayConfig(
            videos=3, length=40, frames_per_update=2, frames_before_first_update=100, beginnings=share
        )
        replay, model = Replay(config, Footage(videos(), (2, 2)), np.random.default_rng(0)), Tracer()
        replay.advance(model)
        clip, state = replay.sample(model, 400, 2)
        begins = clip.is_first[:, 0]
        assert low <= begins.float().mean() <= high
        first = code(clip.frames[:, 0])[begins].long()
        assert ((first - 1) % 20 == 0).all()  # the first frame of a video indeed
        assert len(first.unique()) > 2
        assert (state.sums[begins] == 0).all()
    with pytest.raises(BadInput, match="from 0 to 1"):
        ReplayConfig(beginnings=1.5)


def test_frames_before_the_first_update_are_watched_once():
    replay, model = made(watched=4, first=41), Tracer()
    assert replay.frames_to_begin == 10
    replay.advance(model, frames=3)  # a part of them
    assert replay.frames_to_begin == 7
    replay.advance(model)  # the rest, and what each update has
    assert replay.unrolled_frames == 12
    replay.advance(model)
    assert replay.unrolled_frames == 14


def test_too_little_to_sample_from_is_said():
    replay, model = made(per_update=1), Tracer()
    replay.advance(model)
    with pytest.raises(BadInput, match="the replay buffer has 1 frames, fewer than the 3 of a segment"):
        replay.sample(model, 2, 3)


def test_noise_is_not_kept_but_drawn():
    replay, model = made(), Tracer()
    for _ in range(4):
        replay.advance(model)
    assert not any("noise" in name for name in replay.remember()[0])
    first, second = (replay.sample(model, 3, 2)[1].noise for _ in range(2))
    assert not torch.equal(first, second)


def test_put_away_and_taken_up_it_goes_on_the_same():
    model = Tracer()
    replay, again = made(length=11), made(length=11, seed=99)
    for _ in range(9):
        replay.advance(model)
    replay.sample(model, 4, 3)
    tensors, facts = replay.remember()
    again.recall(({name: tensor.clone() for name, tensor in tensors.items()}, facts))
    for _ in range(15):
        replay.advance(model)
        again.advance(model)
        (a, state_a), (b, state_b) = replay.sample(model, 4, 3), again.sample(model, 4, 3)
        assert torch.equal(a.frames, b.frames)
        assert torch.equal(a.is_first, b.is_first)
        assert torch.equal(state_a.sums, state_b.sums)


def test_the_papers_buffer_stays_under_a_gigabyte():
    """Slots only, and references: 16 videos of 10,000 frames, 11 slots of 128."""
    replay = Replay(ReplayConfig(), Footage(videos(), (2, 2)), np.random.default_rng(0))
    state = SlotState(torch.zeros(16, 11, 128), torch.zeros(16, 11, 128))
    replay._store(state, np.zeros(16, bool))
    stored = sum(tensor.nbytes for tensor in replay.remember()[0].values())
    assert 0.9e9 < stored < 1e9


# Windows


def test_windows_are_within_videos_and_begin_fresh():
    windows, model = Windows(Footage(videos(), (2, 2)), np.random.default_rng(0)), Tracer()
    starts = set()
    for _ in range(60):
        clip, state = windows.sample(model, 4, 4)
        numbers = code(clip.frames).long()
        assert torch.equal(numbers, numbers[:, :1] + torch.arange(4))
        assert not clip.is_first.any()
        assert (state.sums == 0).all()
        starts |= set(numbers[:, 0].tolist())
    possible = {number(v, t) for v, n in enumerate(LENGTHS) for t in range(n - 3)}
    assert starts == possible


def test_windows_put_away_and_taken_up():
    footage, model = Footage(videos(), (2, 2)), Tracer()
    windows, again = (Windows(footage, np.random.default_rng(seed)) for seed in (0, 1))
    windows.sample(model, 4, 2)
    again.recall(windows.remember())
    assert torch.equal(windows.sample(model, 4, 2)[0].frames, again.sample(model, 4, 2)[0].frames)


def test_videos_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="0 has frames of 2x2 pixels and the model takes 4x4: use vonet prepare"):
        Footage(videos(), (4, 4))
    with pytest.raises(BadInput, match="there is no training video"):
        Footage([], (2, 2))
    windows = Windows(Footage(videos(), (2, 2)), np.random.default_rng(0))
    with pytest.raises(BadInput, match="no video has the 10 frames of a segment; the longest has 9"):
        windows.sample(Tracer(), 1, 10)
