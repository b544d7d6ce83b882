"""The store: exact, readable in any range and from any process, never half there; and `vonet generate` on top of it."""

import errno
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import vonet.data
from vonet.data import store as store_module
from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.store import Store, describe, open_store, run_lengths, write_video
from vonet.errors import BadInput
from vonet.writing import DiscRefusal, disc_refusals, written_aside

MADE_BY = {"command": "test"}
TINY = WorldConfig("A", size=16, frames=3)


def make(out, videos, made_by=MADE_BY):
    """A store of (frames, ids) pairs."""
    with Store(out, made_by) as store:
        for number, (frames, ids) in enumerate(videos):
            about = {"name": f"video {number}", "made_by": store.made_by, "note": "é"}
            write_video(store.path("train", number), [(frames, ids)], about, {"places": np.arange(6.0).reshape(2, 3)})
        store.finish([store.entry("train", number) for number in range(len(videos))])
    return open_store(out)


def random_video(frames=7, size=(10, 12), largest=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (frames, *size, 3), np.uint8), rng.integers(0, largest + 1, (frames, *size))


def content(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# Exactness


@pytest.mark.parametrize("largest", [3, 255, 256, 70_000])
def test_what_goes_in_comes_out(tmp_path, largest):
    frames, ids = random_video(largest=largest)
    ids[0, 0, 0] = largest
    (video,) = make(tmp_path / "out", [(frames, ids)])
    assert np.array_equal(video.frames, frames)
    assert np.array_equal(video.ids, ids)
    assert video.name == "video 0"
    assert (len(video), video.size, video.has_ids) == (7, (10, 12), True)
    assert video.annotations["note"] == "é"
    assert np.array_equal(video.annotations["places"], np.arange(6.0).reshape(2, 3))


def test_any_range_is_the_same_as_a_slice_and_reads_no_more(tmp_path, monkeypatch):
    frames, ids = random_video()
    videos = make(tmp_path / "out", [(frames, ids)])
    for start in range(7):
        for stop in range(start + 1, 8):
            video = videos[0]
            assert np.array_equal(video.read(start, stop), frames[start:stop])
            assert np.array_equal(video.read_ids(start, stop), ids[start:stop])
    counted = []
    original = np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *a, **k: counted.append(a[2]) or original(*a, **k))
    videos[0].read(2, 4)
    assert counted == [2 * 10 * 12 * 3]


def test_pieces_join_to_the_whole_and_may_come_in_pieces(tmp_path):
    frames, ids = random_video()
    pieces = [(frames[:3], ids[:3]), (frames[3:4], ids[3:4]), (frames[4:], ids[4:])]
    write_video(tmp_path / "a.npz", pieces, {"name": "x", "made_by": {}})
    write_video(tmp_path / "b.npz", [(frames, ids)], {"name": "x", "made_by": {}})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    video = make(tmp_path / "out", [(frames, ids)])[0]
    parts = list(video.pieces(3))
    assert [len(f) for f, _ in parts] == [3, 3, 1]
    assert np.array_equal(np.concatenate([i for _, i in parts]), ids)


def test_numpy_alone_can_read_it(tmp_path):
    frames, ids = random_video()
    make(tmp_path / "out", [(frames, ids)])
    with np.load(tmp_path / "out/train/000000.npz") as stored:
        assert np.array_equal(stored["frames"], frames)
        again = np.repeat(stored["ids_values"], stored["ids_lengths"]).reshape(stored["frames"].shape[:3])
        assert np.array_equal(again, ids)


def test_run_lengths_of_a_drawn_case():
    ids = np.array([[[1, 1], [1, 2]], [[0, 0], [0, 0]]])
    values, lengths, counts = run_lengths(ids)
    assert (values.tolist(), lengths.tolist(), counts.tolist()) == ([1, 2, 0], [3, 1, 4], [2, 1])


