"""Training from replayed video segments (paper, appendix).

The encoder unrolls several videos side by side, a few frames before each update (the replay rollout). The buffer
stores the state before each frame, a reference to the frame (never its pixels), and whether a video begins there. A
segment starts from the state stored for its first frame; slots are fresh only where a video begins. So the model learns
from short segments to continue slots from the middle of long videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vonet.errors import BadInput
from vonet.interface import Clip, State, StreamingModel
from vonet.training.segments import Footage, Memory, random_state, set_random_state


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Segments start from stored slot states (paper, "Training from replayed video segments")."""

    videos: int = 16
    """Videos in the rollout, side by side."""
    length: int = 10_000
    """Frames of each video in the buffer."""
    frames_per_update: int = 2
    """Frames of each video in the rollout before every update."""
    frames_before_first_update: int = 50_000
    """Frames in the rollout before the first update, over all videos."""
    beginnings: float = 0.0
    """Smallest share of segments, on average, that start at the first frame of a video. With 0 (the paper) it is one
    over the length of a video, so the first frames, in which fresh slots find their objects, are rarely trained."""

    def __post_init__(self) -> None:
        if min(self.videos, self.length, self.frames_per_update) < 1 or self.frames_before_first_update < 0:
            raise BadInput(f"{self}: videos, length and frames per update must be 1 or more")
        if not 0 <= self.beginnings <= 1:
            raise BadInput(f"{self}: beginnings is a share, from 0 to 1")

    def share(self, processes: int) -> ReplayConfig:
        """The share of one of several processes in the replay options."""
        return replace(
            self,
            videos=max(1, self.videos // processes),
            frames_before_first_update=self.frames_before_first_update // processes,
        )


class Replay:
    """All videos of the rollout advance together, so they share one frame count. The buffer is a ring buffer over
    time."""

    def __init__(self, config: ReplayConfig, footage: Footage, rng: np.random.Generator):
        self.config, self._footage, self._rng = config, footage, rng
        count, length = config.videos, config.length
        self.unrolled_frames = 0
        self._to_unroll: list[int] = []
        self._video = np.zeros(count, np.int64)
        self._next = np.zeros(count, np.int64)
        self._ended = np.ones(count, bool)
        self._state: dict[str, Tensor] = {}
        self._videos = np.zeros((count, length), np.int32)
        self._frames = np.zeros((count, length), np.int32)
        self._begins = np.zeros((count, length), bool)
        self._states: dict[str, Tensor] = {}

    @property
    def seconds_reading(self) -> float:
        """Seconds spent on reading frames so far."""
        return self._footage.seconds

    # ---- rollout ---------------------------------------------------------------------------------------------------

    @property
    def frames_to_begin(self) -> int:
        """Frames that each stream unrolls before the first update."""
        return max(0, self.config.frames_before_first_update // self.config.videos - self.unrolled_frames)

    @torch.no_grad()
    def advance(self, model: StreamingModel[Any], frames: int | None = None) -> None:
        """Unroll each stream by this many frames, and store the states. By default: the frames due before the next
        update."""
        for _ in range(self.frames_to_begin + self.config.frames_per_update if frames is None else frames):
            self._unroll_frame(model)

    def _unroll_frame(self, model: StreamingModel[Any]) -> None:
        begins = self._ended.copy()
        for stream in np.flatnonzero(begins):
            self._video[stream], self._next[stream] = self._next_video(), 0
        state = model.initial_state(self.config.videos)
        if self._state:
            state = replace(state, **self._where_not(begins, state))
        self._store(state, begins)
        ranges = [(v, t, t + 1) for v, t in zip(self._video.tolist(), self._next.tolist(), strict=True)]
        _, after = model.step(self._footage.to_model(self._footage.read(ranges)), state)
        self._state = _remembered(after)
        self._next += 1
        self._ended = self._next >= self._footage.lengths[self._video]
        self.unrolled_frames += 1

    def _next_video(self) -> int:
        """An endless sequence of videos: all in random order, then all in another random order, and so on."""
        if not self._to_unroll:
            self._to_unroll = self._rng.permutation(len(self._footage)).tolist()
        return self._to_unroll.pop()

    def _where_not(self, begins: Bool[np.ndarray, " W"], fresh: State) -> dict[str, Tensor]:
        """The state for the next frame, with fresh slots where a video begins."""
        chosen = torch.from_numpy(begins)
        rows = {}
        for name, kept in self._state.items():
            new = getattr(fresh, name)
            where = chosen.to(new.device).view(-1, *[1] * (new.ndim - 1))
            rows[name] = torch.where(where, new, kept.to(new.device))
        return rows

    def _store(self, state: State, begins: Bool[np.ndarray, " W"]) -> None:
        at = self.unrolled_frames % self.config.length
        self._videos[:, at], self._frames[:, at], self._begins[:, at] = self._video, self._next, begins
        for name, tensor in _remembered(state).items():
            if name not in self._states:
                shape = (tensor.shape[0], self.config.length, *tensor.shape[1:])
                self._states[name] = torch.zeros(shape, dtype=tensor.dtype)
            self._states[name][:, at] = tensor.cpu()

    # ---- sampling --------------------------------------------------------------------------------------------------

    def sample(self, model: StreamingModel[Any], batch: int, length: int) -> tuple[Clip, State]:
        """Draw `batch` segments of `length` stored frames, with the states they start from."""
        filled = min(self.unrolled_frames, self.config.length)
        if filled < length:
            raise BadInput(
                f"the replay buffer has {filled} frames, fewer than the {length} of a segment: unroll more at first"
            )
        streams = self._rng.integers(0, self.config.videos, batch)
        starts = self.unrolled_frames - filled + self._rng.integers(0, filled - length + 1, batch)
        if self.config.beginnings:
            self._begin_with_videos(streams, starts, self.unrolled_frames - filled, filled - length + 1)
        at = (starts[:, None] + np.arange(length)) % self.config.length
        rows = streams[:, None]
        frames = self._footage.read(_ranges(self._videos[rows, at], self._frames[rows, at], self._begins[rows, at]))
        pixels = self._footage.to_model(frames).unflatten(0, (batch, length))
        with torch.no_grad():  # only its noise is used
            fresh = model.initial_state(batch)
        stored = {name: kept[streams, at[:, 0]].to(pixels.device) for name, kept in self._states.items()}
        is_first = torch.from_numpy(self._begins[rows, at]).to(pixels.device)
        return Clip(pixels, is_first), replace(fresh, **stored)

    def _begin_with_videos(
        self, streams: Int[np.ndarray, " B"], starts: Int[np.ndarray, " B"], earliest: int, count: int
    ) -> None:
        """Replaces a share `beginnings` of the drawn segments by segments that start with the first frame of a video.
        Possible starts are the `count` times from `earliest` on."""
        moved = np.flatnonzero(self._rng.random(len(streams)) < self.config.beginnings)
        times = earliest + np.arange(count)
        of_stream, of_time = np.nonzero(self._begins[:, times % self.config.length])
        if len(of_stream):
            chosen = self._rng.integers(0, len(of_stream), len(moved))
            streams[moved], starts[moved] = of_stream[chosen], times[of_time[chosen]]

    # ---- put away and taken up -------------------------------------------------------------------------------------

    def remember(self) -> Memory:
        """The rollout, the stored states and the random numbers, for a checkpoint."""
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        tensors = {
            **arrays,
            **{f"state.{name}": tensor for name, tensor in self._state.items()},
            **{f"states.{name}": tensor for name, tensor in self._states.items()},
        }
        counts = {"watched_frames": self.unrolled_frames, "to_watch": self._to_unroll}  # the names in old checkpoints
        return tensors, {**counts, "random": random_state(self._rng)}

    def recall(self, memory: Memory) -> None:
        """Restore the state that `remember` returned; refuse one that does not fit the videos."""
        tensors, facts = memory
        for name in _ARRAYS:
            getattr(self, name)[:] = tensors[name].numpy()
        self._state = _below("state.", tensors)
        self._states = _below("states.", tensors)
        self.unrolled_frames, self._to_unroll = facts["watched_frames"], list(facts["to_watch"])
        set_random_state(self._rng, facts["random"])
        self._check_recalled()

    def _check_recalled(self) -> None:
        """Refuse references to videos or frames that do not exist; otherwise training would fail much later."""
        lengths = self._footage.lengths
        filled = min(self.unrolled_frames, self.config.length)
        if type(self.unrolled_frames) is not int or self.unrolled_frames < 0:
            raise BadInput(f"{self.unrolled_frames} frames in the rollout")
        if not all(type(video) is int and 0 <= video < len(lengths) for video in self._to_unroll):
            raise BadInput("a video of the rollout does not exist")
        if not ((self._video >= 0) & (self._video < len(lengths))).all():
            raise BadInput("a video of the rollout does not exist")
        videos, frames = self._videos[:, :filled], self._frames[:, :filled]
        if (
            not ((videos >= 0) & (videos < len(lengths))).all()
            or not ((frames >= 0) & (frames < lengths[videos])).all()
        ):
            raise BadInput("a frame in the replay buffer does not exist")
        shape = (self.config.videos, self.config.length)
        if not all(tensor.shape[:2] == shape for tensor in self._states.values()) or bool(filled) != bool(self._states):
            raise BadInput("the states in the replay buffer are not those of its frames")

    def recall_of_others(self, memories: Sequence[Memory], rank: int, rng: np.random.Generator) -> None:
        """Joins the videos of all rollouts and distributes them among the processes in order; if there are too few,
        some are used twice."""
        joined = {name: torch.cat([tensors[name] for tensors, _ in memories]) for name in memories[0][0]}
        rows = (rank * self.config.videos + np.arange(self.config.videos)) % len(joined["_video"])
        facts = {**memories[0][1], "to_watch": [], "random": random_state(rng)}
        self.recall(({name: tensor[torch.from_numpy(rows)] for name, tensor in joined.items()}, facts))


_ARRAYS = ("_video", "_next", "_ended", "_videos", "_frames", "_begins")


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _remembered(state: State) -> dict[str, Tensor]:
    """The tensors of a state that are stored; noise is not stored but drawn again."""
    return {f.name: getattr(state, f.name).detach() for f in fields(state) if f.name not in state.drawn}  # type: ignore


def _ranges(
    videos: Int[np.ndarray, "B S"], frames: Int[np.ndarray, "B S"], begins: Bool[np.ndarray, "B S"]
) -> list[tuple[int, int, int]]:
    """The frames to read, by video: a segment is one range, or several if a video begins inside it."""
    found = []
    for video, frame, begin in zip(videos.tolist(), frames.tolist(), begins.tolist(), strict=True):
        cuts = [0, *(i for i in range(1, len(begin)) if begin[i]), len(begin)]
        for start, stop in pairwise(cuts):
            found.append((video[start], frame[start], frame[start] + stop - start))
    return found
