"""From any layout to the store, and what `vonet inspect` says of both."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import vonet.data
from tests.data import layouts
from tests.data.test_store import content
from vonet.data.inspection import inspect
from vonet.data.prepare import PrepareConfig, prepare
from vonet.data.resize import fitting, resized, resized_ids
from vonet.data.store import describe
from vonet.errors import BadInput


def picture_folders(root, videos=3, frames=5, size=(24, 32)):
    """Folders of frames with masks beside them; gives what is in them."""
    made = []
    for number in range(videos):
        pixels, ids = layouts.clip(seed=number, frames=frames, height=size[0], width=size[1])
        layouts.write_kubric(root / f"scene{number}", pixels, ids)
        made.append((pixels, ids))
    return made


# Resizing


def test_whole_factors_are_exact_means():
    frames = np.random.default_rng(0).integers(0, 256, (2, 16, 24, 3), np.uint8)
    small = resized(frames, (8, 12), "crop")
    mean = frames.reshape(2, 8, 2, 12, 2, 3).mean(axis=(2, 4))
    assert np.abs(small - mean).max() <= 0.5 + 1e-6


def test_the_middle_is_kept_by_crop_and_everything_by_stretch():
    frames = np.zeros((1, 10, 30, 3), np.uint8)
    frames[:, :, 10:20] = 200
    ids = (frames[..., 0] > 0).astype(np.uint8)
    assert (resized(frames, (10, 10), "crop") == 200).all()
    assert (resized_ids(ids, (10, 10), "crop") == 1).all()
    assert resized_ids(ids, (5, 15), "stretch").mean() == pytest.approx(1 / 3)
    assert np.array_equal(resized(frames, (10, 30), "crop"), frames)
    assert resized(frames, (20, 60), "stretch").shape == (1, 20, 60, 3)


def test_frames_and_ids_stay_on_each_other():
    """A disc's pixels after resizing are where its ids say, at any factor."""
    down, across = np.mgrid[:90, :120]
    ids = ((down - 40) ** 2 + (across - 70) ** 2 < 25**2).astype(np.uint8)[None] * 7
    frames = np.repeat((ids * 30)[..., None], 3, axis=-1)
    for size in ((30, 30), (64, 64), (33, 47), (128, 128)):
        for fit in ("crop", "stretch", "letterbox"):
            small, small_ids = resized(frames, size, fit), resized_ids(ids, size, fit)
            assert set(np.unique(small_ids)) == {0, 7}
            top, left, bottom, right = fitting((90, 120), size, fit).box
            agree = (small[..., 0] > 105) == (small_ids > 0)
            assert agree[:, top:bottom, left:right].mean() > 0.98
            small[:, top:bottom, left:right], small_ids[:, top:bottom, left:right] = 128, 0
            assert (small == 128).all()  # bars are grey, and background
            assert not small_ids.any()


def test_resized_ids_are_those_of_an_obvious_version():
    ids = np.random.default_rng(0).integers(0, 9, (1, 13, 17))
    small = resized_ids(ids, (5, 6), "stretch")
    for row in range(5):
        for column in range(6):
            assert small[0, row, column] == ids[0, int((row + 0.5) * 13 / 5), int((column + 0.5) * 17 / 6)]


# Preparing


def test_prepared_without_a_size_is_exact(tmp_path):
    made = picture_folders(tmp_path / "in")
    assert prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1).problems == []
    videos = vonet.data.open(tmp_path / "out", split="train")
    assert [v.name for v in videos] == ["scene0", "scene1", "scene2"]
    for video, (frames, ids) in zip(videos, made, strict=True):
        assert np.array_equal(video.frames, frames)
        assert np.array_equal(video.ids, ids)


def test_every_nth_frame_across_pieces(tmp_path):
    """Pieces have 32 frames, which five does not divide."""
    made = picture_folders(tmp_path / "in", videos=1, frames=75)
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(every=5), workers=1)
    video = vonet.data.open(tmp_path / "out")[0]
    assert np.array_equal(video.frames, made[0][0][::5])
    assert np.array_equal(video.ids, made[0][1][::5])