def test_a_video_without_ids_has_none(tmp_path):
    frames, _ = random_video()
    video = make(tmp_path / "out", [(frames, None)])[0]
    assert not video.has_ids
    assert video.ids is None


def test_a_video_without_frames_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(BadInput, match="no frames"):
        write_video(tmp_path / "x.npz", [], {"name": "x", "made_by": {}})
    assert list(tmp_path.iterdir()) == []


# A set of videos


def test_splits_slices_and_fresh_videos(tmp_path):
    generate(TINY, {"train": 3, "validation": 2}, tmp_path / "w", workers=1)
    videos = vonet.data.open(tmp_path / "w")
    assert videos.splits == {"train": 3, "validation": 2}
    assert [v.name for v in vonet.data.open(str(tmp_path / "w"), split="validation")] == [
        "A-validation-000000",
        "A-validation-000001",
    ]
    assert [v.name for v in videos[1:3]] == ["A-train-000001", "A-train-000002"]
    assert videos[-1].name == "A-validation-000001"
    first = videos[0]
    assert first.frames is first.frames
    assert "frames" not in vars(videos[0])
    with pytest.raises(BadInput, match=r"has no split 'test'; it has 'train' \(3 videos\), 'validation' \(2 videos\)"):
        vonet.data.open(tmp_path / "w", split="test")
    with pytest.raises(BadInput, match="frames 2 to 9 of A-train-000000 were asked for; it has 3"):
        first.read(2, 9)
    with pytest.raises(IndexError):
        videos[5]


def test_a_folder_of_stores_asks_for_one_of_them(tmp_path):
    for name in ("a", "b"):
        make(tmp_path / name, [random_video()])
    with pytest.raises(BadInput, match=r"holds stores: point at one of them \(.*a, .*b\)"):
        vonet.data.open(tmp_path)


def _checksum(folder):
    return sum(int(video.read(1, 3).sum()) for video in open_store(folder))


def test_many_processes_read_the_same(tmp_path):
    videos = [random_video(seed=seed) for seed in range(4)]
    make(tmp_path / "out", videos)
    expected = sum(int(frames[1:3].sum()) for frames, _ in videos)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_checksum, [tmp_path / "out"] * 4) == [expected] * 4


# Never half there


def test_an_unfinished_store_is_not_read(tmp_path):
    with Store(tmp_path / "out", MADE_BY) as store:
        frames, ids = random_video()
        write_video(store.path("train", 0), [(frames, ids)], {"name": "x", "made_by": MADE_BY})
    with pytest.raises(BadInput, match="never finished: run the command that made it again"):
        vonet.data.open(tmp_path / "out")


def test_damage_is_found(tmp_path):
    make(tmp_path / "out", [random_video(seed=seed) for seed in range(4)])
    files = sorted((tmp_path / "out/train").iterdir())
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-50])
    flipped = bytearray(files[2].read_bytes())
    flipped[400] ^= 1
    files[2].write_bytes(flipped)
    videos = open_store(tmp_path / "out")
    assert [v.name for v in videos] == ["video 2", "video 3"]
    assert len(videos.problems) == 2
    assert "000000.npz is missing" in videos.problems[0]
    assert "bytes instead of" in videos.problems[1]
    (found,) = store_module.damaged(tmp_path / "out", videos)
    assert "000002.npz is missing or damaged" in found


def test_a_file_cut_anywhere_is_never_taken_for_whole(tmp_path):
    make(tmp_path / "out", [random_video()])
    path = tmp_path / "out/train/000000.npz"
    whole = path.read_bytes()
    assert describe(path) is not None
    for cut in random.Random(0).sample(range(len(whole)), 40):
        path.write_bytes(whole[:cut])
        assert describe(path) is None
        with pytest.raises(BadInput, match=r"has no split|missing or damaged|bytes instead of|can be read"):
            vonet.data.open(tmp_path / "out", split="train")


