"""Trivial methods. A model that does not beat them has not learned about objects.

Each object is created for one video and then returns its ids, some frames at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Integer, UInt8

from vonet.data.video import Video

Predict = Callable[[UInt8[np.ndarray, "T H W 3"]], Integer[np.ndarray, "T H W"]]

SAMPLE = 20_000
ROUNDS, STARTS = 30, 3


def one_segment(video: Video, slots: int, rng: np.random.Generator) -> Predict:
    """All pixels are one segment."""
    return lambda frames: np.ones(frames.shape[:3], np.int64)


def random_ids(video: Video, slots: int, rng: np.random.Generator) -> Predict:
    """Each pixel gets a random id."""
    return lambda frames: rng.integers(1, slots + 1, frames.shape[:3])


def blocks(video: Video, slots: int, rng: np.random.Generator) -> Predict:
    """As many blocks as there are slots, with about as many rows as columns; lower rows have one block more if
    needed."""
    rows = max(1, int(np.sqrt(slots)))
    h, w = video.size
    grid, first = np.zeros((h, w), np.int64), 1
    for row in range(rows):
        columns = (slots + row) // rows
        within = np.arange(h) * rows // h == row
        grid[within] = first + np.arange(w) * columns // w
        first += columns
    return lambda frames: np.broadcast_to(grid, frames.shape[:3]).copy()


def k_means(video: Video, slots: int, rng: np.random.Generator) -> Predict:
    """Clusters of colour and position over the whole video, as many as there are slots."""
    centres = _fitted(_sample(video, rng), slots, rng)

    def predict(frames: UInt8[np.ndarray, "T H W 3"]) -> Integer[np.ndarray, "T H W"]:
        size = frames.shape[1:3]
        everywhere = np.arange(size[0] * size[1])
        return np.stack([_nearest(_features(frame, everywhere), centres).reshape(size) + 1 for frame in frames])

    return predict


TRIVIAL: dict[str, Callable[[Video, int, np.random.Generator], Predict]] = {
    "one segment": one_segment,
    "random": random_ids,
    "blocks": blocks,
    "k-means": k_means,
}


def _features(frame: UInt8[np.ndarray, "H W 3"], pixels: Integer[np.ndarray, " n"]) -> Float[np.ndarray, "n 5"]:
    """Colour and position of some pixels, each between 0 and 1."""
    h, w = frame.shape[:2]
    rows, columns = np.divmod(pixels, w)
    return np.column_stack([frame.reshape(-1, 3)[pixels] / 255, rows / max(h, w), columns / max(h, w)])


def _sample(video: Video, rng: np.random.Generator) -> Float[np.ndarray, "points 5"]:
    """Pixels from the whole video, the same number from each frame."""
    each = max(1, SAMPLE // len(video))
    points = []
    for frames, _ in video.pieces():
        pixels = frames.shape[1] * frames.shape[2]
        points += [_features(frame, rng.integers(0, pixels, each)) for frame in frames]
    return np.concatenate(points)


def _distances(points: Float[np.ndarray, "n 5"], centres: Float[np.ndarray, "k 5"]) -> Float[np.ndarray, "n k"]:
    """Squared distances, without the term that is the same for all centres."""
    return (centres**2).sum(axis=1) - 2 * points @ centres.T


def _nearest(points: Float[np.ndarray, "n 5"], centres: Float[np.ndarray, "k 5"]) -> Integer[np.ndarray, " n"]:
    return _distances(points, centres).argmin(axis=1)


def _fitted(points: Float[np.ndarray, "n 5"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "k 5"]:
    """Lloyd's iterations from a few k-means++ starts; the best result is kept."""
    tries = [_rounds(points, _start(points, count, rng)) for _ in range(STARTS)]
    return min(tries, key=lambda centres: inertia(points, centres))


def inertia(points: Float[np.ndarray, "n 5"], centres: Float[np.ndarray, "k 5"]) -> float:
    """The k-means objective: the sum of squared distances to the nearest centre."""
    return float(_distances(points, centres).min(axis=1).sum() + (points**2).sum())


def _start(points: Float[np.ndarray, "n 5"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "k 5"]:
    """k-means++: each further centre is a point drawn in proportion to its squared distance from the existing
    centres."""
    chosen = [points[rng.integers(len(points))]]
    distance = ((points - chosen[0]) ** 2).sum(axis=1)
    while len(chosen) < count:
        total = distance.sum()
        share = distance / total if total > 0 else None
        chosen.append(points[rng.choice(len(points), p=share)])
        distance = np.minimum(distance, ((points - chosen[-1]) ** 2).sum(axis=1))
    return np.stack(chosen)


def _rounds(points: Float[np.ndarray, "n 5"], centres: Float[np.ndarray, "k 5"]) -> Float[np.ndarray, "k 5"]:
    for _ in range(ROUNDS):
        nearest = _nearest(points, centres)
        counts = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = np.stack([np.bincount(nearest, points[:, d], len(centres)) for d in range(points.shape[1])], axis=1)
        moved = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
        if np.allclose(moved, centres, atol=1e-4):
            break
        centres = moved
    return centres