def test_from_shards_with_splits(tmp_path):
    for split, count in (("train", 3), ("validation", 2)):
        records = [layouts.movi(name=f"{split}{n}", seed=n)[0] for n in range(count)]
        layouts.write_shards(tmp_path / "in", records, 1, split=split)
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(size=(4, 4)), workers=1)
    before, after = vonet.data.open(tmp_path / "in"), vonet.data.open(tmp_path / "out")
    assert after.splits == before.splits == {"train": 3, "validation": 2}
    assert [v.name for v in after] == [v.name for v in before]
    for new, old in zip(after, before, strict=True):
        assert np.array_equal(new.frames, resized(old.frames, (4, 4), "stretch"))


def test_what_is_broken_is_named_and_the_rest_prepared(tmp_path):
    made = picture_folders(tmp_path / "in")
    (tmp_path / "in/scene1/rgba_00002.png").write_bytes(b"not a picture")
    (problem,) = prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1).problems
    assert "rgba_00002.png" in problem
    videos = vonet.data.open(tmp_path / "out")
    assert [v.name for v in videos] == ["scene0", "scene2"]
    assert np.array_equal(videos[1].frames, made[2][0])
    Image.fromarray(made[1][0][2]).save(tmp_path / "in/scene1/rgba_00002.png")  # mended: the next run takes it up
    assert prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1).problems == []
    assert [v.name for v in vonet.data.open(tmp_path / "out")] == ["scene0", "scene1", "scene2"]


def test_a_damaged_film_is_prepared_as_far_as_it_goes(tmp_path):
    film = tmp_path / "in/film.mp4"
    layouts.write_video(film, frames=40, options={"g": "12", "bf": "2"})
    data = bytearray(film.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    film.write_bytes(data)
    (problem,) = prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(size=(16, 16)), workers=1).problems
    assert "film.mp4 is damaged or cut short" in problem
    (video,) = vonet.data.open(tmp_path / "out")
    assert 0 < len(video) < 40
    found, _ = inspect(tmp_path / "in", full=False)
    assert found.problems == [problem]


def test_nothing_readable_makes_no_store(tmp_path):
    picture_folders(tmp_path / "in", videos=1)
    (tmp_path / "in/scene0/rgba_00004.png").write_bytes(b"not a picture")
    with pytest.raises(BadInput, match="none of the 1 videos"):
        prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1)
    with pytest.raises(BadInput):
        vonet.data.open(tmp_path / "out")


def test_other_options_need_another_folder(tmp_path):
    picture_folders(tmp_path / "in")
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(size=(8, 8)), workers=1)
    with pytest.raises(BadInput, match=r"holds other videos: size \[8, 8\] instead of \[4, 4\]"):
        prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(size=(4, 4)), workers=1)
    assert len(vonet.data.open(tmp_path / "out")) == 3


def test_what_comes_goes_and_changes_is_followed(tmp_path):
    made = picture_folders(tmp_path / "in", videos=4)
    shutil.move(tmp_path / "in/scene1", tmp_path / "later")
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1)
    shutil.move(tmp_path / "later", tmp_path / "in/scene1")
    shutil.rmtree(tmp_path / "in/scene3")
    other, ids = layouts.clip(seed=77, frames=5, height=24, width=32)
    layouts.write_kubric(tmp_path / "in/scene2", other, ids)
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1)
    videos = vonet.data.open(tmp_path / "out")
    assert [v.name for v in videos] == ["scene0", "scene1", "scene2"]
    for video, frames in zip(videos, [made[0][0], made[1][0], other], strict=True):
        assert np.array_equal(video.frames, frames)
    assert len(list((tmp_path / "out").rglob("*.npz"))) == 3


def test_another_file_of_the_same_name_is_another_video(tmp_path):
    for folder, seed in (("a", 0), ("b", 1)):
        layouts.write_video(tmp_path / folder / "v.mp4", frames=3, seed=seed)
        prepare(tmp_path / folder, tmp_path / "out", PrepareConfig(), workers=1)
    (video,) = vonet.data.open(tmp_path / "out")
    assert np.array_equal(video.frames, layouts.decode_video(tmp_path / "b/v.mp4"))


def test_the_output_may_not_lie_in_the_input(tmp_path):
    picture_folders(tmp_path / "in", videos=1)
    with pytest.raises(BadInput, match="lies inside"):
        prepare(tmp_path / "in", tmp_path / "in/out", PrepareConfig(), workers=1)
    assert not (tmp_path / "in/out").exists()