def test_every_flipped_byte_is_found_by_describe(tmp_path):
    make(tmp_path / "out", [random_video(frames=2)])
    path = tmp_path / "out/train/000000.npz"
    whole, good = path.read_bytes(), describe(path)
    for at in random.Random(1).sample(range(len(whole)), 200):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        path.write_bytes(flipped)
        found = describe(path)
        assert found is None or found["crc32"] != good["crc32"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other", "version": 1}', '{"format": "vonet-store"}'])
def test_a_damaged_index_is_said_and_repaired(tmp_path, text):
    generate(TINY, {"train": 2}, tmp_path / "w", workers=1)
    before = content(tmp_path / "w")
    (tmp_path / "w/index.json").write_text(text)
    with pytest.raises(BadInput, match=r"damaged|version"):
        vonet.data.open(tmp_path / "w")
    generate(TINY, {"train": 2}, tmp_path / "w", workers=1)
    assert content(tmp_path / "w") == before


def test_another_version_is_refused(tmp_path):
    make(tmp_path / "out", [random_video()])
    index = json.loads((tmp_path / "out/index.json").read_text())
    (tmp_path / "out/index.json").write_text(json.dumps(index | {"version": 99}))
    with pytest.raises(BadInput, match="is of version 99; this vonet reads version 1"):
        vonet.data.open(tmp_path / "out")


def test_pickles_inside_a_store_are_never_loaded(tmp_path):
    make(tmp_path / "out", [random_video()])
    path = tmp_path / "out/train/000000.npz"
    with zipfile.ZipFile(path, "a") as archive, archive.open("evil.npy", "w") as member:
        np.lib.format.write_array(member, np.array([{}], object), allow_pickle=True)
    index = json.loads((tmp_path / "out/index.json").read_text())
    index["videos"][0]["bytes"] = path.stat().st_size
    (tmp_path / "out/index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="damaged"):
        _ = open_store(tmp_path / "out")[0].annotations


# Discs that refuse


def test_a_full_disc_is_said_and_leaves_nothing_half(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    target = tmp_path / "x.txt"

    def write():
        with written_aside(target) as aside:
            aside.write_text("begun")
            with open("/dev/full", "w") as full:
                full.write("x" * 100_000)

    with pytest.raises(DiscRefusal, match="no space left on the disc"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_generate_on_a_disc_that_fills_up_goes_on_later(tmp_path, monkeypatch):
    generate(TINY, {"train": 3}, tmp_path / "whole", workers=1)
    original, calls = zipfile.ZipFile.writestr, []

    def full(*arguments, **options):
        calls.append(1)
        if len(calls) > 16:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments, **options)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(BadInput, match=r"no space left on the disc while writing .*run the same command again"):
        generate(TINY, {"train": 3}, tmp_path / "w", workers=1)
    assert len(list((tmp_path / "w/train").iterdir())) == 1
    with pytest.raises(BadInput, match="never finished"):
        vonet.data.open(tmp_path / "w")
    monkeypatch.undo()
    generate(TINY, {"train": 3}, tmp_path / "w", workers=1)
    assert content(tmp_path / "w") == content(tmp_path / "whole")


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_read_only_places_are_said(tmp_path, code):
    with pytest.raises(DiscRefusal, match=r"cannot be written .*choose another place"), disc_refusals(tmp_path):
        raise OSError(code, os.strerror(code))


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadInput, match="in the way"):
        generate(TINY, {"train": 1}, tmp_path / "out", workers=1)
    with pytest.raises(BadInput, match="in the way"):
        generate(TINY, {"train": 1}, tmp_path / "out/below", workers=1)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(BadInput, match="not empty and not a store"):
        generate(TINY, {"train": 1}, tmp_path, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# Going on


@pytest.mark.parametrize("level", ["C", "E"])
def test_workers_never_change_a_video_of_any_kind(tmp_path, level):
    for workers in (1, 2):
        generate(WorldConfig(level, size=16, frames=2), {"train": 3}, tmp_path / str(workers), workers)
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_workers_never_change_a_video_and_a_second_run_does_nothing(tmp_path):
    for workers in (1, 2):
        generate(TINY, {"train": 5, "test": 1}, tmp_path / str(workers), workers)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "1").rglob("*.npz")}
    generate(TINY, {"train": 5, "test": 1}, tmp_path / "1", workers=1)
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "1").rglob("*.npz")}


