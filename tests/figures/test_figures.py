"""`vonet figures`: strips, grids, curves, bars and tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.figures.made_up import GREYS, LOG, watched
from vonet import cli
from vonet.errors import BadInput
from vonet.figures import comparison, efficiency, plots, strips
from vonet.figures.comparison import ablation_labels, compared, latex, markdown, write_bars
from vonet.figures.draw import draw
from vonet.figures.efficiency import write_attention, write_efficiency
from vonet.figures.matching import BACKGROUND, matched, paints
from vonet.figures.names import distinct_names, spoken_method
from vonet.figures.plots import GAP, sheet_of
from vonet.figures.sheet import PALETTE, colours, write_sheet


def test_a_sheet_has_every_picture_in_its_place():
    rows = [np.full((3, 4, 5, 3), 10, np.uint8), np.full((2, 4, 5, 3), 20, np.uint8)]
    sheet = sheet_of(rows)
    assert sheet.shape == (2 * 4 + GAP, 3 * 5 + 2 * GAP, 3)
    assert (sheet[:4, :5] == 10).all()
    assert (sheet[4 + GAP :, 5 + GAP : 10 + GAP] == 20).all()
    assert (sheet[4 + GAP :, 10 + GAP :] == 255).all()  # the second row has no third picture
    assert (sheet[4 : 4 + GAP] == 255).all()


def test_every_other_frame_is_shown_and_fewer_of_long_videos():
    assert strips._times(watched()).tolist() == [0, 2]
    missing = dict.fromkeys(("true_ids", "reconstruction", "prior_reconstruction", "divergence"))
    long = watched(frames=np.zeros((240, 8, 12, 3), np.uint8), ids=np.zeros((240, 8, 12), np.int64), **missing)
    times = strips._times(long)
    assert len(times) == strips.COLUMNS
    assert (times % 2 == 0).all()
    assert (times[0], times[-1]) == (0, 238)


def test_masks_are_colours_over_the_frame_with_white_boundaries():
    video = watched()
    picture = strips._over(video.frames, video.ids, paints(3))[0]
    scale = picture.shape[0] // 8
    tint, grey = paints(3).astype(float), GREYS[0]
    middle = picture[2 * scale + scale // 2, 9 * scale + scale // 2]
    assert np.abs(middle - (0.7 * tint[3] + 0.3 * grey)).max() < 3
    assert (picture[7 * scale + scale // 2] == grey).all()  # nobody is sure of the last row
    line = picture[2 * scale + scale // 2, 7 * scale - 1]
    assert (line == 255).all()
    assert (picture == 255).all(axis=-1).mean() < 0.05  # lines are thin


def test_a_foreground_has_only_what_is_an_object():
    video = watched()
    picture = strips._alone(video.ids[2], video.true_ids[2] != 0, paints(3))
    scale = picture.shape[0] // 8

    def at(row, column):
        return picture[row * scale + scale // 2, column * scale + scale // 2].tolist()

    assert at(0, 0) == at(6, 6) == [strips.NOTHING] * 3
    assert at(2, 2) == paints(3)[2].tolist()
    assert at(2, 10) == paints(3)[3].tolist()


def test_pictures_are_written_twice_and_the_same_each_time(tmp_path):
    runs = {"a": [watched(), watched()], "b": [watched(), watched()]}
    paths = strips.write_masks(tmp_path / "masks", runs)
    assert [path.name for path in paths] == ["masks.pdf", "masks.png"]
    first = paths[0].read_bytes()
    assert first.startswith(b"%PDF")
    assert np.asarray(Image.open(paths[1])).shape[1] > 600
    strips.write_masks(tmp_path / "masks", runs)
    assert paths[0].read_bytes() == first
    assert {path.name for path in tmp_path.iterdir()} == {"masks.pdf", "masks.png"}


def test_videos_of_several_sizes_fit_one_figure(tmp_path):
    tall = {name: np.zeros((4, 20, 10, 3), np.uint8) for name in ("frames", "reconstruction", "prior_reconstruction")}
    ids = {name: np.ones((4, 20, 10), np.int64) for name in ("ids", "true_ids")}
    runs = {"a": [watched(), watched(**tall, **ids)]}
    assert len(strips.write_masks(tmp_path / "masks", runs)) == 2
    assert len(strips.write_foreground(tmp_path / "foreground", runs)) == 2
    assert len(strips.write_reconstructions(tmp_path / "reconstruction", runs["a"])) == 2


def test_what_a_model_cannot_show_is_not_drawn(tmp_path):
    plain = [watched(true_ids=None, reconstruction=None, prior_reconstruction=None, divergence=None)]
    assert strips.write_foreground(tmp_path / "a", {"run": plain}) == []
    assert strips.write_reconstructions(tmp_path / "b", plain) == []
    assert strips.write_divergence(tmp_path / "c", plain) == []
    assert write_efficiency(tmp_path / "d", {"run": LOG[:4]}) == []
    assert list(tmp_path.iterdir()) == []


# Colours


def lab(rgb):
    """CIELAB, in which distances are as large as eyes see them."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089]).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def test_colours_are_told_apart():
    made = lab(np.concatenate([colours(len(PALETTE)), paints(1)[1:]]) / 255)  # grey included
    apart = np.linalg.norm(made[:, None] - made[None], axis=-1)
    np.fill_diagonal(apart, 100)
    assert apart.min() > 25
    assert len(np.unique(colours(40), axis=0)) == 40
    assert np.array_equal(colours(3), colours(40)[:3])


