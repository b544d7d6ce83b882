"""Evaluate a model on a set of videos.

Videos stream through `model.step`, several at a time, in memory that does not depend on their length; a model without
`step` gets each whole video (or window). The noise of a video's initial slots depends only on the video and the seed,
so batch size and number of processes do not change scores.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor
from tqdm import tqdm

from vonet.data.resize import resized
from vonet.data.video import Video
from vonet.errors import BadInput
from vonet.evaluation.protocol import SCORES, Protocol, Scorer
from vonet.evaluation.spmot import TrackingCounts, mean_and_std
from vonet.evaluation.trivial import TRIVIAL
from vonet.interface import (
    Clip,
    EmptyState,
    Enlargement,
    State,
    StreamingModel,
    VideoModel,
    enlarge,
    frames_tensor,
    joined_states,
    segment_ids,
    slot_ids,
)

MODEL, OFFLINE, PERFECT = "model", "offline", "perfect masks"
"""Methods. "model" streams: it sees each frame once, in order. "offline" makes a second pass, backwards from the last
state; only the masks of that pass count."""
PIECE = 8
"""Frames that are decoded at a time."""


@dataclass(frozen=True)
class Row:
    """The scores of one video (or window) by one method, and its tracking events if the protocol counts them."""

    method: str
    video: str
    split: str
    seed: int
    start: int
    scores: dict[str, float]
    tracking: TrackingCounts | None = None


@dataclass
class _Watched:
    """A video that is being processed by the model."""

    video: Video
    pieces: Iterator[tuple[np.ndarray, np.ndarray | None]]
    frames: np.ndarray = field(init=False)
    ids: np.ndarray = field(init=False)
    at: int = 0

    def next_piece(self) -> bool:
        piece = next(self.pieces, None)
        if piece is None:
            return False
        self.frames, ids = piece
        assert ids is not None
        self.ids, self.at = ids, 0
        return True


def evaluate_model(
    model: StreamingModel[Any] | VideoModel[Any],
    size: tuple[int, int],
    videos: Sequence[Video],
    protocol: Protocol,
    *,
    batch: int = 8,
    seeds: int = 1,
    slots: int | None = None,
    enlargement: Enlargement | None = None,
    offline: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Score a model on videos with true ids.

    Args:
        model: A model in evaluation mode.
        size: Height and width of the model's frames, in pixels. Videos of another size are resized to it, and masks to
            the size of the true ids.
        videos: Videos that all have true ids.
        protocol: The rules by which they are scored.
        batch: Number of videos that are processed together.
        seeds: Number of evaluations with different noise for the initial slots.
        slots: Number of slots K; None: the model's own.
        enlargement: How masks are enlarged; None: the model's own way.
        offline: Also score a second pass, backwards from the last state, if the protocol has whole videos and the model
            has memory.
        progress: Whether to show a progress bar.

    Returns:
        One row per video (or window), seed and method.

    Raises:
        BadInput: If `batch` or `seeds` is less than 1, or a video does not suit the protocol.
    """
    if batch < 1 or seeds < 1:
        raise BadInput(f"a batch of {batch} and {seeds} seeds were asked for; at least 1 of each is needed")
    _check(videos, protocol)
    rows: list[Row] = []
    with tqdm(total=len(videos) * seeds, unit="video", desc="evaluating", disable=None if progress else True) as bar:
        for seed in range(seeds):
            for start in range(0, len(videos), batch):
                chosen = [videos[i] for i in range(start, min(start + batch, len(videos)))]
                if isinstance(model, StreamingModel):
                    rows += _watch(model, size, chosen, protocol, seed, slots, enlargement, offline)
                else:
                    for video in chosen:
                        rows += _watch_whole(model, size, video, protocol, seed, slots, enlargement)
                bar.update(len(chosen))
    return rows


def evaluate_trivial(
    videos: Sequence[Video],
    protocol: Protocol,
    slots: int,
    cells: tuple[int, int],
    enlargement: Enlargement,
    progress: bool = True,
) -> list[Row]:
    """Scores of the trivial methods, with as many segments as the model has slots, and of perfect masks at the model's
    resolution, which are enlarged like the model's masks."""
    _check(videos, protocol)
    rows: list[Row] = []
    for i in tqdm(range(len(videos)), unit="video", desc="trivial methods", disable=None if progress else True):
        video = videos[i]
        methods = {name: make(video, slots, np.random.default_rng(_seed(video, 0))) for name, make in TRIVIAL.items()}
        windows = {name: _Windows(video, protocol, name, seed=0) for name in [*methods, PERFECT]}
        for frames, ids in video.pieces(PIECE):
            assert ids is not None
            for name, predict in methods.items():
                windows[name].add(ids, predict(frames))
            for frame in ids:
                enlarged = enlarge(_perfect_masks(frame[None], cells), frame.shape, enlargement)
                best = slot_ids(enlarged, None).numpy()
                windows[PERFECT].add(frame[None], _renamed(best, frame))
        rows += [row for window in windows.values() for row in window.rows()]
    return rows


