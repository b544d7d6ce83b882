"""Files of the user's own: what they may add, and what is said when they are wrong. docs/tutorials has whole examples,
which tests/test_documentation.py runs."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from torch import nn

import vonet
from tests.own_parts import as_in_a_new_process
from tests.reduced import reduced_experiment
from vonet import cli, experiments
from vonet.commands.extensions import use
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.evaluation.protocol import LESS_IS_BETTER, score
from vonet.evaluation.report import cell
from vonet.experiments import weights
from vonet.model.vonet import VONet, VONetConfig


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with as_in_a_new_process():
        yield


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_file_runs_once_and_finds_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("ANSWER = 42")
    (tmp_path / "mine_alone.py").write_text("from neighbour_of_mine import ANSWER\nTIMES = []")
    use(tmp_path / "mine_alone.py")
    sys.modules["mine_alone"].TIMES.append("once")
    use(tmp_path / "mine_alone.py")
    assert (sys.modules["mine_alone"].ANSWER, sys.modules["mine_alone"].TIMES) == (42, ["once"])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.py", None, "missing.py is not a Python file; give the file with your own parts"),
        ("clip.mp4", "", "clip.mp4 is not a Python file"),
        (
            "wrong.py",
            "import vonet\n\nvonet.nonsense",
            "wrong.py cannot be used (line 3): AttributeError: module 'vonet'",
        ),
        (
            "unfinished.py",
            "x = (",
            "unfinished.py cannot be used: SyntaxError: '(' was never closed (unfinished.py, line 1)",
        ),
        ("json.py", "", "json.py has the name of another module, json: rename it"),
    ],
)
def test_a_file_that_cannot_be_used_gets_a_sentence(tmp_path, capsys, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as end:
        cli.main(["--with", name, "list"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"vonet: {said}")
    assert error.count("\n") == 1


# ---- models ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MineConfig(VONetConfig):
    def build(self):
        return Mine(self)


class Mine(VONet):
    pass


def mine(name="mine", kind=MineConfig):
    small = reduced_experiment(experiments.get("vonet-sprites"))
    options = {option: getattr(small.model, option) for option in small.model.__dataclass_fields__}
    return replace(small, name=name, model=kind(**options))


def test_weights_of_an_own_model_need_its_file_and_say_so(tmp_path):
    with as_in_a_new_process():
        vonet.add_experiment(mine())
        assert "mine" in experiments.names()
        weights.save(tmp_path, experiments.get("mine").build_model(seed=0), mine())
        model, experiment = vonet.load(tmp_path)
        assert type(model) is Mine
        assert experiment == mine()
    with pytest.raises(BadInput, match=r"MineConfig \(if it is of your own making: vonet --with YOURS.py\)"):
        vonet.load(tmp_path)
    with pytest.raises(BadInput, match="there is no experiment 'mine'"):
        experiments.get("mine")


def test_an_own_experiment_may_be_added_again_but_replaces_none_of_ours():
    vonet.add_experiment(mine())
    vonet.add_experiment(replace(mine(), summary="better"))
    assert experiments.get("mine").summary == "better"
    with pytest.raises(BadInput, match="there is an experiment 'vonet-sprites' already"):
        vonet.add_experiment(mine("vonet-sprites"))
    vonet.add_experiment(replace(experiments.get("vonet-sprites"), name="my-sprites"))
    assert experiments.get("my-sprites").model == experiments.get("vonet-sprites").model


def test_a_part_may_not_be_called_as_one_of_ours():
    """Or our own weights would be read with it."""
    with pytest.raises(BadInput, match="there is a SAViConfig in vonet already"):
        vonet.add_experiment(mine(kind=type("SAViConfig", (MineConfig,), {})))


def test_a_description_that_builds_no_model_is_refused():
    """In a process of its own: where types are checked, that check comes first."""
    code = """
import vonet
from dataclasses import dataclass, replace

@dataclass(frozen=True)
class NobodyConfig:
    losses = ("reconstruction", "kl")

try:
    vonet.add_experiment(replace(vonet.experiments.get("vonet-sprites"), name="nobody", model=NobodyConfig()))
except vonet.BadInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("NobodyConfig has no method build(), which must return the model that it describes")


def test_what_a_model_lacks_is_said():
    class Poor(nn.Module):
        size, cells, slots = (32, 32), (16, 16), 4

        def __init__(self, config):
            super().__init__()

    class PoorConfig(MineConfig):
        def build(self):
            return Poor(self)

    vonet.add_experiment(mine(kind=PoorConfig))
    with pytest.raises(BadInput, match="Poor lacks enlargement, initial_state, unroll, parameter_groups: "):
        experiments.get("mine").build_model()


# ---- layouts ---------------------------------------------------------------------------------------------------------


def test_an_own_layout_is_asked_first_and_lets_others_pass(tmp_path):
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    vonet.add_layout("mine", lambda root: [ArrayVideo(p.stem, frames, split="test") for p in root.glob("*.mine")])
    (tmp_path / "here").mkdir()
    with pytest.raises(BadInput, match="has no files"):
        vonet.data.open(tmp_path / "here")
    (tmp_path / "here/one.mine").touch()
    found = vonet.data.open(tmp_path / "here", split="test")
    assert (found.layout, [video.name for video in found]) == ("mine", ["one"])
    with pytest.raises(BadInput, match=r"has no split 'train'; it has 'test' \(1 videos\)"):
        vonet.data.open(tmp_path / "here", split="train")


# ---- scores ----------------------------------------------------------------------------------------------------------


class Frames:
    """How many there are."""

    def __init__(self):
        self.number = 0

    def add(self, true_ids, predicted_ids):
        assert true_ids.shape == predicted_ids.shape
        self.number += len(true_ids)

    def value(self):
        return self.number


def test_an_own_score_sees_each_video_and_window_on_its_own():
    ids = np.random.default_rng(0).integers(0, 3, (12, 8, 8))
    assert "frames" not in score(ids, ids)
    vonet.add_score("frames", "frames", Frames, count=True, less_is_better=True)
    assert score(ids, ids)["frames"] == 12
    assert score(ids, ids, "steve")["frames"] == 6  # two windows of six
    assert cell("frames", 12.0, float("nan")) == "12.00"
    vonet.add_score("frames", "frames", Frames)
    assert cell("frames", 12.0, float("nan")) == "1200.0"
    assert "frames" not in LESS_IS_BETTER


def test_an_own_score_replaces_none_of_ours_and_is_a_number():
    with pytest.raises(BadInput, match="there is a score 'miou' already"):
        vonet.add_score("miou", "my mIoU", Frames)
    vonet.add_score("nothing", "nothing", type("Nothing", (Frames,), {"value": lambda self: float("nan")}))
    ids = np.zeros((2, 4, 4), int)
    with pytest.raises(BadInput, match="the score 'nothing' gave nan for a video"):
        score(ids, ids)
