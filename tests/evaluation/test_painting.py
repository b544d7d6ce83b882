"""The score of painted pictures, on cases that can be counted by hand."""

import numpy as np
import pytest
import torch

from tests.reduced import small_model
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.painting import painted_right, score_pictures

RED, BLUE, GREY = np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), np.array([0.4, 0.4, 0.4])


def scene():
    """Two frames of 4x4: a red object of two pixels and a blue one of four before grey."""
    ids = np.zeros((2, 4, 4), dtype=np.int64)
    ids[:, 0, :2], ids[:, 2:, 2:] = 1, 2
    colours = np.stack([GREY, RED, BLUE])
    return colours[ids], ids


def test_the_frame_itself_is_painted_right_and_its_background_is_not():
    frames, ids = scene()
    assert painted_right(frames, frames, ids) == (12, 12)
    assert painted_right(np.broadcast_to(GREY, frames.shape), frames, ids) == (0, 12)


def test_each_object_needs_its_own_colour():
    frames, ids = scene()
    red = frames.copy()
    red[ids == 2] = 0.9 * GREY + 0.1 * RED
    assert painted_right(red, frames, ids) == (4, 12)
    faint = frames.copy()
    faint[ids == 2] = 0.4 * GREY + 0.6 * BLUE  # nearer to the object than to the background
    assert painted_right(faint, frames, ids) == (12, 12)


def test_a_shifted_object_counts_where_it_overlaps():
    frames, ids = scene()
    shifted = np.roll(frames, 1, axis=2)
    assert painted_right(shifted, frames, ids) == (2 * (1 + 2), 12)


def test_a_frame_without_background_does_not_count():
    frames, ids = scene()
    assert painted_right(frames, frames, ids + 1) == (0, 0)


def test_models_are_scored_on_whole_videos():
    torch.manual_seed(0)
    model = small_model().eval()
    ids = np.zeros((5, *model.size), dtype=np.int64)
    ids[:, 4:20, 4:20] = 1
    pixels = np.where(ids[..., None] == 1, np.uint8([250, 0, 0]), np.uint8([90, 90, 90]))
    video = ArrayVideo("red", pixels.astype(np.uint8), ids)
    found = score_pictures(model, [video])
    assert set(found) == {"posterior", "prior"}
    assert all(0 <= share <= 1 for share in found.values())
    model.pictures = lambda output, source: torch.from_numpy(pixels / 255).permute(0, 3, 1, 2)[None]
    assert score_pictures(model, [video]) == {"posterior": 1.0, "prior": 1.0}
    with pytest.raises(BadInput, match="red has no true ids"):
        score_pictures(model, [ArrayVideo("red", pixels.astype(np.uint8))])
    with pytest.raises(BadInput, match="paints no pictures"):
        score_pictures(torch.nn.Identity(), [video])