def _perfect_masks(ids: Integer[np.ndarray, "T H W"], size: tuple[int, int]) -> Float[Tensor, "T n h w"]:
    """Log-masks of a model that knows the true ids but has only cells of this size: the share of every id in each
    cell."""
    numbers = torch.from_numpy(np.unique(ids, return_inverse=True)[1].reshape(ids.shape))
    shares = F.interpolate(F.one_hot(numbers).permute(0, 3, 1, 2).float(), size=size, mode="area")
    return shares.clamp(min=1e-6).log().log_softmax(dim=1)


def _renamed(winner: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Maps indices among the ids of a frame to ids that are the same in all frames and never null."""
    return np.unique(ids)[winner - 1].astype(np.int64) + 1


def _check(videos: Sequence[Video], protocol: Protocol) -> None:
    if not len(videos):
        raise BadInput("there is no video to evaluate on")
    for i in range(len(videos)):
        video = videos[i]
        if not video.has_ids:
            raise BadInput(f"{video.name} has no true ids; scores need videos that have them")
        if protocol.window and len(video) < protocol.window:
            raise BadInput(
                f"{video.name} has {len(video)} frames; the protocol {protocol.name!r} needs at least {protocol.window}"
            )


def _seed(video: Video, *numbers: int) -> int:
    """A seed that depends on the video, not on its position in a set."""
    return zlib.crc32(f"{video.split}/{video.name}/{numbers}".encode())


def fresh_state(model: Any, video: Video, seed: int = 0, start: int = 0, slots: int | None = None) -> State:
    """The initial state of a video or window, also for figures that show what was scored; the model need not stream."""
    return model.initial_state(1, slots, generator=torch.Generator().manual_seed(_seed(video, seed, start)))


class _Windows:
    """Scores a video frame by frame, cut into the protocol's windows."""

    def __init__(self, video: Video, protocol: Protocol, method: str, seed: int):
        self._video, self._protocol, self._method, self._seed = video, protocol, method, seed
        self._length = protocol.window or len(video)
        self._seen = 0
        self._scorer = Scorer(protocol)
        self._rows: list[Row] = []

    def add(self, true_ids: np.ndarray, predicted_ids: np.ndarray) -> None:
        while len(true_ids):
            room = self._length - self._seen % self._length
            self._scorer.add(true_ids[:room], predicted_ids[:room])
            self._seen += len(true_ids[:room])
            if self._seen % self._length == 0:
                scores, start = self._scorer.scores(), self._seen - self._length
                about = (self._method, self._video.name, self._video.split, self._seed, start)
                self._rows.append(Row(*about, scores, self._scorer.tracking()))
                self._scorer = Scorer(self._protocol)
            true_ids, predicted_ids = true_ids[room:], predicted_ids[room:]

    def rows(self) -> list[Row]:
        return self._rows


@torch.inference_mode()
def _watch(
    model: StreamingModel[Any],
    size: tuple[int, int],
    videos: Sequence[Video],
    protocol: Protocol,
    seed: int,
    slots: int | None,
    enlargement: Enlargement | None,
    offline: bool,
) -> list[Row]:
    """Processes some videos together, forwards and, if `offline`, backwards again."""
    states: dict[int, State] = {i: fresh_state(model, video, seed, 0, slots) for i, video in enumerate(videos)}
    remembers = not isinstance(states[0], EmptyState)
    rows: list[Row] = []
    for method in (MODEL, OFFLINE) if offline and remembers and not protocol.window else (MODEL,):
        windows = [_Windows(video, protocol, method, seed) for video in videos]
        back = method == OFFLINE
        watched = [_Watched(v, _pieces_backwards(v, PIECE) if back else v.pieces(PIECE)) for v in videos]
        running = [i for i, w in enumerate(watched) if w.next_piece()]
        t = 0
        while running:
            if t and protocol.window and t % protocol.window == 0:
                states |= {i: fresh_state(model, watched[i].video, seed, t, slots) for i in running}
            states |= _next_frame(model, size, watched, running, states, windows, enlargement, protocol)
            running = [i for i in running if watched[i].at < len(watched[i].frames) or watched[i].next_piece()]
            t += 1
        rows += [row for window in windows for row in window.rows()]
    return rows


@torch.inference_mode()
def _watch_whole(
    model: VideoModel[Any],
    size: tuple[int, int],
    video: Video,
    protocol: Protocol,
    seed: int,
    slots: int | None,
    enlargement: Enlargement | None,
) -> list[Row]:
    """Processes all frames of a video, or of each of its windows, at once."""
    windows = _Windows(video, protocol, MODEL, seed)
    length = protocol.window or len(video)
    for start in range(0, len(video) - length + 1, length):
        state = fresh_state(model, video, seed, start, slots)
        frames = frames_of(video, size, start + length, start)
        output = model.unroll(Clip(frames[None].to(_device(state))), state)
        _check_masks(output.log_masks, video)
        true_ids = video.read_ids(start, start + length)
        assert true_ids is not None
        for t, true in enumerate(true_ids):
            labels = None if output.labels is None else output.labels[0, t]
            how = enlargement or output.enlargement
            predicted = segment_ids(output.log_masks[0, t], labels, true.shape, how, protocol.min_probability)
            windows.add(true[None], predicted[None])
    return windows.rows()


def _check_masks(log_masks: Tensor, video: Video) -> None:
    if torch.isnan(log_masks).any():
        raise BadInput(f"some masks of {video.name} are not finite: the weights may be broken")


def _next_frame(
    model: StreamingModel[Any],
    size: tuple[int, int],
    watched: Sequence[_Watched],
    running: Sequence[int],
    states: Mapping[int, State],
    windows: Sequence[_Windows],
    enlargement: Enlargement | None,
    protocol: Protocol,
) -> dict[int, State]:
    """Processes and scores one frame of each running video. A video that ends leaves the batch."""
    state = joined_states([states[i] for i in running])
    frames = torch.stack([_frame(watched[i].frames[watched[i].at], size) for i in running])
    output, state = model.step(frames.to(_device(state)), state)
    how = enlargement or output.enlargement
    after = {}
    for place, i in enumerate(running):
        w = watched[i]
        _check_masks(output.log_masks[place], w.video)
        after[i] = state.map(lambda x, place=place: x[place : place + 1])
        true = w.ids[w.at]
        labels = None if output.labels is None else output.labels[place]
        predicted = segment_ids(output.log_masks[place], labels, true.shape, how, protocol.min_probability)
        windows[i].add(true[None], predicted[None])
        w.at += 1
    return after


def _pieces_backwards(video: Video, length: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    for stop in range(len(video), 0, -length):
        start = max(0, stop - length)
        ids = video.read_ids(start, stop)
        yield video.read(start, stop)[::-1], None if ids is None else ids[::-1]


def _device(state: Any) -> torch.device:
    return getattr(state, fields(state)[0].name).device


def _frame(frame: np.ndarray, size: tuple[int, int]) -> Tensor:
    pixels = frame if frame.shape[:2] == size else resized(frame[None], size, "stretch")[0]
    return frames_tensor(pixels)


def frames_of(video: Video, size: tuple[int, int], stop: int, start: int = 0) -> Tensor:
    """Some frames `T 3 H W` as model input."""
    return torch.stack([_frame(frame, size) for frame in video.read(start, min(stop, len(video)))])


def summary(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, float]]]:
    """For each method and score: the mean over videos, and its standard deviation over the seeds (NaN for a single
    seed)."""
    methods = dict.fromkeys(row.method for row in rows)
    return {method: _mean_and_std([row for row in rows if row.method == method]) for method in methods}


