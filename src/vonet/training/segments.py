"""Sources of training segments: random windows of videos with fresh slots.

`Replay` (replay.py) is the other source. Both have their own random numbers, read only the frames they need, and can be
stored and restored exactly (`remember`, `recall`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.interface import Clip, State, frames_tensor

Memory = tuple[dict[str, Tensor], dict[str, Any]]
"""The state of a source: tensors, and values that JSON can hold."""


class Segments(Protocol):
    """A source of segments for a `VideoModel`."""

    @property
    def seconds_reading(self) -> float:
        """Seconds spent on reading frames so far."""

    @property
    def frames_to_begin(self) -> int:
        """Number of frames by which each video must still be unrolled before the first update."""

    def advance(self, model: Any, frames: int | None = None) -> None:
        """Unroll this many frames; by default those due before the next update."""

    def sample(self, model: Any, batch: int, length: int) -> tuple[Clip, State]:
        """`batch` segments of `length` frames, and the states they start from."""

    def remember(self) -> Memory:
        """The state, for a checkpoint."""

    def recall(self, memory: Memory) -> None:
        """Restore the state that `remember` returned."""

    def recall_of_others(self, memories: Sequence[Memory], rank: int, rng: np.random.Generator) -> None:
        """Restore the share of process `rank` of a state of another number of processes, with new random numbers."""


class Footage:
    """Reads frames of a set of videos by video and range."""

    def __init__(self, videos: Sequence[Video], size: tuple[int, int], device: torch.device | str = "cpu"):
        if not len(videos):
            raise BadInput("there is no training video")
        self.lengths = np.array([len(videos[i]) for i in range(len(videos))])
        for i in range(len(videos)):
            if videos[i].size != size:
                h, w = videos[i].size
                raise BadInput(
                    f"{videos[i].name} has frames of {h}x{w} pixels and the model takes {size[0]}x{size[1]}: "
                    f"use vonet prepare with --size {size[0]} {size[1]}"
                )
        self._videos, self._device = videos, device
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._videos)

    def read(self, ranges: Sequence[tuple[int, int, int]]) -> UInt8[np.ndarray, "frames H W 3"]:
        """The frames of several ranges (video, start, stop), one after the other."""
        begin = time.perf_counter()
        frames = np.concatenate([self._videos[video].read(start, stop) for video, start, stop in ranges])
        self.seconds += time.perf_counter() - begin
        return frames

    def to_model(self, frames: UInt8[np.ndarray, "frames H W 3"]) -> Float[Tensor, "frames 3 H W"]:
        """Converts bytes to the floats that models take, on the device."""
        return frames_tensor(frames, self._device)


def random_state(rng: np.random.Generator) -> str:
    """The state of a generator as text, for checkpoints."""
    return json.dumps(rng.bit_generator.state)


def set_random_state(rng: np.random.Generator, state: str) -> None:
    """Put a generator into the state that `random_state` gave."""
    rng.bit_generator.state = json.loads(state)


class Windows:
    """Random windows with fresh slots: for models without memory, and the paper's ablation wo-Replay."""

    def __init__(self, footage: Footage, rng: np.random.Generator):
        self._footage, self._rng = footage, rng

    @property
    def seconds_reading(self) -> float:
        """Seconds spent on reading frames so far."""
        return self._footage.seconds

    @property
    def frames_to_begin(self) -> int:
        """Zero: windows need no rollout."""
        return 0

    def advance(self, model: Any, frames: int | None = None) -> None:
        """Does nothing: windows need no rollout."""
        pass

    def sample(self, model: Any, batch: int, length: int) -> tuple[Clip, State]:
        """Draw `batch` windows of `length` frames from videos that are long enough, with initial states."""
        long_enough = np.flatnonzero(self._footage.lengths >= length)
        if not len(long_enough):
            longest = self._footage.lengths.max()
            raise BadInput(f"no video has the {length} frames of a segment; the longest has {longest}")
        videos = self._rng.choice(long_enough, batch)
        starts = self._rng.integers(0, self._footage.lengths[videos] - length + 1)
        frames = self._footage.read([(v, s, s + length) for v, s in zip(videos.tolist(), starts.tolist(), strict=True)])
        return Clip(self._footage.to_model(frames).unflatten(0, (batch, length))), model.initial_state(batch)

    def remember(self) -> Memory:
        """The random numbers, for a checkpoint."""
        return {}, {"random": random_state(self._rng)}

    def recall(self, memory: Memory) -> None:
        """Restore the random numbers that `remember` returned."""
        set_random_state(self._rng, memory[1]["random"])

    def recall_of_others(self, memories: Sequence[Memory], rank: int, rng: np.random.Generator) -> None:
        """Continue with new random numbers: there is nothing else to restore."""
        self._rng = rng
