"""The Sprites-MOT score: hand-made clips, whose events can be counted on paper, and the library over all clips."""

import sys
from pathlib import Path

import motmetrics
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vonet.data.spmot import clip_sprites, draw
from vonet.errors import BadInput
from vonet.evaluation.spmot import (
    PUBLISHED,
    TRACKING_SCORES,
    ClipTracking,
    TrackingCounts,
    count_events,
    frame_overlaps,
    mean_and_std,
    tracking_scores,
    tracking_table,
)


def two_squares(frames=10, size=20):
    """Ids of a clip in which two squares of 16 pixels stand on a background of 368."""
    ids = np.zeros((frames, size, size), int)
    ids[:, 2:6, 2:6], ids[:, 10:14, 10:14] = 1, 2
    return ids


def counts(**changed):
    """Those of a perfect prediction of `two_squares`, in its eight scored frames, but for what is given."""
    perfect = {"object_frames": 16, "matches": 16, "iou": 16.0, "objects": 2, "mostly_detected": 2, "mostly_tracked": 2}
    return TrackingCounts(**{**perfect, **changed})


# Cases made by hand


def test_perfect_masks_match_in_every_scored_frame():
    true = two_squares()
    found = count_events(true, true + 1)
    assert found == counts()
    assert found.scores() == {name: 0 if name in ERRORS else 100 for name in TRACKING_SCORES}


ERRORS = ("misses", "id_switches", "false_positives")


def test_swapped_ids_are_two_switches_and_no_miss():
    true = two_squares()
    predicted = true + 1
    predicted[6:] = np.array([1, 3, 2])[true[6:]]
    found = count_events(true, predicted)
    assert found == counts(matches=14, id_switches=2)  # 7 of 8 frames are tracked: still mostly
    assert found.scores()["mota"] == pytest.approx(100 * 14 / 16)
    assert found.scores()["motp"] == 100


def test_switches_count_as_detected_but_not_as_tracked():
    true = two_squares()
    predicted = true + 1
    for t in (5, 7):  # there and back again, in frames 5, 6, 7 and 8
        predicted[t] = np.array([1, 3, 2])[true[t]]
    found = count_events(true, predicted)
    assert found == counts(matches=8, id_switches=8, mostly_tracked=0)
    assert found.scores()["md"] == 100
    assert found.scores()["mt"] == 0


def test_an_object_that_joins_the_background_segment_is_missed():
    true = two_squares()
    predicted = true + 1
    predicted[true == 2] = 1
    found = count_events(true, predicted)
    assert found == counts(matches=8, misses=8, iou=8.0, mostly_detected=1, mostly_tracked=1)
    assert found.scores()["mota"] == 50


def test_an_object_missed_in_two_of_eight_frames_is_not_mostly_detected():
    true = two_squares()
    for missed, mostly in ((1, 2), (2, 1)):
        predicted = true + 1
        predicted[4 : 4 + missed][true[4 : 4 + missed] == 2] = 1
        found = count_events(true, predicted)
        expected = counts(matches=16 - missed, misses=missed, iou=16.0 - missed)
        assert (found.matches, found.misses) == (expected.matches, expected.misses)
        assert found.mostly_detected == found.mostly_tracked == mostly


def test_an_object_keeps_its_segment_over_frames_in_which_it_is_missed():
    true = two_squares()
    predicted = true + 1
    predicted[5][true[5] == 2] = 1
    predicted[6:][true[6:] == 2] = 7
    assert count_events(true, predicted).id_switches == 1
    predicted[6:][true[6:] == 2] = 3
    assert count_events(true, predicted).id_switches == 0


def test_background_that_is_found_as_an_object_is_a_false_positive_unless_it_is_most_of_the_background():
    true = two_squares()
    predicted = true + 1
    predicted[:, 15:, :10] = 9  # 50 of 368 pixels: an IoU of 0.14
    found = count_events(true, predicted)
    assert found == counts(false_positives=8)
    assert found.scores()["false_positives"] == found.scores()["mota"] == 50
    predicted[:, 10:, :10] = 9  # 100 of 368 pixels: an IoU of 0.27
    assert count_events(true, predicted) == counts()


def test_the_background_may_be_split_between_several_segments():
    true = two_squares()
    halves = np.where(np.arange(20) < 10, 8, 9)
    predicted = np.where(true > 0, true, halves)
    assert count_events(true, predicted) == counts()


