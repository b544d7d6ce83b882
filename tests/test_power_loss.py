"""After a power loss at any moment there is the old state or the new one, and the same command continues."""

import json
import os
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image as Picture
from safetensors.torch import load_file

from tests.power_loss import Recorder, write_image
from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.data.generate import generate
from vonet.data.prepare import PrepareConfig, prepare
from vonet.data.sprites import SpritesConfig
from vonet.data.store import INDEX, damaged, open_store
from vonet.experiments import weights
from vonet.training import checkpoint
from vonet.training import log as logs
from vonet.training.distributed import Processes
from vonet.training.replay import ReplayConfig
from vonet.training.run import Run, TrainOptions
from vonet.writing import folder_written_aside, save_tensors, written_aside

SPRITES = SpritesConfig(size=16, frames=3)


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The disk itself


def test_the_disk_forgets_what_was_not_synced(tmp_path):
    """The shim finds what it is for: a rename without a sync may leave an empty file, or none."""
    disk = Recorder(tmp_path)
    with disk.recorded(), written_aside(tmp_path / "x", sync=False) as aside:
        aside.write_text("new")
    found = {image.get("x") for _, _, image, _ in disk.images()}
    assert found == {None, b"", b"n", b"new"}


def test_a_synced_file_is_the_old_or_the_new_one(tmp_path):
    (tmp_path / "x").write_text("old")
    disk = Recorder(tmp_path)
    with disk.recorded():
        with written_aside(tmp_path / "x") as aside:
            aside.write_text("new")
        written = len(disk.moments)
    assert {image["x"] for _, _, image, _ in disk.images()} == {b"old", b"new"}
    assert {image["x"] for number, _, image, _ in disk.images() if number >= written - 1} == {b"new"}


def test_a_new_folder_is_the_disks_too(tmp_path):
    disk = Recorder(tmp_path)
    with disk.recorded(), written_aside(tmp_path / "a/b/x") as aside:
        aside.write_text("new")
    assert disk.after_loss(disk.moments[-1], "nothing", None)["a/b/x"] == b"new"


def test_a_folder_that_replaces_another_is_the_old_or_the_new_one_when_written_again(tmp_path):
    """Between the two renames it has another name; the next writer gives it back before it writes."""
    root = tmp_path / "disk"
    (root / "result").mkdir(parents=True)
    (root / "result/x").write_text("old")
    disk = Recorder(root)
    with disk.recorded(), folder_written_aside(root / "result") as aside:
        (aside / "x").write_text("new")
    for number, survivors, image, _ in disk.images():
        again = tmp_path / f"{number}-{survivors}"
        write_image(image, again)
        with pytest.raises(KeyError), folder_written_aside(again / "result"):
            raise KeyError
        assert files(again) in ({"result/x": b"old"}, {"result/x": b"new"}), (number, survivors)


# Stores


def check_stores(disk, tmp_path, old, new, make):
    """Each image holds the old store, the new one, or none if there was none; making it again gives the new one."""
    count = 0
    for number, survivors, image, is_new in disk.images():
        if number == len(disk.moments) - 1:
            assert (image.get("w/index.json") or b"").count(b"crc32") == len(new), "finished, and not on the disk"
        if not is_new:
            continue
        again = tmp_path / "again"
        shutil.rmtree(again, ignore_errors=True)
        write_image(image, again)
        where = f"after {number} ({disk.moments[number].operation}), {survivors}"
        out = again / "w"
        count += 1
        if (out / INDEX).exists():
            videos = open_store(out)
            assert videos.problems == [], where
            assert damaged(out, videos) == [], where
            assert {v.name: v.frames.tobytes() for v in videos} in (old, new), where
        else:
            assert not old, where
        make(out)
        assert files(out) == files(tmp_path / "straight"), where
    return count


def frames_of(folder):
    return {video.name: video.frames.tobytes() for video in open_store(folder)}


@pytest.mark.parametrize("before", [0, 1])
def test_generate(tmp_path, before):
    """From nothing, and a finished store that grows."""
    out = tmp_path / "disk/w"
    out.parent.mkdir()
    if before:
        generate(SPRITES, {"train": before}, out, workers=1)
    old = frames_of(out) if before else None
    disk = Recorder(tmp_path / "disk")
    with disk.recorded():
        generate(SPRITES, {"train": 2}, out, workers=1)
    assert disk.operations > 12
    generate(SPRITES, {"train": 2}, tmp_path / "straight", workers=1)
    new = frames_of(tmp_path / "straight")
    make = lambda folder: generate(SPRITES, {"train": 2}, folder, workers=1)  # noqa: E731
    assert check_stores(disk, tmp_path, old, new, make) > 8


