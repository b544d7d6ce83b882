"""Objects are objects: background, rims and specks are told apart, and every file says the same."""

import csv
import json
import sys

import motmetrics
import numpy as np
import pytest
from PIL import Image

import vonet
from tests.serving.small import plain_mask, table, write_video
from vonet import cli
from vonet.data.generate import generate
from vonet.data.sprites import SpritesConfig
from vonet.data.video import ArrayVideo
from vonet.interface import background_ids, extents
from vonet.serving.objects import ObjectRule, RuleScore, Truth, joined
from vonet.serving.tracks import Tracks


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, words)])
    cli.main()


def overlap(one, other):
    return (one & other).sum() / (one | other).sum()


@pytest.fixture(scope="module", params=["plain", "split"])
def segmented(request, tmp_path_factory):
    """A table with three objects, segmented into every kind of file: the folder, the true ids, the input."""
    frames, true = table(request.param)
    place = tmp_path_factory.mktemp(request.param)
    path = write_video(place / "table.mp4", frames)
    cli.main(["segment", str(path), "--out", str(place / "out"), "--write", "all", "--weights", "mixture"])
    return place / "out/table", true, path


def test_three_objects_on_a_table_are_three(segmented):
    folder, true, _ = segmented
    about = json.loads((folder / "segment.json").read_text())
    ids = np.load(folder / "ids.npz")["ids"]
    found = [row["id"] for row in about["tracks"]]
    assert len(found) == 3
    assert "background" in about["left_out"].values()
    for one in (1, 2, 3):
        assert max(overlap(ids == other, true == one) for other in found) > 0.7
    assert (ids[true == 0] != 0).mean() < 0.02  # neither wall nor table


def test_all_files_agree_about_the_objects(segmented):
    folder, _, _ = segmented
    ids = np.load(folder / "ids.npz")["ids"]
    found = set(np.unique(ids).tolist()) - {0}
    masks = np.stack([np.asarray(Image.open(path)) for path in sorted((folder / "masks").iterdir())])
    np.testing.assert_array_equal(masks, ids)
    coco, youtube = (json.loads((folder / name).read_text()) for name in ("coco.json", "ytvis.json"))
    rebuilt = np.zeros_like(ids)
    for annotation in coco["annotations"]:
        rebuilt[annotation["image_id"]][plain_mask(annotation["segmentation"])] = annotation["track_id"]
    np.testing.assert_array_equal(rebuilt, ids)
    again = np.zeros_like(ids)
    for annotation in youtube["annotations"]:
        for t, mask in enumerate(annotation["segmentations"]):
            if mask is not None:
                again[t][plain_mask(mask)] = annotation["id"]
    np.testing.assert_array_equal(again, ids)
    with (folder / "mot.csv").open() as file:
        boxes = {(int(line[0]) - 1, int(line[1])) for line in csv.reader(file)}
    assert boxes == {(t, one) for t, frame in enumerate(ids) for one in np.unique(frame).tolist() if one}
    with (folder / "tracks.csv").open() as file:
        assert {int(row["id"]) for row in csv.DictReader(file)} == found


def test_the_overlay_leaves_the_background_as_it_is(segmented):
    import av

    folder, true, path = segmented
    ids = np.load(folder / "ids.npz")["ids"]
    with av.open(str(folder / "overlay.mp4")) as container:
        shown = next(container.decode(video=0)).to_ndarray(format="rgb24")[::2, ::2]  # small videos are enlarged twice
    with av.open(str(path)) as container:
        given = next(container.decode(video=0)).to_ndarray(format="rgb24")
    change = np.abs(shown.astype(int) - given).max(axis=-1)
    far = np.ones(ids[0].shape, bool)
    for down in range(-3, 4):
        for across in range(-3, 4):
            far &= np.roll(ids[0], (down, across), (0, 1)) == 0  # lines are drawn along the objects
    assert np.median(change[far & (true[0] == 0)]) < 12
    assert np.median(change[ids[0] != 0]) > 20