def test_a_store_grows_but_does_not_shrink_nor_change(tmp_path):
    generate(TINY, {"train": 4}, tmp_path / "large", workers=1)
    generate(TINY, {"train": 2}, tmp_path / "w", workers=1)
    generate(TINY, {"train": 4}, tmp_path / "w", workers=1)
    before = content(tmp_path / "w")
    assert before == content(tmp_path / "large")
    with pytest.raises(BadInput, match="has 4 videos and fewer were asked for"):
        generate(TINY, {"train": 3}, tmp_path / "w", workers=1)
    with pytest.raises(BadInput, match="holds other videos: seed 0 instead of 1; choose another folder"):
        generate(WorldConfig("A", size=16, frames=3, seed=1), {"train": 4}, tmp_path / "w", workers=1)
    assert content(tmp_path / "w") == before
    assert len(vonet.data.open(tmp_path / "w")) == 4


def test_lost_and_damaged_videos_are_made_again(tmp_path):
    generate(TINY, {"train": 3}, tmp_path / "w", workers=1)
    before = content(tmp_path / "w")
    (tmp_path / "w/train/000001.npz").unlink()
    (tmp_path / "w/train/000002.npz").write_bytes(b"nonsense")
    generate(TINY, {"train": 3}, tmp_path / "w", workers=1)
    assert content(tmp_path / "w") == before


def test_videos_of_another_world_are_not_taken_over(tmp_path):
    """Even when nothing but the videos themselves says what they are."""
    generate(TINY, {"train": 2}, tmp_path / "w", workers=1)
    (tmp_path / "w/index.json").write_text("")
    other = WorldConfig("B", size=16, frames=3)
    generate(other, {"train": 2}, tmp_path / "w", workers=1)
    generate(other, {"train": 2}, tmp_path / "fresh", workers=1)
    assert content(tmp_path / "w") == content(tmp_path / "fresh")


def test_what_is_refused_leaves_no_trace(tmp_path):
    with pytest.raises(BadInput, match="0 workers"):
        generate(TINY, {"train": 1}, tmp_path / "w", workers=0)
    assert not (tmp_path / "w").exists()
    generate(TINY, {"train": 2}, tmp_path / "w", workers=1)
    before = content(tmp_path / "w")
    with pytest.raises(BadInput, match="fewer"):
        generate(TINY, {"train": 1}, tmp_path / "w", workers=1)
    with pytest.raises(BadInput, match="holds other videos: those of vonet generate"):
        Store(tmp_path / "w", {"command": "prepare"}).__enter__()
    assert content(tmp_path / "w") == before


def test_a_place_that_cannot_be_is_said():
    with pytest.raises(BadInput, match="cannot be written"):
        generate(TINY, {"train": 1}, Path("/proc/nowhere"), workers=1)
    with pytest.raises(BadInput, match=r"cannot be written .*File name too long"):
        generate(TINY, {"train": 1}, Path("x" * 300), workers=1)


def test_ids_that_cannot_be_are_refused(tmp_path):
    frames, ids = random_video()
    for wrong in (-1, 2**33):
        ids[0, 0, 0] = wrong
        with pytest.raises(BadInput, match="expected 0"):
            write_video(tmp_path / "x.npz", [(frames, ids)], {"name": "x", "made_by": {}})
    assert list(tmp_path.iterdir()) == []


def test_two_writers_are_kept_apart(tmp_path):
    with Store(tmp_path / "w", MADE_BY), pytest.raises(BadInput, match="another process is writing"):
        Store(tmp_path / "w", MADE_BY).__enter__()


