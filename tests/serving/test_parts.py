"""The parts of the segmenter: sizes, run lengths, spans, tracks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.small import pictures, plain_mask, write_video
from vonet.data.resize import fitting
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.figures.overlays import boundaries, id_colours, overlaid
from vonet.interface import enlarge, segment_ids
from vonet.serving import placement, rle
from vonet.serving.placement import Enlarger, placed
from vonet.serving.span import Span
from vonet.serving.tracks import Tracks

# Sizes


@pytest.mark.parametrize("how", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [(64, 96), (32, 64), (8, 8)])
def test_masks_are_enlarged_as_evaluation_enlarges_them(monkeypatch, how, size):
    monkeypatch.setattr(placement, "STRIP_BYTES", 4 * 5 * size[1] * 3)  # three rows at a time
    log_masks = torch.randn(5, 8, 8).log_softmax(dim=0)
    enlarger = Enlarger.between((8, 8), fitting(size, (16, 16), "stretch"), how)
    np.testing.assert_allclose(enlarger.masks(log_masks), enlarge(log_masks, size, how).exp(), atol=1e-5)
    ids = enlarger.ids(log_masks, 0.3)
    assert ids.dtype == np.uint8
    assert (ids != segment_ids(log_masks, None, size, how, 0.3)).mean() < 0.002  # rounding decides between equals
    assert (ids == 0).any()


def test_a_letterboxed_frame_and_its_masks_lie_on_each_other():
    """A frame four times as wide as high lies in the middle; what the model says of the bars is said of no pixel."""
    where = fitting((20, 80), (16, 16), "letterbox")
    assert where.box == (6, 0, 10, 16)
    frame = np.zeros((20, 80, 3), np.uint8)
    frame[:, 40:] = 255
    picture = placed(frame, (16, 16), "letterbox")
    assert (picture[:, :6] == 128 / 255).all()
    assert (picture[:, 6:10, :8] == 0).all()
    assert (picture[:, 6:10, 8:] == 1).all()
    log_masks = torch.stack([picture[0] == 0, picture[0] == 1, picture[0] == 128 / 255]).float().add(1e-6).log()
    ids = Enlarger.between((16, 16), where, "nearest").ids(log_masks, 0.3)
    assert (ids[:, :40] == 1).all()
    assert (ids[:, 40:] == 2).all()


@pytest.mark.parametrize("how", ["nearest", "bilinear"])
def test_of_what_is_cropped_nothing_is_said(how):
    """Of a frame four times as wide as high only the square in its middle is seen, and masks lie where they belong."""
    where = fitting((20, 80), (16, 16), "crop")
    assert where.seen == (slice(0, 20), slice(30, 50))
    assert where.seen_share == 0.25
    frame = np.zeros((20, 80, 3), np.uint8)
    frame[:, 40:] = 255
    picture = placed(frame, (16, 16), "crop")
    log_masks = torch.stack([picture[0] < 0.5, picture[0] >= 0.5]).float().add(1e-6).log()
    enlarger = Enlarger.between((16, 16), where, how)
    ids, masks = enlarger.ids(log_masks, 0.3), enlarger.masks(log_masks)
    assert (ids[:, 30:40] == 1).all()
    assert (ids[:, 40:50] == 2).all()
    assert not ids[:, :30].any()
    assert not ids[:, 50:].any()
    np.testing.assert_allclose(masks.sum(axis=0), 1, atol=1e-4)


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
@pytest.mark.parametrize("size", [(1, 500), (500, 1), (1, 1), (3, 2)])
def test_frames_of_any_shape_fit(fit, size):
    where = fitting(size, (16, 24), fit)
    top, left, bottom, right = where.box
    assert 0 <= top < bottom <= 16
    assert 0 <= left < right <= 24
    assert placed(np.zeros((*size, 3), np.uint8), (16, 24), fit).shape == (3, 16, 24)
    ids = Enlarger.between((4, 6), where, "bilinear").ids(torch.zeros(1, 4, 6), 0.3)
    assert ids.shape == size
    assert (ids[where.seen] == 1).all()
    assert ids.sum() == ids[where.seen].size


# Run lengths


@given(st.data(), st.integers(1, 12), st.integers(1, 12), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_run_lengths_are_read_back_by_a_plain_decoder(data, height, width, largest):
    flat = data.draw(st.lists(st.integers(0, largest), min_size=height * width, max_size=height * width))
    ids = np.array(flat, np.uint8).reshape(height, width)
    masks = rle.encoded(ids)
    assert sorted(masks) == [i for i in np.unique(ids) if i]
    for i, mask in masks.items():
        np.testing.assert_array_equal(plain_mask(mask), ids == i)


def test_run_lengths_of_large_pictures_and_known_strings():
    ids = np.zeros((700, 900), np.uint16)
    ids[100:650, 20:870] = 300
    ids[200:300, 400:500] = 7
    for i, mask in rle.encoded(ids).items():
        np.testing.assert_array_equal(plain_mask(mask), ids == i)
    assert rle.packed([0, 9]) == "09"  # all nine pixels of a picture
    assert rle.packed([5, 1, 3]) == "513"
    assert rle.packed([16, 1]) == "`01"  # sixteen needs a second letter, or it would be negative
    assert rle.packed([1, 2, 3, 1]) == "123O"  # from the fourth on, less the one two before: 1 - 2


# Spans


def numbers(video, **options):
    return [shown.number for shown in Span(**options).frames(video)]


def test_spans_in_frames_and_seconds():
    video = ArrayVideo("walk", pictures(12))
    assert numbers(video) == list(range(12))
    assert numbers(video, start=2, end=9, every=3) == [2, 5, 8]
    assert numbers(video, start="0.5s", end="0:0.9", rate=10.0) == [5, 6, 7, 8]
    assert numbers(video, start="11") == [11]
    assert Span(start=2, end=9, every=3).expected_length(video) == 3
    assert Span(start="0.5s", rate=10.0).expected_length(video) == 7
    for options, words in [
        ({"start": 12}, "walk ends before the start that was asked for: it has 12 frames"),
        ({"start": "0.9s", "end": 3, "rate": 10.0}, "no frame of walk lies between the start and the end"),
        ({"start": 5, "end": 5}, "from 5 to 5 there is no frame"),
        ({"start": "-1"}, "start is '-1'; give a frame"),
        ({"end": "soon"}, "end is 'soon'; give a frame"),
        ({"every": 0}, "every is 0"),
        ({"rate": 0.0}, "0.0 frames per second"),
    ]:
        with pytest.raises(BadInput, match=words):
            numbers(video, **options)


def test_the_times_of_an_unsteady_video_are_its_own(tmp_path):
    import vonet.data

    times = [0, 1, 2, 10, 11, 30]
    video = vonet.data.open(write_video(tmp_path / "a.mkv", times=times))[0]
    shown = list(Span(start="0.15s", end="2s").frames(video))
    assert [frame.number for frame in shown] == [2, 3, 4]
    assert [frame.seconds for frame in shown] == pytest.approx([0.2, 1.0, 1.1])


# Tracks


def test_tracks_say_where_and_how_long():
    tracks = Tracks()
    for t in range(4):
        ids = np.zeros((10, 20), np.uint8)
        ids[2:5, 3 * t : 3 * t + 4] = 2
        if t == 1:
            ids[9, :] = 1
        found = tracks.add(10 + 2 * t, t / 10, ids, np.array([0.5, 0.8, 0.9], np.float32))
        last = found[-1]
        assert (last.id, last.box, last.area, last.first, last.last) == (2, (3 * t, 2, 4, 3), 12, 10, 10 + 2 * t)
        assert len(found) == (2 if t == 1 else 1)
    line, square = tracks.table()
    assert (line.id, line.first, line.last, line.frames, line.first_second) == (1, 12, 12, 1, 0.1)
    assert line.at_border == pytest.approx(22 / 60)  # corners lie on two sides
    assert (square.id, square.frames, square.last_second) == (2, 4, 0.3)
    assert square.mean_area == square.largest_area == 12 / 200
    assert square.mean_confidence == pytest.approx(0.8)
    assert square.path_length == pytest.approx(9 / np.hypot(10, 20))


# Overlays


def test_an_overlay_tints_segments_and_draws_where_they_meet():
    pixels = np.full((20, 30, 3), 100, np.uint8)
    ids = np.zeros((20, 30), np.uint8)
    ids[:, 10:20], ids[:, 20:] = 1, 2
    drawn = overlaid(pixels, ids, opacity=0.5)
    assert (drawn[:, :9] == 100).all()  # nothing is known there, and nothing is changed
    for i, column in ((1, 12), (2, 25)):
        np.testing.assert_allclose(drawn[5, column], (100 + id_colours(2)[i].astype(int)) / 2, atol=1)
    assert (drawn[:, [9, 19]] == 255).all()
    assert (drawn == 255).all(axis=-1).sum() == 40
    np.testing.assert_array_equal(id_colours(2), id_colours(9)[:3])
    assert boundaries(ids, width=3)[:, [9, 10, 11]].all()