def test_another_evaluator_finds_no_false_objects(segmented, tmp_path):
    """motmetrics reads the boxes where they are, and counts no object that is none."""
    folder, true, _ = segmented
    read = motmetrics.io.loadtxt(folder / "mot.csv", fmt="mot15-2D")
    ids = np.load(folder / "ids.npz")["ids"]
    events = motmetrics.MOTAccumulator()
    for t, frame in enumerate(ids):
        found = read.loc[t + 1]
        for one, row in found.iterrows():
            rows, columns = np.nonzero(frame == one)
            assert (columns.min(), rows.min()) == (row.X, row.Y)
            assert (row.Width, row.Height) == (np.ptp(columns) + 1, np.ptp(rows) + 1)
        far = np.array([[1 - overlap(true[t] == one, frame == other) for other in found.index] for one in (1, 2, 3)])
        distances = np.where(far > 0.5, np.nan, far)
        events.update([1, 2, 3], found.index.tolist(), distances, frameid=t)
    host = motmetrics.metrics.create()
    summary = host.compute(events, metrics=["num_false_positives", "num_misses", "num_switches"])
    assert summary.values.tolist() == [[0, 0, 0]]


def test_with_keep_the_background_is_an_object_too(monkeypatch, tmp_path, capsys):
    path = write_video(tmp_path / "table.mp4", table(frames=4)[0])
    every = ("--background", "keep", "--min-area", "0", "--min-frames", 1)
    run(monkeypatch, "segment", path, "--out", tmp_path / "out", "--write", "npz", "--json", *every)
    (told,) = json.loads(capsys.readouterr().out)
    ids = np.load(tmp_path / "out/table/ids.npz")["ids"]
    assert told["left_out"] == {}
    assert len(told["tracks"]) > 4
    assert (ids != 0).mean() > 0.99