def test_a_segment_has_the_colour_of_its_object_whatever_its_number():
    """And all that lies on background is grey, in the truth and in the prediction."""
    video = watched()
    for order in ((0, 1, 2, 3), (0, 3, 1, 2)):
        ids = np.array(order)[video.ids]
        found = matched(ids, video.true_ids)
        true, numbers = found.true_numbered(video.true_ids), found.numbered(ids)
        assert set(np.unique(true[video.true_ids == 0])) == {BACKGROUND}
        assert (numbers[video.ids == 1] == BACKGROUND).all()
        assert (numbers[video.ids == 3] == true[video.true_ids == 9][0]).all()
        assert (numbers[video.ids == 2] == true[video.true_ids == 4][0]).all()
        assert (numbers[video.ids == 0] == 0).all()
        np.testing.assert_array_equal(found.tint()[ids], paints(int(numbers.max()))[numbers])
    assert (paints(3)[BACKGROUND] == paints(3)[BACKGROUND, 0]).all()


def test_without_truth_background_is_what_lies_around():
    ids = np.full((2, 20, 30), 5)
    ids[:, 5:12, 5:12], ids[:, 8:16, 18:26] = 2, 9
    found = matched(ids, None)
    assert found.of_slots == {0: 0, 5: BACKGROUND, 2: 2, 9: 3}


def test_more_segments_than_objects_have_colours_of_their_own():
    true, ids = np.zeros((1, 10, 30), np.int64), np.ones((1, 10, 30), np.int64)
    true[:, :, 10:20] = 7
    ids[:, :, 10:13], ids[:, :, 13:20] = 2, 3
    found = matched(ids, true)
    assert found.of_slots == {0: 0, 1: BACKGROUND, 3: 2, 2: 3}


