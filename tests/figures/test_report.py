"""`vonet report`, from a training to the file."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vonet
from vonet import cli, experiments
from vonet.data.prepare import PrepareConfig, prepare
from vonet.errors import BadInput
from vonet.experiments import weights
from vonet.figures import report
from vonet.training.run import TrainOptions, train


def test_a_method_without_parameters_has_a_report(monkeypatch, world, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = report.report(Path("mixture"), world, videos=1, frames=3, scored=1, progress=False)
    assert path == Path("report.html")
    assert "mixture" in path.read_text()


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
    cli.main()


def data_of(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))


def test_a_run_knows_its_videos_and_is_evaluated_once(monkeypatch, trained, capsys):
    run_command(monkeypatch, "report", trained, "--videos", 2, "--frames", 3)
    page = trained / "report.html"
    assert str(page) in capsys.readouterr().out
    data = data_of(page)
    assert data["title"] == "vonet-sprites"
    assert [video["frames"] for video in data["videos"]] == [3, 3]
    assert set(data["videos"][0]["sheets"]) == {"input", "reconstruction", "prior_reconstruction"}
    assert list(data["curves"]["losses"]) == ["reconstruction", "kl"]
    assert len(data["curves"]["scores"]["fg_ari"]) == 2
    (evaluation,) = (trained / "evaluation").glob("*.json")
    scored = json.loads(evaluation.read_text())
    by_kind = {method["kind"]: method for method in data["scores"]["methods"]}
    assert set(by_kind) == {"model", "offline", "trivial", "ceiling"}  # of sprites the paper has no scores
    assert by_kind["model"]["scores"]["fg_ari"] == scored["fg_ari"]
    assert data["verdict"] == scored["verdict"]
    monkeypatch.setattr(report, "evaluate", None)  # would be called again
    run_command(monkeypatch, "report", trained, "--videos", 1, "--out", trained / "other.html")
    assert data_of(trained / "other.html")["verdict"] == scored["verdict"]


def test_the_subtitle_says_what_the_run_was_trained_on(trained, world, tmp_path):
    page = report.report(trained, videos=1, frames=2, out=tmp_path / "generated.html", progress=False)
    expected = f"VONet with a broadcast decoder, trained on 3 generated videos of level A ({world.name})"
    assert data_of(page)["summary"] == expected
    for t, frame in enumerate(np.random.default_rng(0).integers(0, 255, (4, 40, 60, 3), np.uint8)):
        (tmp_path / "mine/holiday").mkdir(parents=True, exist_ok=True)
        Image.fromarray(frame).save(tmp_path / f"mine/holiday/{t}.png")
    prepare(tmp_path / "mine", tmp_path / "store", PrepareConfig((32, 32)), workers=1)
    train(experiments.get("vonet-sprites"), tmp_path / "store", tmp_path / "own", TrainOptions(updates=1))
    page = report.report(tmp_path / "own", videos=1, frames=2, progress=False)
    assert data_of(page)["summary"] == "VONet with a broadcast decoder, trained on 1 prepared video (store)"
    shutil.rmtree(tmp_path / "store")
    page = report.report(tmp_path / "own", tmp_path / "mine", videos=1, frames=2, progress=False)
    assert data_of(page)["summary"] == "VONet with a broadcast decoder, trained on store"


def test_videos_without_true_ids_have_no_scores(monkeypatch, trained, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "clip").mkdir()
    for t in range(3):
        Image.fromarray(rng.integers(0, 255, (40, 60, 3), np.uint8)).save(tmp_path / "clip" / f"{t:03d}.png")
    run_command(
        monkeypatch, "report", trained / "model.safetensors", "--data", tmp_path / "clip", "--out", tmp_path / "a.html"
    )
    data = data_of(tmp_path / "a.html")
    assert data["scores"]["methods"] == []
    assert "objects" not in data["videos"][0]
    assert data["verdict"] == ""
    assert data["curves"]["losses"] == {}


def test_mistakes_are_said(trained, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(trained / "model.safetensors", alone)
    for arguments, words in (
        ({"run": alone}, "alone: which videos it was trained on is not known; add --data VIDEOS"),
        ({"run": alone / "model.safetensors"}, "add --data VIDEOS"),
        ({"run": tmp_path / "nothing"}, "there are no weights at"),
        ({"run": trained, "videos": 0}, "--videos is 0; it must be 1 or more"),
        ({"run": trained, "split": "test"}, "has no split 'test'"),
    ):
        with pytest.raises(BadInput, match=re.escape(words)):
            report.report(**arguments)
    assert {path.name for path in alone.iterdir()} == {"model.safetensors"}


def test_an_evaluation_of_other_weights_does_not_count_but_one_of_a_copied_run_does(
    monkeypatch, trained, world, tmp_path
):
    run, data = tmp_path / "run", world.resolve()
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("evaluation"))
    monkeypatch.chdir(data.parent)
    report.report(run, Path(data.name), videos=1, frames=2, scored=1, progress=False)
    monkeypatch.chdir(tmp_path)
    run = run.rename(tmp_path / "elsewhere")
    later = (run / "model.safetensors").stat().st_mtime + 3600
    os.utime(run / "model.safetensors", (later, later))  # copies may be of any order
    assert report._earlier(run, data, "validation", 5) is not None
    assert report._earlier(run, data, "train", 5) is None
    assert report._earlier(run, data, "validation", 24) is None
    model, experiment = vonet.load(run)
    next(model.parameters()).data += 1
    weights.save(run, model, experiment)
    assert report._earlier(run, data, "validation", 5) is None