def test_the_sentence_and_the_table_count_objects(monkeypatch, tmp_path, capsys):
    path = write_video(tmp_path / "table.mp4", table()[0])
    run(monkeypatch, "segment", path, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert "; 3 objects in " in said
    assert said.splitlines()[-1].startswith("left out: 1 (background)")


# The rule


def watched(*frames):
    tracks = Tracks()
    for number, ids in enumerate(frames):
        tracks.add(number, None, np.array(ids, np.uint8), np.ones(9, np.float32))
    return tracks


def scene(height=40, width=60, **boxes):
    """Background 1, and boxes of other ids: id2=(top, left, height, width)."""
    ids = np.ones((height, width), np.uint8)
    for name, (top, left, down, across) in boxes.items():
        ids[top : top + down, left : left + across] = int(name.removeprefix("id"))
    return ids


def test_segments_are_left_out_for_a_reason():
    frames = [scene(id2=(10, 10, 8, 8), id3=(9, 40, 1, 12), id4=(30, 30, 2, 2)) for _ in range(5)]
    frames[3][20:28, 50:58] = 5
    rule = ObjectRule(min_area="10", min_frames=2)
    assert rule.left_out(watched(*frames), (40, 60)) == {1: "background", 3: "thin", 4: "small", 5: "brief"}
    every = ObjectRule(min_area="0", min_frames=1).left_out(watched(*frames), (40, 60))
    assert every == {1: "background", 3: "thin", 4: "thin"}
    kept = ObjectRule(background="keep", min_area="0.5%", min_frames=1)
    assert kept.left_out(watched(*frames), (40, 60)) == {4: "small"}
    assert kept.left_out(watched(*frames), (40, 60)) == ObjectRule(
        background="keep", min_area="12", min_frames=1
    ).left_out(watched(*frames), (40, 60))


def test_of_a_single_picture_nothing_is_too_brief():
    assert ObjectRule(min_frames=9).left_out(watched(scene(id2=(10, 10, 8, 8))), (40, 60)) == {1: "background"}


@pytest.mark.parametrize(
    ("boxes", "background"),
    [
        ({}, {1}),
        ({"id2": (10, 10, 20, 20)}, {1}),  # large, but inside
        ({"id2": (0, 20, 20, 20)}, {1}),  # cut off by one side
        ({"id2": (25, 0, 15, 20)}, {1}),  # cut off by a corner
        ({"id2": (20, 0, 20, 60)}, {1, 2}),  # a table before a wall
        ({"id2": (0, 20, 40, 10)}, {1, 2}),  # a pillar from top to bottom
        ({"id2": (0, 0, 20, 30), "id3": (0, 30, 20, 30)}, {1, 2, 3}),  # a wall of two colours
        ({"id2": (18, 0, 1, 60)}, {1}),  # a line is no background, but thin
    ],
)
def test_background_is_large_and_lies_around(boxes, background):
    ids = scene(**boxes)
    assert watched(ids, ids).background() == background
    assert background_ids(extents(np.stack([ids, ids]))) == background


def test_an_object_that_passes_the_border_stays_an_object():
    frames = [scene(id2=(10, max(0, 5 * t - 10), 20, min(20, 5 * t + 10))) for t in range(12)]
    assert watched(*frames).background() == {1}


# Scores of the rule


def test_precision_and_recall_are_those_of_a_small_case():
    """Two true objects. Segment 2 is one of them; 3 is half of the other; 4 is nothing; 1 is background."""
    true = scene(id2=(5, 5, 10, 10), id3=(20, 30, 10, 20)).astype(np.int64) - 1
    ids = scene(id2=(5, 5, 10, 10), id3=(20, 30, 10, 9), id4=(30, 5, 6, 6))
    truth = Truth()
    truth.add(ids, true)
    rows = watched(ids).table()
    assert truth.score({1: "background"}, rows) == RuleScore(2, 4, 1, 3, 1)
    assert truth.score({1: "background", 2: "small"}, rows) == RuleScore(2, 4, 1, 2, 0)
    score = joined([truth.score({1: "background"}, rows), truth.score({1: "background", 4: "small"}, rows)])
    assert (score.precision, score.recall) == (2 / 5, 1.0)


def test_where_there_are_true_ids_the_rule_is_scored(monkeypatch, tmp_path, capsys):
    generate(SpritesConfig(), {"validation": 6}, tmp_path / "world", 1)
    run(monkeypatch, "segment", tmp_path / "world", "--out", tmp_path / "out", "--write", "mot")
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("By the true ids, the rule for objects has a precision of ")
    scores = [json.loads(path.read_text())["rule"] for path in (tmp_path / "out").glob("*/segment.json")]
    assert len(scores) == 6
    right, objects, matched = (sum(score[name] for score in scores) for name in ("right", "objects", "matched"))
    assert f"{100 * right / objects:.1f} % ({right} of {objects};" in said
    assert right / objects > 0.8  # of all segments it is 0.35
    assert right / matched > 0.9


def test_damaged_true_ids_do_not_stop_the_segmentation(monkeypatch, tmp_path, capsys):
    for t, frame in enumerate(table(frames=3)[0]):
        (tmp_path / "walk").mkdir(exist_ok=True)
        Image.fromarray(frame).save(tmp_path / f"walk/{t}.png")
        Image.fromarray(np.zeros((96, 128), np.uint8)).save(tmp_path / f"walk/{t}_mask.png")
    (tmp_path / "walk/1_mask.png").write_bytes(b"no picture")
    run(monkeypatch, "segment", tmp_path / "walk", "--out", tmp_path / "out", "--write", "npz")
    said = capsys.readouterr()
    assert "vonet: note: the rule for objects is not scored: " in said.err
    assert "By the true ids" not in said.out
    assert len(np.load(tmp_path / "out/walk/ids.npz")["ids"]) == 3


# In Python


def test_a_stream_tells_the_background_from_the_frames_so_far():
    frames, true = table("split", frames=6)
    *_, last = vonet.segment(ArrayVideo("table", frames))
    assert last.background
    assert set(np.unique(last.objects)) == {0, *(t.id for t in last.tracks if t.id not in last.background)}
    assert (last.objects[true[-1] == 0] != 0).mean() < 0.05
    assert (last.objects[true[-1] != 0] != 0).mean() > 0.8