def test_the_threshold_for_background_is_above_0_2():
    true = np.zeros((10, 25), int)
    true[:2, :25] = 1  # 200 pixels of background
    for pixels, dropped in ((40, False), (41, True)):
        predicted = np.full((10, 25), 2)
        predicted.ravel()[50 : 50 + pixels] = 3
        _, segments, _ = frame_overlaps(true, predicted)
        assert (3 not in segments) == dropped


@pytest.mark.parametrize("pixels", [5, 6])
def test_masks_of_five_pixels_or_fewer_are_dropped(pixels):
    true = two_squares()
    true[:, 18, :pixels] = 3
    objects, segments, _ = frame_overlaps(true[0], true[0] + 1)
    assert (3 in objects, 4 in segments) == (pixels > 5, pixels > 5)
    predicted = two_squares() + 1
    predicted[:, 18, :pixels] = 9
    assert count_events(two_squares(), predicted) == counts(false_positives=0 if pixels == 5 else 8)


@pytest.mark.parametrize(("covered", "matches"), [(8, 16), (7, 8)])
def test_pairs_below_an_iou_of_one_half_cannot_match(covered, matches):
    true = two_squares()
    predicted = true + 1
    for frame, ids in zip(predicted, true, strict=True):
        rows, columns = np.nonzero(ids == 2)
        frame[rows[covered:], columns[covered:]] = 1
    found = count_events(true, predicted)
    assert found.matches == matches
    assert found.iou == pytest.approx(8 + 8 * 0.5 if covered == 8 else 8)
    assert (found.misses, found.false_positives) == ((0, 0) if covered == 8 else (8, 8))


def test_the_first_two_frames_are_not_scored():
    true = two_squares()
    predicted = true + 1
    predicted[:2] = np.array([1, 3, 2])[true[:2]]
    assert count_events(true, predicted) == counts()
    predicted[2] = predicted[1]
    assert count_events(true, predicted) == counts(matches=14, id_switches=2)


def test_null_pixels_are_no_segment():
    true = two_squares()
    assert count_events(true, np.where(true == 1, 0, true + 1)) == counts(
        matches=8, misses=8, iou=8.0, mostly_detected=1, mostly_tracked=1
    )


def test_an_object_that_enters_late_has_fewer_frames():
    true = two_squares()
    true[:7][true[:7] == 2] = 0
    assert count_events(true, true + 1) == counts(object_frames=11, matches=11, iou=11.0)


def test_frames_come_in_pieces_of_any_length():
    true = two_squares()
    predicted = np.roll(true, 1, axis=2) + 1
    clip = ClipTracking()
    for start, stop in ((0, 1), (1, 4), (4, 10)):
        clip.add(true[start:stop], predicted[start:stop])
    assert clip.counts() == count_events(true, predicted)


# All clips together


def moving_clips(number, seed=0):
    """True ids of Sprites-MOT, and predictions with every kind of error: noise, merged, split and swapped segments."""
    rng = np.random.default_rng(seed)
    for index in range(number):
        true = draw(clip_sprites(seed, "test", index), 64)[1].astype(int)
        predicted = true + 1
        for t in range(10):
            if rng.random() < 0.3:
                predicted[t] = rng.permutation(6)[predicted[t]] + 1
            if rng.random() < 0.3:
                predicted[t] = np.roll(predicted[t], rng.integers(-4, 5, 2), axis=(0, 1))
            if rng.random() < 0.2:
                predicted[t, :, : rng.integers(1, 40)] = rng.integers(1, 7)
        yield true, predicted


def of_the_library(clips):
    """The same scores by motmetrics alone: one accumulator for all clips, ids that are unique in all clips, masks
    compared pixel by pixel."""
    events = motmetrics.MOTAccumulator()
    for number, (true, predicted) in enumerate(clips):
        for t in range(2, 10):
            background = true[t] == 0
            objects = {i: true[t] == i for i in np.unique(true[t]) if i}
            segments = {i: predicted[t] == i for i in np.unique(predicted[t])}
            objects = {i: mask for i, mask in objects.items() if mask.sum() > 5}
            segments = {i: m for i, m in segments.items() if m.sum() > 5 and iou(m, background) <= 0.2}
            distances = np.array([[1 - iou(a, b) for b in segments.values()] for a in objects.values()])
            distances = distances.reshape(len(objects), len(segments))
            distances[distances > 0.5] = np.nan
            names = [[100 * number + i for i in group] for group in (objects, segments)]
            events.update(*names, distances, frameid=10 * number + t)
    names = ["mota", "motp", "num_matches", "num_misses", "num_switches", "num_false_positives", "num_objects"]
    names += ["num_unique_objects", "mostly_tracked"]
    found = motmetrics.metrics.create().compute(events, metrics=names, return_dataframe=False)
    share = 100 / found["num_objects"]
    return {
        "mota": 100 * found["mota"],
        "motp": 100 * (1 - found["motp"]),
        "md": 100 * found["mostly_tracked"] / found["num_unique_objects"],  # motmetrics counts switches as tracked
        "matches": share * found["num_matches"],
        "misses": share * found["num_misses"],
        "id_switches": share * found["num_switches"],
        "false_positives": share * found["num_false_positives"],
    }


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


