import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from vonet import cli, weights
from vonet.data.sprites import sprite_videos


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
    cli.main()


def test_demo_trains_and_draws(monkeypatch, tmp_path, capsys):
    run(monkeypatch, "demo", "--updates", 2, "--out", tmp_path / "demo")
    sheets = {path.name: np.asarray(Image.open(path)) for path in (tmp_path / "demo").glob("*.png")}
    assert set(sheets) == {"learning.png", "objects.png"}
    said = capsys.readouterr().out
    assert "FG-ARI" in said
    assert "k-means" in said
    assert weights.load(tmp_path / "demo")[1].name == "vonet-sprites"
    frame = sprite_videos(1, seed=2)[0][0, 0]
    assert np.array_equal(
        sheets["objects.png"][2 : 2 + 96 : 3, 2 : 2 + 96 : 3], frame
    )  # the first picture of the sheet
    assert "objects.png" in said


def test_experiments_are_listed_and_shown(monkeypatch, capsys):
    run(monkeypatch, "experiments")
    assert "vonet-movi-e-wo-replay" in capsys.readouterr().out
    run(monkeypatch, "experiments", "vonet-movi-a")
    assert '"slot_dim": 128' in capsys.readouterr().out


def test_mistakes_get_a_sentence_not_a_traceback(tmp_path):
    for arguments, words in [
        (["experiments", "vonet-movi-z"], "vonet: there is no experiment 'vonet-movi-z'; perhaps you meant"),
        (["demo", "--updates", "0", "--out", str(tmp_path)], "vonet: 0 updates were asked for"),
    ]:
        done = subprocess.run([sys.executable, "-m", "vonet", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_sprites_are_decided_by_seed_and_number():
    pixels, ids = sprite_videos(3, seed=5)
    again, _ = sprite_videos(2, seed=5)
    assert np.array_equal(pixels[:2], again)
    assert not np.array_equal(pixels[0], sprite_videos(1, seed=6)[0][0])
    assert pixels.shape == (3, 12, 32, 32, 3)
    for video in ids:
        assert 2 <= video.max() <= 3
        assert 0.02 < (video > 0).mean() < 0.5


@pytest.mark.parametrize("number", range(5))
def test_sprites_move_and_keep_their_colour(number):
    pixels, ids = sprite_videos(number + 1, seed=5)
    pixels, ids = pixels[number], ids[number]
    assert not np.array_equal(ids[0], ids[-1])
    for i in range(1, ids.max() + 1):
        assert len(np.unique(pixels[ids == i], axis=0)) == 1
