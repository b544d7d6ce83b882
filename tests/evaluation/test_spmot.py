"""The Sprites-MOT score: hand-made clips, whose events can be counted on paper, and the library over all clips."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import motmetrics
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vonet import cli, experiments
from vonet.data.generate import generate
from vonet.data.spmot import SpritesMotConfig, clip_sprites, draw
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.protocol import PROTOCOLS, SCORES
from vonet.evaluation.run import Row, evaluate_model, evaluate_trivial, tracking_summary
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
from vonet.evaluation.trivial import TRIVIAL
from vonet.experiments import weights
from vonet.interface import State, StepOutput


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
    with pytest.raises(BadInput, match=r"needs motmetrics\. Install with: pip install motmetrics$"):
        ClipTracking()


def test_clips_of_another_length_or_without_objects_are_refused():
    with pytest.raises(
        BadInput, match=r"have the shapes \(8, 20, 20\) and \(8, 20, 20\); both must have the same shape 10 H W"
    ):
        count_events(two_squares(8), two_squares(8))
    with pytest.raises(BadInput, match="show no object"):
        tracking_scores([(np.zeros((10, 8, 8), int), np.ones((10, 8, 8), int))])


# The protocol


SPMOT = PROTOCOLS["spmot"]


@dataclass(frozen=True)
class FramesSeen(State):
    number: torch.Tensor


class ColourModel(torch.nn.Module):
    """Finds red, green and blue objects; after `swap_after` frames the slots of red and green are swapped."""

    def __init__(self, swap_after=100):
        super().__init__()
        self.swap_after = swap_after

    def initial_state(self, batch, slots=None, generator=None):
        return FramesSeen(torch.zeros(batch, dtype=torch.long))

    def step(self, frame, state):
        logits = torch.cat([1 - frame.amax(dim=1, keepdim=True), frame], dim=1)
        swapped = (state.number >= self.swap_after).view(-1, 1, 1, 1)
        log_masks = torch.where(swapped, logits[:, [0, 2, 1, 3]], logits).mul(9).log_softmax(dim=1)
        slots = torch.zeros(len(frame), 4, 1)
        return StepOutput(log_masks, tuple(frame.shape[-2:]), "nearest", slots, slots), FramesSeen(state.number + 1)


def coloured_video(name="v", frames=10):
    """A red, a green and a blue object of 20 pixels move down."""
    ids = np.zeros((frames, 40, 20), np.uint8)
    for t, number in np.ndindex(frames, 3):
        ids[t, 3 + t : 7 + t, 6 * number : 6 * number + 5] = number + 1
    pixels = np.stack([(ids == number) * 255 for number in (1, 2, 3)], axis=-1).astype(np.uint8)
    return ArrayVideo(name, pixels, ids, "test")


def test_a_model_that_knows_has_perfect_tracks_and_swapped_slots_are_switches():
    videos = [coloured_video(f"{i}") for i in range(3)]
    for swap_after, switches in ((100, 0), (6, 2)):
        rows = evaluate_model(ColourModel(swap_after), (40, 20), videos, SPMOT, offline=True, progress=False)
        assert {row.method for row in rows} == {"model"}  # tracking is online: there is no second pass
        assert [row.tracking.id_switches for row in rows] == [switches] * 3
        mean, _ = tracking_summary(rows)["model"]["mota"]
        assert mean == pytest.approx(100 - 100 * switches / 24)


def test_clips_start_with_fresh_slots():
    """A video of 20 frames is two clips; the model, which swaps slots after twelve frames, is restarted after ten."""
    rows = evaluate_model(ColourModel(12), (40, 20), [coloured_video(frames=20)], SPMOT, progress=False)
    assert [row.start for row in rows] == [0, 10]
    assert all(row.tracking.id_switches == 0 for row in rows)


def test_seeds_are_scored_on_their_own():
    scores = dict.fromkeys(SCORES, 0.5)
    rows = [
        Row("model", f"{video}", "test", seed, 0, scores, counts() if seed else counts(matches=14, misses=2, iou=14.0))
        for seed in range(2)
        for video in range(3)
    ]
    mean, std = tracking_summary(rows)["model"]["mota"]
    assert mean == pytest.approx(93.75)
    assert std == pytest.approx(100 * np.std([1, 14 / 16], ddof=1))
    assert tracking_summary([Row("model", "v", "test", 0, 0, scores)]) == {}


def test_the_trivial_methods_have_tracking_scores_too():
    rows = evaluate_trivial([coloured_video()], SPMOT, 4, (40, 20), "nearest", progress=False)
    found = tracking_summary(rows)
    assert set(found) == {*TRIVIAL, "perfect masks"}
    assert found["perfect masks"]["mota"][0] == 100
    assert found["one segment"]["mota"][0] == 0  # the only segment is background: everything is missed
    assert found["blocks"]["mota"][0] < 50


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Untrained weights, and a few clips."""
    folder = tmp_path_factory.mktemp("spmot")
    experiment = experiments.get("vonet-sprites")
    weights.save(folder / "run", experiment.build_model(seed=0), experiment)
    generate(SpritesMotConfig(size=32), {"test": 4}, folder / "world", 1)
    return folder


def test_the_command_prints_and_writes_tracking_scores(prepared, capsys):
    command = ["evaluate", str(prepared / "run"), str(prepared / "world"), "--split", "test", "--protocol", "spmot"]
    cli.main([*command, "--json"])
    said = json.loads(capsys.readouterr().out)
    for scores in (said, said["std"], said["ceiling"], *said["trivial"].values()):
        assert set(TRACKING_SCORES) <= set(scores)
    assert said["ceiling"]["mota"] > 50
    (path,) = (prepared / "run/evaluation").glob("*-test-spmot-*.json")
    rows = [row for row in json.loads(path.read_text())["rows"] if row["method"] == "model"]
    total = sum((TrackingCounts(**row["tracking"]) for row in rows), TrackingCounts())
    assert {name: said[name] for name in TRACKING_SCORES} == pytest.approx(total.scores())
    for words in (command, ["compare", str(path)]):
        cli.main(words)
        text = capsys.readouterr().out
        assert "ViMON (published)" in text
        assert "92.9 ± 0.2" in text
    cli.main(["compare", str(path), "--json"])
    first, *_ = json.loads(capsys.readouterr().out)["methods"]
    assert first["mota"] == said["mota"]


def test_other_protocols_neither_need_motmetrics_nor_print_tracks(prepared, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "motmetrics", None)
    command = ["evaluate", str(prepared / "run"), str(prepared / "world"), "--split", "test"]
    cli.main(command)
    assert "published" not in capsys.readouterr().out
    (path,) = (prepared / "run/evaluation").glob("*-test-vonet-*.json")
    assert all("tracking" not in row for row in json.loads(path.read_text())["rows"])
    with pytest.raises(SystemExit) as left:
        cli.main([*command, "--protocol", "spmot"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