def test_rows_of_training_pictures_have_names(tmp_path):
    """The pictures begin to the right of a margin in which there is writing, one line for each row."""
    rows = [np.full((3, 20, 20, 3), 90, np.uint8)] * 2
    write_sheet(tmp_path / "plain.png", rows, scale=2)
    write_sheet(tmp_path / "named.png", rows, scale=2, labels=["true objects", "masks"])
    plain, named = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in ("plain", "named"))
    margin = named.shape[1] - plain.shape[1]
    assert np.array_equal(named[:, margin:], plain)
    upper, lower = named[: len(named) // 2, :margin], named[len(named) // 2 :, :margin]
    assert 0 < (lower < 100).sum() < (upper < 100).sum()  # a shorter word


# Comparisons


def evaluation(experiment, fg_ari, *, weights="w", data="worlds/A-64", std=None, layout="vonet store", **about):
    scores = {"fg_ari": fg_ari, "miou": fg_ari / 2}
    return {
        **scores,
        "std": dict.fromkeys(scores, std),
        "offline": {},
        "trivial": {"k-means": {"fg_ari": 0.4, "miou": 0.1}},
        "ceiling": {},
        "paper": {},
        "experiment": experiment,
        "dataset": "movi-a",
        "weights": weights,
        "data": data,
        "layout": layout,
        "split": "validation",
        "protocol": "vonet",
        "videos": 16,
        "seeds": 1,
        "slots": 7,
        "masks": "nearest",
        **about,
    }


def test_runs_of_one_experiment_are_its_seeds():
    found = compared(
        [
            evaluation("vonet-movi-a", 0.5, weights="one"),
            evaluation("vonet-movi-a", 0.7, weights="two"),
            evaluation("vonet-movi-a-wo-unet", 0.3, std=0.02),
        ]
    )
    ours = found.groups["ours"]
    mean, std = ours["vonet"]["fg_ari", "A-64"]
    assert (mean, std) == (pytest.approx(0.6), pytest.approx(np.std([0.5, 0.7], ddof=1)))
    assert ours["vonet-wo-unet"]["fg_ari", "A-64"] == (0.3, 0.02)
    assert found.groups["trivial"]["k-means"]["miou", "A-64"] == (0.1, None)
    assert "paper" not in found.groups  # these are not the paper's videos


def test_of_the_same_weights_the_largest_evaluation_counts():
    small, large = evaluation("x", 0.9, videos=4), evaluation("x", 0.5, videos=64)
    other = evaluation("x", 0.8, split="train")
    found = compared([large, small, other])
    assert found.groups["ours"]["x"] == {
        ("fg_ari", "A-64"): (0.5, None),
        ("miou", "A-64"): (0.25, None),
        ("fg_ari", "A-64 (train)"): (0.8, None),
        ("miou", "A-64 (train)"): (0.4, None),
    }


def test_tables_say_mean_and_spread_and_mark_the_best():
    found = compared([evaluation("my_model", 0.512, std=0.0049), evaluation("other", -0.0001, weights="v")])
    assert markdown(found) == (
        "|  | FG-ARI A-64 | mIoU A-64 |\n"
        "| --- | ---: | ---: |\n"
        "| my_model | **51.2 ± 0.5** | **25.6 ± 0.5** |\n"
        "| other | 0.0 | 0.0 |\n"
        "| k-means | 40.0 | 10.0 |\n"
    )
    lines = latex(found).splitlines()
    assert lines[0] == r"\begin{tabular}{l|c|c}"
    assert r"my\_model & $\mathbf{51.2{\scriptstyle \pm 0.5}}$ & $\mathbf{25.6{\scriptstyle \pm 0.5}}$ \\" in lines
    assert r"k-means & $40.0$ & $10.0$ \\" in lines
    assert lines[-1] == r"\end{tabular}"


def test_on_the_papers_videos_its_methods_stand_beside_ours():
    found = compared([evaluation("vonet-movi-a", 0.9, layout="TFDS, movi_a 1.0.0")])
    assert found.datasets == ["MOVi-A"]
    assert found.groups["paper"]["STEVE (paper)"]["fg_ari", "MOVi-A"] == (pytest.approx(0.478), pytest.approx(0.082))
    assert "| VONet (paper) | 91.0 ± 1.5 | 60.5 ± 2.0 |" in markdown(found)


def test_variants_are_called_by_what_they_change():
    labels = ablation_labels(["vonet", "vonet-wo-unet", "vonet-wo-unet-small", "steve"])
    assert list(labels.values()) == ["vonet", "wo-unet", "small", "steve"]


def test_methods_are_named_as_papers_name_them():
    names = ("vonet", "savi", "vonet-closeup", "vonet-wo-unet", "wo-klbal", "mixture", "my_model")
    assert [spoken_method(name) for name in names] == [
        *("VONet", "SAVi", "VONet (closeup)", "VONet (w/o U-Net)", "w/o KL balancing", "mixture", "my_model")
    ]
    runs = {"a": "VONet", "b": "VONet", "c": "SAVi"}
    assert distinct_names(runs) == {"a": "VONet, a", "b": "VONet, b", "c": "SAVi"}
    found = compared([evaluation("vonet-movi-a-wo-unet", 0.5), evaluation("steve-movi-a", 0.4, weights="v")])
    assert [line.split(" | ")[0] for line in markdown(found).splitlines()[2:4]] == ["| VONet (w/o U-Net)", "| STEVE"]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    figures = []
    save = plots.saved

    def kept(figure, *rest, **options):
        figures.append(figure)
        return save(figure, *rest, **options)

    for module in (comparison, efficiency, strips):
        monkeypatch.setattr(module, "saved", kept)
    return figures


def test_a_single_run_has_no_error_bar_and_lines_say_whose_they_are(drawn, tmp_path):
    write_bars(tmp_path / "one", compared([evaluation("vonet-movi-a", 0.5)]))
    write_bars(tmp_path / "spread", compared([evaluation("vonet-movi-a", 0.5, std=0.1)]))
    one, spread = drawn
    assert [len(axes.collections) for axes in one.axes] == [0, 0]
    assert [len(axes.collections) for axes in spread.axes] == [1, 1]
    said = [text.get_text() for text in one.legends[0].get_texts()]
    assert sorted(said) == ["VONet", "best without learning (k-means)"]


def test_bars_and_curves_are_drawn(tmp_path):
    found = compared([evaluation("a", 0.5, std=0.1), evaluation("a-b", 0.3, data="worlds/B-64", weights="v")])
    assert len(write_bars(tmp_path / "ablation", found)) == 2
    assert len(write_efficiency(tmp_path / "efficiency", {"run": LOG})) == 2
    assert len(write_attention(tmp_path / "attention", [1, 2], {"ours": [1.0, 1.1], "MONet": [1.0, 2.0]})) == 2


# The command


def test_all_figures_of_a_run(monkeypatch, trained, tmp_path, capsys):
    bench = tmp_path / "bench-attention.json"
    bench.write_text(json.dumps({"slots": [1, 2], "milliseconds": {"ours": [1.0, 1.1]}}))
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps(evaluation("vonet-sprites", 0.5)))
    arguments = ["figures", trained, scores, bench, "--out", tmp_path / "out", "--videos", "1", "--frames", "3"]
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
    cli.main()
    names = {
        *("masks", "foreground", "run-reconstruction", "run-kld", "efficiency", "ablation", "attention"),
    }
    expected = {f"{name}.{ending}" for name in names for ending in ("pdf", "png")}
    expected |= {"comparison.md", "comparison.tex"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected
    assert set(capsys.readouterr().out.split()) == {str(tmp_path / "out" / name) for name in expected}


def test_a_method_without_parameters_is_drawn_beside_a_run(monkeypatch, trained, tmp_path):
    monkeypatch.chdir(tmp_path)
    draw([Path("mixture"), trained], tmp_path / "out", videos=1, frames=3, progress=False)
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert {"masks", "mixture-reconstruction", "run-reconstruction", "run-kld"} <= names
    with pytest.raises(BadInput, match="which videos it was trained on is not known; add --data"):
        draw([Path("mixture")], tmp_path / "other", progress=False)


def test_mistakes_are_said(trained, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "list.json").write_text("[1]")
    for sources, words in (
        ([tmp_path / "none"], "there is nothing at"),
        ([tmp_path / "empty"], "there is nothing to draw in"),
        ([tmp_path / "other.json"], "other.json is not an evaluation"),
        ([tmp_path / "list.json"], "list.json is not an evaluation"),
    ):
        with pytest.raises(BadInput, match=words):
            draw(sources, tmp_path / "out", progress=False)
    with pytest.raises(BadInput, match="--videos is 0"):
        draw([trained], tmp_path / "out", videos=0)
    assert not (tmp_path / "out").exists()
