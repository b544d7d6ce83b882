"""The public surface, and the files of examples/: each runs as its first lines say."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import vonet
from tests.serving.small import save_weights
from vonet.data.generate import generate
from vonet.data.sprites import SpritesConfig
from vonet.errors import BadInput

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*words, cwd):
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dir_shows_the_public_surface_and_nothing_else():
    importlib.import_module("vonet.training.run")  # imports nearly everything
    kinds = "BadInput Clip Segmenter VONet VONetConfig __version__"
    functions = "add_experiment add_layout add_score evaluate export load push save segment total"
    assert dir(vonet) == sorted(f"{kinds} {functions} data experiments performance".split())
    for name in dir(vonet):
        assert getattr(vonet, name) is not None
    names: dict[str, object] = {}
    exec("from vonet import *", names)
    assert set(dir(vonet)) <= set(names)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips") / "world"
    generate(SpritesConfig(frames=6), {"train": 3, "validation": 1}, folder, workers=1)
    return folder


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_goes_into_a_data_loader(world, workers):
    clips = vonet.data.segments(world, length=3)
    assert isinstance(clips, Dataset)
    assert len(clips) == 3 * 4  # six frames have four segments of three
    batches = list(DataLoader(clips, batch_size=8, num_workers=workers))
    assert [batch.shape for batch in batches] == [(8, 3, 3, 32, 32), (4, 3, 3, 32, 32)]
    videos = vonet.data.open(world, split="train")
    expected = videos[1].frames[2:5].transpose(0, 3, 1, 2) / np.float32(255)
    np.testing.assert_array_equal(torch.cat(batches)[6], expected)  # the third segment of the second video
    assert vonet.Clip(batches[0]).frames.shape == (8, 3, 3, 32, 32)


def test_clips_may_have_ids_and_need_not_overlap(world):
    clips = vonet.data.segments(world, length=3, step=3, split="validation", ids=True)
    assert len(clips) == 2
    frames, ids = clips[-1]
    assert frames.shape == (3, 3, 32, 32)
    (video,) = vonet.data.open(world, split="validation")
    np.testing.assert_array_equal(ids, video.ids[3:])
    with pytest.raises(IndexError):
        clips[2]


def test_clips_that_cannot_be_are_refused(world, tmp_path):
    with pytest.raises(BadInput, match="no video has the 7 frames of a segment; the longest has 6"):
        vonet.data.segments(world, length=7)
    with pytest.raises(BadInput, match="length is 0 and step is 1; both must be 1 or more"):
        vonet.data.segments(world, length=0)


def test_own_training_loop(tmp_path):
    said = run(EXAMPLES / "own_training_loop.py", 3, cwd=tmp_path)
    assert "update 3: loss " in said
    assert "FG-ARI " in said
    _, experiment = vonet.load(tmp_path / "runs/own-loop")
    assert experiment.name == "vonet-sprites"


def test_onnx_loop(world, tmp_path):
    save_weights(tmp_path / "run")
    run("-m", "vonet", "export", tmp_path / "run", tmp_path / "exported", cwd=tmp_path)
    (video,) = (world / "validation").glob("*.npz")
    lines = run(EXAMPLES / "onnx_loop.py", tmp_path / "exported", video, cwd=tmp_path).splitlines()
    assert len(lines) == 6
    for number, line in enumerate(lines):
        assert line.startswith(f"{number} pixels of each slot: [")
        assert sum(map(int, line.partition("[")[2].rstrip("]").split())) == 32 * 32
    code = (EXAMPLES / "onnx_loop.py").read_text().partition("import onnxruntime\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert "vonet" not in code
    assert "torch" not in code


SHORTER = {
    "TrainOptions(minutes=5)": "TrainOptions(updates=2, videos=1)",
    '{"train": 300, "validation": 16}': '{"train": 4, "validation": 1}',
}
"""What takes minutes in the notebook, and what stands for it here."""


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)  # it is kept without results
    for long, short in SHORTER.items():
        assert sum(long in cell.source for cell in cells) == 1, long
        for cell in cells:
            cell.source = cell.source.replace(long, short)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(str(output) for cell in cells for output in cell.outputs)
    for words in ("image/png", "FG-ARI", "'segments in the last frame': ", "mixture (no learning)"):
        assert words in printed, words
    assert (tmp_path / "quickstart/run/model.safetensors").exists()
