"""`vonet compare`: recorded evaluations side by side."""

import json
import subprocess
import sys

import pytest

from vonet import experiments
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.compare import compare
from vonet.evaluation.protocol import PROTOCOLS, SCORES
from vonet.evaluation.report import Report
from vonet.evaluation.run import MODEL, Row, evaluate_trivial
from vonet.experiments import weights


def evaluation(name, fg_ari, videos=2, seeds=1, **about):
    """A report as vonet evaluate makes it, of invented scores."""
    scores = dict.fromkeys(SCORES, 0.5)
    rows = [
        Row(MODEL, f"sprites {i}", "train", seed, 0, {**scores, "fg_ari": fg_ari + 0.02 * seed})
        for seed in range(seeds)
        for i in range(videos)
    ]
    pixels, ids = sprite_videos(videos, frames=2, seed=1)
    found = [ArrayVideo(f"sprites {i}", *pair) for i, pair in enumerate(zip(pixels, ids, strict=True))]
    rows += evaluate_trivial(found, PROTOCOLS["vonet"], 4, (32, 32), "nearest", progress=False)
    known = {"experiment": name, "split": None, "protocol": "vonet", "slots": 4, "parameters": 1234567}
    known |= {"data": "sprites", "videos": videos, "seeds": seeds, "masks": "nearest", "weights": name}
    return Report({**known, "milliseconds": 12.34, **about}, rows, {})


def written(folder, report, name="scores"):
    return next(path for path in report.write(folder / "evaluation", name) if path.suffix == ".json")


def test_runs_and_files_in_one_table(tmp_path):
    written(tmp_path / "one", evaluation("monet-laptop-a", 0.4))
    file = written(tmp_path / "two", evaluation("scalor-laptop-a", 0.55, seeds=2))
    found = compare([tmp_path / "one", file])
    lines = found.table().splitlines()
    assert "videos 2" in lines[0]
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        "method",
        "FG-ARI",
        "mIoU",
        "slots per object",
        "switches per object",
        "ms per frame",
        "parameters",
    ]
    assert set(lines[3]) <= set("|-: ")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert cells[0] == ["monet-laptop-a", "40.0", "50.0", "0.50", "0.50", "12.3", "1,234,567"]
    assert cells[1][:2] == ["scalor-laptop-a", "56.0 ± 1.4"]
    assert [row[0] for row in cells[2:]] == [f"{n} (K = 4)" for n in ("one segment", "random", "blocks", "k-means")]
    assert cells[2][-2:] == ["–", "–"]
    assert len({len(line) for line in lines[2:]}) == 1


def test_as_json(tmp_path):
    file = written(tmp_path, evaluation("monet-laptop-a", 0.4))
    first, *others = compare([file]).as_json()["methods"]
    assert (first["method"], first["fg_ari"], first["parameters"]) == ("monet-laptop-a", pytest.approx(0.4), 1234567)
    assert first["file"] == str(file)
    assert others[0]["milliseconds"] is None
    json.dumps(compare([file]).as_json(), allow_nan=False)


def test_two_runs_of_one_experiment_are_told_apart_by_their_folders(tmp_path):
    for folder in ("seed-0", "seed-1"):
        written(tmp_path / folder, evaluation("monet-laptop-a", 0.4))
    methods = [line.method for line in compare([tmp_path / "seed-0", tmp_path / "seed-1"]).lines]
    assert methods[:2] == ["monet-laptop-a (seed-0)", "monet-laptop-a (seed-1)"]


def test_evaluations_of_before_have_neither_time_nor_parameters(tmp_path):
    file = written(tmp_path, evaluation("laptop-a", 0.4))
    old = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("milliseconds", "parameters")}
    file.write_text(json.dumps(old))
    assert compare([file]).table().splitlines()[4].split("|")[-3:-1] == ["            – ", "          – "]


@pytest.mark.parametrize(
    ("change", "word"),
    [({"protocol": "savi"}, "protocol 'vonet' and"), ({"split": "test"}, "cannot be compared")],
)
def test_different_rules_are_refused(tmp_path, change, word):
    files = [written(tmp_path / "a", evaluation("a", 0.1)), written(tmp_path / "b", evaluation("b", 0.1, **change))]
    with pytest.raises(BadInput, match=word):
        compare(files)


def test_other_videos_are_refused(tmp_path):
    files = [written(tmp_path / "a", evaluation("a", 0.1)), written(tmp_path / "b", evaluation("b", 0.1, videos=3))]
    with pytest.raises(BadInput, match="different videos"):
        compare(files)


def test_what_cannot_be_compared_is_said(tmp_path):
    with pytest.raises(BadInput, match="there is nothing at"):
        compare([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match="has not been evaluated yet: vonet evaluate"):
        compare([tmp_path])
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(BadInput, match="not an evaluation"):
        compare([tmp_path / "list.json"])
    (tmp_path / "half.json").write_text('{"experiment": ')
    with pytest.raises(BadInput, match="cannot be read"):
        compare([tmp_path / "half.json"])
    for name in ("one", "two"):
        written(tmp_path / "run", evaluation("a", 0.1), name)
    with pytest.raises(BadInput, match=r"evaluated 2 times; give one of .*one\.json.*two\.json"):
        compare([tmp_path / "run"])


def test_of_runs_scored_several_times_what_all_have_is_compared(tmp_path):
    """As after `vonet report`, which scores a few videos where it finds no evaluation."""
    written(tmp_path / "one", evaluation("a", 0.4), "few")
    written(tmp_path / "one", evaluation("a", 0.5, videos=3), "many")
    written(tmp_path / "one", evaluation("a", 0.6, videos=4), "alone")
    written(tmp_path / "two", evaluation("b", 0.7), "few")
    written(tmp_path / "two", evaluation("b", 0.8, videos=3), "many")
    first, second, *_ = compare([tmp_path / "one", tmp_path / "two"]).lines
    assert (first.scores["fg_ari"], second.scores["fg_ari"]) == (pytest.approx(0.5), pytest.approx(0.8))


def test_the_command(tmp_path, monkeypatch, capsys):
    """From weights to the table, as a user goes."""
    from vonet import cli
    from vonet.data.generate import generate
    from vonet.data.scenes.video import WorldConfig

    generate(WorldConfig("A", size=32, frames=3, objects=(2, 3)), {"validation": 2}, tmp_path / "world", workers=1)
    made = experiments.get("vonet-sprites")
    weights.save(tmp_path / "run", made.build_model(seed=0), made)
    for arguments in (["evaluate", tmp_path / "run", tmp_path / "world", "--json"], ["compare", tmp_path / "run"]):
        monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
        cli.main()
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if line.startswith("| vonet-sprites"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert float(cells[-2]) > 0
    assert cells[-1] == f"{sum(p.numel() for p in made.build_model().parameters()):,}"
    command = [sys.executable, "-m", "vonet", "compare", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("vonet: there is nothing at")
    assert done.returncode == 2