def test_thousands_of_records_need_few_open_files(tmp_path):
    """Every map of a shard keeps a file open; a set must not keep one for each of its videos."""
    features, truth = layouts.movi(frames=1, height=4, width=4)
    small = {key: features[key] for key in ("video", "segmentations")}
    layouts.write_shards(tmp_path / "in", [small] * 300, 3)
    code = (
        "import resource, sys\nfrom pathlib import Path\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from vonet.data.inspection import inspect\nfrom vonet.data.prepare import PrepareConfig, prepare\n"
        "folder = Path(sys.argv[1])\nfound, _ = inspect(folder / 'in', full=True)\n"
        "problems = prepare(folder / 'in', folder / 'out', PrepareConfig(), 1).problems\n"
        "print(found.videos, found.problems, problems)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "300 [] []\n", done.stderr
    assert np.array_equal(vonet.data.open(tmp_path / "out")[299].frames, truth["frames"])


def test_used_videos_do_not_pile_up(tmp_path):
    """A pickled video is in memory whole when it is used; inspecting many must not keep them."""
    import tracemalloc

    frames, ids = layouts.clip(frames=8, height=64, width=64)
    peaks = []
    for count in (4, 24):
        for number in range(count):
            layouts.write_pickle(tmp_path / f"video_{number}.pkl", frames, ids)
        tracemalloc.start()
        inspect(tmp_path, full=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2 * frames.nbytes


def test_names_that_are_no_text(tmp_path):
    layouts.write_video(tmp_path / "in/good.mp4", frames=2)
    strange = os.fsencode(tmp_path / "in") + b"/caf\xe9.mp4"
    try:
        os.rename(tmp_path / "in/good.mp4", strange)
    except OSError:
        pytest.skip("this file system has only names that are text")
    assert prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1).problems == []
    (video,) = vonet.data.open(tmp_path / "out")
    assert video.name == "caf?"
    assert len(video) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [({"size": (0, 4)}, "at least 1 pixel"), ({"every": 0}, "it must be 1")],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(BadInput, match=words):
        PrepareConfig(**options)


def test_killed_at_random_moments_it_loses_nothing(tmp_path):
    picture_folders(tmp_path / "in", videos=40, frames=24, size=(96, 96))
    command = [sys.executable, "-m", "vonet", "prepare", str(tmp_path / "in")]
    options = ["--size", "32", "--workers", "2"]
    subprocess.run([*command, str(tmp_path / "whole"), *options], check=True, capture_output=True)
    dice, kills, kept, done = random.Random(0), 0, [0], False
    while not done:
        process = subprocess.Popen(
            [*command, str(tmp_path / "out"), *options], stderr=subprocess.DEVNULL, start_new_session=True
        )
        enough = kept[-1] + dice.randint(1, 15)
        while process.poll() is None and len(list((tmp_path / "out").rglob("*.npz"))) < enough:
            time.sleep(0.005)
        done = process.poll() is not None
        if not done:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        kept.append(sum(describe(path) is not None for path in (tmp_path / "out").rglob("*.npz")))
    subprocess.run([*command, str(tmp_path / "out"), *options], check=True, capture_output=True)
    assert kills >= 2
    assert kept == sorted(kept)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


# Inspecting


def test_inspect_says_what_there_is(tmp_path):
    made = picture_folders(tmp_path / "in")
    found, videos = inspect(tmp_path / "in", full=True)
    assert len(videos) == 3
    said = found.as_json()
    assert (said["videos"], said["frames"], said["size"], said["ids"]) == (3, 5, [24, 32], 3)
    assert said["splits"] == {"train": 3}
    shares = [(frame == i).mean() for _, ids in made for frame in ids for i in range(1, 6) if (frame == i).any()]
    assert said["statistics"] == {
        "videos": 3,
        "foreground": pytest.approx(np.mean([(ids > 0).mean() for _, ids in made])),
        "objects_per_frame": len(shares) / 15,
        "most_objects": 5,
        "largest_id": 5,
        "areas": pytest.approx(tuple(np.quantile(shares, [0.1, 0.5, 0.9]))),
    }
    assert said["problems"] == []
    assert "3 videos (train 3), 5 frames each, 24x32" in str(found)


def test_inspect_says_what_is_broken_and_what_differs(tmp_path):
    picture_folders(tmp_path / "in", videos=2)
    pixels, ids = layouts.clip(seed=9, frames=7, height=12, width=12)
    layouts.write_kubric(tmp_path / "in/scene9", pixels, ids)
    (tmp_path / "in/scene1/rgba_00003.png").write_bytes(b"")
    found, _ = inspect(tmp_path / "in", full=True)
    assert found.frames == [5, 7]
    assert found.size == [[12, 12], [24, 32]]
    assert found.videos == 2
    assert any("rgba_00003.png" in problem for problem in found.problems)


def test_inspect_full_finds_a_flipped_bit_in_a_store(tmp_path):
    picture_folders(tmp_path / "in", videos=2)
    prepare(tmp_path / "in", tmp_path / "out", PrepareConfig(), workers=1)
    path = tmp_path / "out/train/000001.npz"
    flipped = bytearray(path.read_bytes())
    flipped[300] ^= 4
    path.write_bytes(flipped)
    assert inspect(tmp_path / "out", full=False)[0].problems == []
    assert "000001.npz" in inspect(tmp_path / "out", full=True)[0].problems[0]


def run(*arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", "vonet", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=folder
    )


def test_the_commands_together(tmp_path):
    options = "--out w --size 64 --train 2 --validation 1 --test 0 --seed 0 --workers 2 --frames 3"
    made = run("generate", "A", *options.split(), folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "3/3 videos" in made.stderr
    assert "per minute" in made.stderr
    said = run("inspect", "w", "--json", folder=tmp_path)
    found = json.loads(said.stdout)
    assert {k: found[k] for k in ("layout", "videos", "frames", "size", "problems")} == {
        "layout": "vonet store",
        "videos": 3,
        "frames": 3,
        "size": [64, 64],
        "problems": [],
    }
    assert not (tmp_path / "inspect.png").exists()
    assert run("prepare", "w", "small", "--size", 32, folder=tmp_path).returncode == 0
    small = vonet.data.open(tmp_path / "small", split="validation")
    assert small[0].frames.shape == (3, 32, 32, 3)
    said = run("inspect", "small", folder=tmp_path)
    assert "3 videos (train 2, validation 1), 3 frames each, 32x32" in said.stdout
    sheet = np.asarray(Image.open(tmp_path / "inspect.png"))
    assert sheet.shape == (3 * 130 + 2, 12 * 130 + 2, 3)
    first = vonet.data.open(tmp_path / "small")[0].frames[0]
    assert np.array_equal(sheet[2:130:4, 2:130:4], first)
    assert run("generate", "b", "--preview", "--size", 16, "--frames", 2, folder=tmp_path).returncode == 0
    assert np.asarray(Image.open(tmp_path / "preview.png")).shape[0] == 9 * 130 + 2
    assert run("generate", "--preview", "b", "--size", 16, "--frames", 2, folder=tmp_path).returncode == 0
    assert not (tmp_path / "b").exists()


def test_inspecting_a_folder_from_within_leaves_it_alone(tmp_path):
    picture_folders(tmp_path, videos=1)
    before = content(tmp_path)
    done = run("inspect", ".", folder=tmp_path / "scene0")
    assert done.returncode == 0, done.stderr
    assert "1 video (" in done.stdout
    assert content(tmp_path) == before
    done = run("inspect", ".", "--sheet", "x.png", folder=tmp_path / "scene0")
    assert "would lie among the videos" in done.stderr
    done = run("inspect", "scene0", "--sheet", "/proc/x.png", folder=tmp_path)
    assert "5 frames" in done.stdout
    assert "cannot be written" in done.stderr


def test_commands_say_mistakes_in_a_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, words in [
        (["generate"], "no world was given; expected one of A, B, C, D, E, sprites"),
        (["generate", "Z"], "there is no world 'Z'; expected one of A"),
        (["generate", "A", "--train", 0, "--validation", 0, "--out", "x"], "no videos were asked for"),
        (["generate", "A", "--train", -1, "--out", "x"], "-1 videos"),
        (["generate", "A", "--workers", 0, "--out", "x"], "0 workers"),
        (["inspect", "nowhere"], "there is nothing at 'nowhere'"),
        (["inspect", "empty"], "empty"),
        (["prepare", "empty", "out"], "empty"),
        (["prepare", "empty", "out", "--size", 1, 2, 3], "--size has 3 numbers"),
        (["prepare", "empty", "out", "--fit", "pad"], "fit is 'pad'; expected one of 'stretch', 'crop', 'letterbox'"),
    ]:
        done = run(*arguments, folder=tmp_path)
        assert done.returncode == 2, arguments
        assert words in done.stderr, arguments
        assert "Traceback" not in done.stderr, arguments
        assert not (tmp_path / "out").exists()
