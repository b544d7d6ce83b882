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


def counted(pictures):
    frames, ids = scene()
    painted = painted_right(np.broadcast_to(pictures, frames.shape), frames, ids)
    assert (painted.of_objects, painted.of_background) == (12, 20)
    return painted.right_of_objects, painted.right_of_background


def test_the_frame_itself_is_painted_right():
    assert counted(scene()[0]) == (12, 20)


def test_one_colour_everywhere_is_right_for_some_and_wrong_for_others():
    """Empty background shows no object. Red everywhere shows the red object, and no background."""
    assert counted(GREY) == (0, 20)
    assert counted(RED) == (4, 0)


def test_each_object_needs_its_own_colour():
    frames, ids = scene()
    other = frames.copy()
    other[ids == 2] = 0.9 * GREY + 0.1 * RED
    assert counted(other) == (4, 20)
    faint = frames.copy()
    faint[ids == 2] = 0.4 * GREY + 0.6 * BLUE  # nearer to the object than to the background
    assert counted(faint) == (12, 20)


def test_a_shifted_object_counts_where_it_overlaps():
    frames, _ = scene()
    assert counted(np.roll(frames, 1, axis=2)) == (2 * (1 + 2), 2 * (10 - 3))


@pytest.mark.parametrize("name", [0, 1])
def test_a_frame_of_objects_only_or_of_background_only_does_not_count(name):
    frames, ids = scene()
    assert painted_right(frames, frames, np.full_like(ids, name)).shares() == {}


def test_models_are_scored_on_whole_videos():
    torch.manual_seed(0)
    model = small_model().eval()
    ids = np.zeros((5, *model.size), dtype=np.int64)
    ids[:, 4:20, 4:20] = 1
    pixels = np.where(ids[..., None] == 1, np.uint8([250, 0, 0]), np.uint8([90, 90, 90]))
    video = ArrayVideo("red", pixels.astype(np.uint8), ids)
    found = score_pictures(model, [video])
    assert set(found) == {"posterior", "prior"}
    assert all(0 <= share <= 1 for shares in found.values() for share in shares.values())
    painted = torch.from_numpy(pixels / 255).permute(0, 3, 1, 2)[None].clone()
    painted[:, 0] = 90 / 255  # the first frame is empty, which counts for the posterior alone
    model.pictures = lambda output, source: painted
    right = {"objects": 1.0, "background": 1.0}
    assert score_pictures(model, [video]) == {"posterior": {**right, "objects": 0.8}, "prior": right}
    with pytest.raises(BadInput, match="red has no true ids"):
        score_pictures(model, [ArrayVideo("red", pixels.astype(np.uint8))])
    with pytest.raises(BadInput, match="paints no pictures"):
        score_pictures(torch.nn.Identity(), [video])