def _mean_and_std(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Averages the windows of each video first, so that long videos count no more than short ones."""
    found = {}
    for name in SCORES:
        videos: dict[int, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            videos[row.seed][row.split, row.video].append(row.scores[name])
        means = [float(np.mean([np.mean(windows) for windows in by_video.values()])) for by_video in videos.values()]
        found[name] = float(np.mean(means)), float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    return found


def tracking_summary(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, float]]]:
    """For each method and tracking score in percent: mean and standard deviation over the seeds of the score over all
    clips. Empty if the protocol counts no events."""
    events: dict[str, dict[int, TrackingCounts]] = defaultdict(lambda: defaultdict(TrackingCounts))
    for row in rows:
        if row.tracking is not None:
            events[row.method][row.seed] += row.tracking
    return {method: mean_and_std(list(by_seed.values())) for method, by_seed in events.items()}


def in_all_processes(make: Callable[[Sequence[Video]], list[Row]], videos: Sequence[Video]) -> list[Row] | None:
    """Each process of torchrun evaluates a share of the videos; the first gets all rows, the others None."""
    from torch import distributed

    if not distributed.is_initialized():
        return make(videos)
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    share = [videos[i] for i in range(rank, len(videos), processes)]
    rows = make(share) if share else []
    gathered: list[list[Row]] | None = [[] for _ in range(processes)] if rank == 0 else None
    distributed.gather_object(rows, gathered)
    if gathered is None:
        return None
    order = {(videos[i].split, videos[i].name): i for i in range(len(videos))}
    everything = [row for part in gathered for row in part]
    return sorted(everything, key=lambda row: (row.seed, order[row.split, row.video]))