def test_prepare(tmp_path):
    """One video changes and another comes; the old store stays whole until the new one is."""

    def picture(name, value):
        for frame in range(2):
            path = tmp_path / f"in/{name}/{frame}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Picture.fromarray(np.full((8, 8, 3), value + frame, np.uint8)).save(path)

    picture("a", 10)
    picture("b", 20)
    out = tmp_path / "disk/w"
    make = lambda folder: prepare(tmp_path / "in", folder, PrepareConfig(), 1)  # noqa: E731
    make(out)
    old = frames_of(out)
    time.sleep(0.01)
    picture("a", 50)
    picture("c", 30)
    shutil.copytree(out, tmp_path / "straight")
    make(tmp_path / "straight")
    new = frames_of(tmp_path / "straight")
    assert set(new) == {"a", "b", "c"}
    assert new["a"] != old["a"]
    disk = Recorder(tmp_path / "disk")
    with disk.recorded():
        make(out)
    assert disk.operations > 12
    assert check_stores(disk, tmp_path, old, new, make) > 8


# Training

REPLAY = ReplayConfig(videos=2, length=6, frames_per_update=1, frames_before_first_update=4)


def training_run(world, out, updates, resume=False):
    made = reduced_experiment(experiments.get("vonet-sprites"))
    made = replace(made, training=replace(made.training, batch=2, segment=2, replay=REPLAY))
    options = TrainOptions(updates=updates, evaluate_every=updates, log_every=1, save_minutes=1e-6, pictures=1)
    return Run(made, world, out, options, Processes(), resume)


def test_training(tmp_path, capsys):
    world = tmp_path / "world"
    generate(SpritesConfig(size=32, frames=4), {"train": 2}, world, workers=1)
    root, updates = tmp_path / "disk", 3
    out = root / "run"
    root.mkdir()
    disk, saved = Recorder(root), []
    with disk.recorded():
        run = training_run(world, out, updates)
        save = run.save

        def saving():
            save()
            saved.append((len(disk.moments), run.training.update))

        run.save = saving
        run.learn({"asked": False})
    assert disk.operations > 60
    assert [update for _, update in saved] == [1, 2, 3]
    finals, resumed, count = disk.finals(), {}, 0
    for number, survivors, image, is_new in disk.images():
        where = f"after {number} ({disk.moments[number].operation}), {survivors}"
        confirmed = max([update for moment, update in saved if moment <= number], default=0)
        assert json.loads(image.get("run/checkpoints/latest.json", b'{"update": 0}'))["update"] >= confirmed, where
        if not is_new:
            continue
        count += 1
        again = tmp_path / "again"
        shutil.rmtree(again, ignore_errors=True)
        write_image(image, again)
        found = checkpoint.latest(again / "run")
        if found is None:
            assert not (again / "run" / weights.WEIGHTS).exists(), where
        else:
            named = [
                f"{update:08d}-0-of-1.safetensors" for update in {found["update"], (found["good"] or found)["update"]}
            ]
            for name in [*(f"checkpoints/{name}" for name in named), "checkpoints/latest.json"]:
                assert (f"run/{name}", image[f"run/{name}"]) in finals, f"{name} {where}"
            assert checkpoint.load(again / "run", Processes())[0][1]["update"] == found["update"], where
            logged = [entry["update"] for entry in logs.read(again / "run/log.jsonl") if "losses" in entry]
            assert logged[: found["update"]] == list(range(1, found["update"] + 1)), where
        for name in (weights.WEIGHTS, weights.CONFIG):
            content = image.get(f"run/{name}")
            assert content is None or (f"run/{name}", content) in finals, f"{name} {where}"
        state = found and found["update"], image.get(f"run/{weights.WEIGHTS}"), survivors == "torn"
        if state not in resumed:
            resumed[state] = where
            training_run(world, again / "run", updates, found is not None).learn({"asked": False})
            same = load_file(again / "run" / weights.WEIGHTS), load_file(out / weights.WEIGHTS)
            assert all(np.array_equal(same[0][name], tensor) for name, tensor in same[1].items()), where
            assert not list(again.rglob("*.part")), where
    assert count > 50
    assert len(resumed) >= 6


def test_weights_have_the_mode_of_any_new_file(tmp_path):
    for umask in (0o022, 0o027, 0o077):
        before = os.umask(umask)
        try:
            save_tensors(tmp_path / "weights", {"x": torch.zeros(2)}, {})
            (tmp_path / f"{umask}").write_text("")
        finally:
            os.umask(before)
        assert (tmp_path / "weights").stat().st_mode == (tmp_path / f"{umask}").stat().st_mode