COMMAND = [sys.executable, "-m", "vonet", "generate", "A", "--size", "16", "--frames", "24", "--workers", "2"]


def test_killed_at_random_moments_it_loses_nothing(tmp_path):
    arguments = [*COMMAND, "--train", "20", "--validation", "2"]
    subprocess.run([*arguments, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    dice, kills, done, kept = random.Random(0), 0, False, [0]
    while not done:
        process = subprocess.Popen(
            [*arguments, "--out", str(tmp_path / "w")], stderr=subprocess.DEVNULL, start_new_session=True
        )
        enough = kept[-1] + dice.randint(1, 5)  # killed by what it has done, not by the clock of a fast or slow machine
        while process.poll() is None and len(list((tmp_path / "w").rglob("*.npz"))) < enough:
            time.sleep(0.005)
        done = process.poll() is not None
        if done or dice.random() < 0.5:
            process.send_signal(signal.SIGKILL)  # the workers must notice by themselves
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += not done
        kept.append(sum(describe(path) is not None for path in (tmp_path / "w").rglob("*.npz")))
        if not (tmp_path / "w/index.json").exists():
            with pytest.raises(BadInput):
                vonet.data.open(tmp_path / "w")
    subprocess.run([*arguments, "--out", str(tmp_path / "w")], check=True, capture_output=True)
    assert kills >= 2
    assert kept == sorted(kept)
    assert content(tmp_path / "w") == content(tmp_path / "whole")


def test_ctrl_c_ends_quietly_and_goes_on_later(tmp_path):
    arguments = [*COMMAND, "--train", "400", "--validation", "0", "--out", str(tmp_path / "w")]
    process = in_own_session(arguments)
    while not list((tmp_path / "w").rglob("*.npz")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "vonet: stopped" in errors
    assert "Traceback" not in errors, errors
    assert not list((tmp_path / "w").rglob("*.part"))
    assert none_is_left(process.pid)
    done = len(list((tmp_path / "w").rglob("*.npz")))
    again = subprocess.run([*arguments, "--train", str(done + 1)], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert len(vonet.data.open(tmp_path / "w")) == done + 1


def in_own_session(arguments):
    """Started as a terminal starts it: a process group of its own, in which Ctrl-C reaches everyone."""
    return subprocess.Popen(
        arguments, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_take_ctrl_c_again
    )


def _take_ctrl_c_again():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell runs us in the background


def of_session(session):
    """The processes of a session that are not dead."""
    listed = subprocess.run(["ps", "-ww", "-s", str(session), "-o", "stat=,args="], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]


def none_is_left(session):
    """multiprocessing's own helper ends a moment after its parent."""
    end = time.monotonic() + 5
    while of_session(session) and time.monotonic() < end:
        time.sleep(0.02)
    return not of_session(session)


@pytest.mark.parametrize("gap", [0.05, 0.5, 1.5])
def test_ctrl_c_twice_leaves_at_once(tmp_path, gap):
    """Videos that take seconds, so that the first Ctrl-C has something to wait for."""
    large = ["E", "--size", "128", "--frames", "96", "--train", "40", "--validation", "0", "--workers", "2"]
    out = tmp_path / "w"
    process = in_own_session([sys.executable, "-m", "vonet", "generate", *large, "--out", str(out)])
    end = time.monotonic() + 200
    while sum("multiprocessing.spawn" in line for line in of_session(process.pid)) < 2:
        assert process.poll() is None
        assert time.monotonic() < end, of_session(process.pid)
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(gap)
    with suppress(ProcessLookupError):  # the first may have come before any video was begun: then it has ended
        os.killpg(process.pid, signal.SIGINT)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - begin < 10
    assert process.returncode == 130, errors
    assert "vonet: stopped" in errors
    assert "Traceback" not in errors, errors
    assert none_is_left(process.pid)
    assert all(describe(path) is not None for path in out.rglob("*.npz"))
    assert not list(out.rglob("*.part"))