def test_sums_over_clips_are_what_the_library_finds_over_all():
    clips = list(moving_clips(30))
    ours, theirs = tracking_scores(clips), of_the_library(clips)
    assert min(ours[name] for name in ERRORS) > 3  # every kind of error occurs
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-9), name
    assert ours["mt"] < ours["md"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5))
def test_random_ids_score_as_in_the_library(seed, slots):
    rng = np.random.default_rng(seed)
    clips = []
    for _ in range(2):
        true, predicted = (np.kron(rng.integers(0, slots, (10, 3, 3)), np.ones((1, 3, 3), int)) for _ in range(2))
        clips.append((true, np.where(rng.random(true.shape) < 0.6, true, predicted) + 1))
    theirs = of_the_library(clips)
    ours = tracking_scores(clips)
    for name in theirs.keys() - {"motp"}:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-9), name
    if not np.isnan(theirs["motp"]):
        assert ours["motp"] == pytest.approx(theirs["motp"], abs=1e-9)


def test_renaming_segments_changes_nothing():
    clips = list(moving_clips(3))
    names = np.array([0, 40, 3, 17, 8, 1, 2, 9, 11])
    assert tracking_scores([(true, names[predicted]) for true, predicted in clips]) == tracking_scores(clips)


def test_every_object_frame_is_a_match_a_switch_or_a_miss():
    total = sum((count_events(*clip) for clip in moving_clips(5)), TrackingCounts())
    assert total.object_frames == total.matches + total.id_switches + total.misses
    scores = total.scores()
    assert scores["mota"] == pytest.approx(scores["matches"] - scores["false_positives"])


def test_mean_and_deviation_over_seeds():
    found = mean_and_std([counts(), counts(matches=14, misses=2, iou=14.0)])
    assert found["mota"] == pytest.approx((93.75, 100 * np.std([1, 14 / 16], ddof=1)))
    assert np.isnan(mean_and_std([counts()])["mota"][1])


# What is printed, and what is refused


def test_the_published_table_is_consistent():
    """In every row matches, misses and switches are all object frames, and MOTA is matches less false positives."""
    for method, scores in PUBLISHED.items():
        mean = {name: value for name, (value, _) in scores.items()}
        assert mean["matches"] + mean["misses"] + mean["id_switches"] == pytest.approx(100, abs=0.2), method
        assert mean["matches"] - mean["false_positives"] == pytest.approx(mean["mota"], abs=0.2), method
        assert mean["mt"] <= mean["md"]
    assert [scores["mota"][0] for scores in PUBLISHED.values()] == [94.9, 92.9, 89.1, 79.7, 70.2]


def test_the_published_table_stands_below_ours():
    text = tracking_table({"model": mean_and_std([counts()])}).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text]
    assert cells[0][1:] == list(TRACKING_SCORES.values())
    assert cells[2] == ["model", *["100.0"] * 5, *["0.0"] * 3]
    assert [row[0] for row in cells[3:]] == [f"{method} (published)" for method in PUBLISHED]
    assert cells[4][1] == "92.9 ± 0.2"
    assert len({len(line) for line in text}) == 1


def test_the_documentation_has_the_published_table():
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text(encoding="utf-8")
    for method, scores in PUBLISHED.items():
        cells = [f"{mean:.1f} ± {std:.1f}" for mean, std in scores.values()]
        assert f"| {method} | {' | '.join(cells)} |\n" in page


def test_without_motmetrics_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "motmetrics", None)
    with pytest.raises(BadInput, match=r"needs the package motmetrics: install it with pip install 'vonet\[mot\]'\.$"):
        ClipTracking()


def test_clips_of_another_length_or_without_objects_are_refused():
    with pytest.raises(BadInput, match=r"the same shape 10 H W, got \(8, 20, 20\) and \(8, 20, 20\)"):
        count_events(two_squares(8), two_squares(8))
    with pytest.raises(BadInput, match="show no object"):
        tracking_scores([(np.zeros((10, 8, 8), int), np.ones((10, 8, 8), int))])
