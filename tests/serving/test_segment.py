"""`vonet.segment` and `vonet segment`: frames of any kind in, objects out, in every format; and what may go wrong."""

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import vonet
from tests.data import layouts
from tests.reduced import reduced_experiment
from tests.serving.small import pictures, plain_mask, save_weights, turn_by_flag, write_video
from vonet import cli, experiments
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.experiments import weights
from vonet.interface import Clip, EmptyState, StepOutput
from vonet.serving.objects import ObjectRule
from vonet.serving.segment import _folder_names, segment_to_files
from vonet.serving.segmenter import Segmenter


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_weights(tmp_path_factory.mktemp("weights") / "tiny")


@pytest.fixture(scope="module")
def model(tiny):
    return weights.load(tiny)[0]


def run(monkeypatch, *arguments):
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as end:
        return end.code or 0
    return 0


def read_masks(folder):
    return np.stack([np.asarray(Image.open(path)) for path in sorted((folder / "masks").iterdir())])


def read_overlay(folder):
    import av

    with av.open(str(folder / "overlay.mp4")) as container:
        return [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


# Frames


def test_streaming_is_what_the_model_says_of_the_whole_video(model):
    frames = pictures(5, 32, 32)
    found = list(vonet.segment(ArrayVideo("walk", frames), model, seed=3))
    clip = Clip(torch.from_numpy(frames).permute(0, 3, 1, 2)[None].float() / 255)
    state = model.initial_state(1, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        masks = model.unroll(clip, state).masks[0].numpy()
    for t, frame in enumerate(found):
        np.testing.assert_allclose(frame.masks, masks[t], atol=1e-4)
        best = frame.masks.argmax(axis=0) + 1
        sure = frame.masks.max(axis=0) > 0.3
        assert (frame.ids == np.where(sure, best, 0)).mean() > 0.99  # rounding decides between equals
        assert [track.id for track in frame.tracks] == [i for i in np.unique(frame.ids) if i]
        assert [track.area for track in frame.tracks] == [(frame.ids == track.id).sum() for track in frame.tracks]
        assert (frame.video, frame.number, frame.seconds) == ("walk", t, t / 12)
        np.testing.assert_array_equal(frame.pixels, frames[t])
    assert len(np.unique([frame.ids for frame in found])) > 1


def test_a_segmenter_is_fed_frame_by_frame(model):
    """The same frames give the same objects, whoever else is segmented meanwhile; sizes may change on the way."""
    frames = pictures(4)
    expected = [frame.ids for frame in vonet.segment(ArrayVideo("walk", frames), model, slots=6)]
    one, other = Segmenter(model, slots=6), Segmenter(model, slots=6, seed=1)
    for t, pixels in enumerate(frames):
        np.testing.assert_array_equal(one(pixels).ids, expected[t])
        assert other(pixels).masks.shape == (6, 48, 64)
    assert one.model is other.model is model
    assert one(pictures(1, 30, 20)[0], number=17).ids.shape == (30, 20)
    assert max(row.last for row in one.tracks.table()) == 17
    for wrong, words in [
        (frames, r"a frame is uint8 of shape \(4, 48, 64, 3\); expected"),
        (frames[0] / 255, "a frame is float64"),
        (frames[0, :, :0], "it must not be empty"),
        ([1], "a frame is list"),
    ]:
        with pytest.raises(BadInput, match=words):
            one(wrong)


# Files

KEEP = ("--background", "keep", "--min-area", 0, "--min-frames", 1)
"""Every segment, as the model gave it."""


def test_all_files_say_the_same(monkeypatch, tmp_path, tiny, capsys):
    path = write_video(tmp_path / "in" / "walk.mkv", times=[0, 1, 2, 7, 8, 9])
    out = tmp_path / "out" / "walk"
    given = ("segment", path, "--weights", tiny, "--out", out.parent, "--write", "all", "--start", 1, "--json", *KEEP)
    assert run(monkeypatch, *given) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told[0]["video"], told[0]["frames"], told[0]["complete"]) == ("walk", 5, True)
    assert told[0]["frames_per_second"] > 0
    about = json.loads((out / "segment.json").read_text())
    assert (about["weights"], about["frames"], about["size"]) == (str(tiny), 5, [48, 64])
    stored = np.load(out / "ids.npz")
    ids = stored["ids"]
    expected = np.stack([frame.ids for frame in vonet.segment(path, tiny, start=1)])
    np.testing.assert_array_equal(ids, expected)
    assert len(np.unique(ids)) > 2
    np.testing.assert_array_equal(stored["numbers"], [1, 2, 3, 4, 5])
    np.testing.assert_allclose(stored["seconds"], [0.1, 0.2, 0.7, 0.8, 0.9])

    assert sorted(p.name for p in (out / "masks").iterdir()) == [f"0000{t}.png" for t in range(1, 6)]
    np.testing.assert_array_equal(read_masks(out), ids)
    palette = Image.open(out / "masks" / "00001.png").getpalette()
    assert palette[:15] == [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0, 0, 0, 128]  # as DAVIS begins

    seen = {(t + 1, int(i)) for t in range(5) for i in np.unique(ids[t]) if i}
    coco = json.loads((out / "coco.json").read_text())
    assert [image["id"] for image in coco["images"]] == [1, 2, 3, 4, 5]
    assert {(a["image_id"], a["track_id"]) for a in coco["annotations"]} == seen
    for annotation in coco["annotations"]:
        mask = ids[annotation["image_id"] - 1] == annotation["track_id"]
        np.testing.assert_array_equal(plain_mask(annotation["segmentation"]), mask)
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        box = [columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1]
        assert (annotation["bbox"], annotation["area"]) == (box, mask.sum())
    boxes = {}
    for a in coco["annotations"]:
        left, top, width, height = a["bbox"]
        boxes[a["image_id"] + 1, a["track_id"]] = [left + 1, top + 1, width, height]  # MOT counts from 1
    with (out / "mot.csv").open() as file:
        lines = [list(map(float, line)) for line in csv.reader(file)]
    assert {(line[0], line[1]): line[2:6] for line in lines} == boxes
    assert all(0 < line[6] <= 1 and line[7:] == [-1, -1, -1] for line in lines)

    youtube = json.loads((out / "ytvis.json").read_text())
    assert youtube["videos"][0]["length"] == 5
    assert youtube["videos"][0]["file_names"] == [image["file_name"] for image in coco["images"]]
    assert {a["id"] for a in youtube["annotations"]} == {i for _, i in seen}
    for annotation in youtube["annotations"]:
        for t, (mask, box, area) in enumerate(
            zip(annotation["segmentations"], annotation["bboxes"], annotation["areas"], strict=True)
        ):
            there = ids[t] == annotation["id"]
            assert (mask is None) == (box is None) == (area is None) == (not there.any())
            if mask is not None:
                np.testing.assert_array_equal(plain_mask(mask), there)

    with (out / "tracks.csv").open() as file:
        rows = {int(row["id"]): row for row in csv.DictReader(file)}
    assert {i: int(row["frames"]) for i, row in rows.items()} == {
        i: sum(one == i for _, one in seen) for i in {i for _, i in seen}
    }
    overlay = read_overlay(out)
    assert [time for time, _ in overlay] == pytest.approx([0, 0.1, 0.6, 0.7, 0.8], abs=1e-3)
    assert overlay[0][1].shape == (192, 256, 3)  # enlarged to be seen


def test_a_set_of_videos_and_frames_of_a_folder(monkeypatch, tmp_path, tiny, capsys):
    """Names that are the same are told apart; frames keep their names, so that DAVIS finds masks for them."""
    for folder in ("a", "b"):
        (tmp_path / folder / "walk").mkdir(parents=True)
        for t, frame in enumerate(pictures(2)):
            Image.fromarray(frame).save(tmp_path / folder / "walk" / f"shot{9 + t}.png")
    inputs = [tmp_path / "a", tmp_path / "b"]
    given = ("--weights", tiny, "--write", "masks,mot", "--out", tmp_path / "out")
    assert run(monkeypatch, "segment", *inputs, *given) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["walk", "walk-2"]
    assert sorted(path.name for path in (tmp_path / "out" / "walk" / "masks").iterdir()) == ["shot10.png", "shot9.png"]
    said = capsys.readouterr().out
    assert said.count("2 frames of 64x48 in") == 2
    assert "frames per second (reading" in said


# What may go wrong, and what only looks so


def text(folder):
    (folder / "notes.txt").write_text("hello\n" * 100)
    return [folder / "notes.txt"]


def empty(folder):
    (folder / "a.mp4").write_bytes(b"")
    return [folder / "a.mp4"]


def cut(folder):
    path = write_video(folder / "a.mp4")
    path.write_bytes(path.read_bytes()[:-300])  # where it says what lies where
    return [path]


def cut_but_readable(folder):
    path = write_video(folder / "walk.mkv", pictures(40), options={"g": "5", "bf": "0"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return [path]


def sound(folder):
    with wave.open(str(folder / "song.wav"), "w") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000))
    return [folder / "song.wav"]


def no_frames(folder):
    layouts.write_video(folder / "a.avi", "mpeg4", frames=0)
    return [folder / "a.avi"]


def good(folder, *more):
    return [write_video(folder / "walk.mp4"), *more]


def other_results(folder):
    (folder / "out" / "walk").mkdir(parents=True)
    (folder / "out" / "walk" / "diary.txt").write_text("dear diary")
    return good(folder, "--overwrite")


def results_there(folder):
    (folder / "out" / "walk").mkdir(parents=True)
    (folder / "out" / "walk" / "segment.json").write_text("{}")
    return good(folder)


def not_safetensors(folder):
    (folder / "w.safetensors").write_bytes(b"PK\x03\x04 a pickle, perhaps")
    return good(folder, "--weights", folder / "w.safetensors")


def other_version(folder):
    saved = save_weights(folder / "old")
    told = json.loads((saved / "config.json").read_text())
    told["model"]["gadget"] = 7
    save_file(
        load_file(saved / "model.safetensors"), folder / "new.safetensors", {"vonet": json.dumps(told), "format": "1"}
    )
    return good(folder, "--weights", folder / "new.safetensors")


def one_frame(folder):
    return [write_video(folder / "walk.mp4", pictures(1))]


def huge(folder):
    return [write_video(folder / "walk.avi", [np.zeros((4320, 7680, 3), np.uint8)], "mjpeg", "yuvj420p")]


def unsteady(folder):
    return [write_video(folder / "walk.mkv", times=[0, 1, 2, 10, 11, 30])]


def rotated(folder):
    return [turn_by_flag(write_video(folder / "walk.mp4"))]


def grey(folder):
    return [write_video(folder / "walk.mkv", codec="ffv1", pixels="gray")]


def see_through(folder):
    frames = np.concatenate([pictures(), np.full((6, 48, 64, 1), 90, np.uint8)], axis=-1)
    return [write_video(folder / "walk.mov", frames, codec="qtrle", pixels="argb")]


def ten_bits(folder):
    return [write_video(folder / "walk.mkv", codec="ffv1", pixels="yuv420p10le")]


def odd(folder):
    return [write_video(folder / "walk.gif", pictures(3, 47, 63), codec="gif", pixels="rgb8")]


def picture(folder):
    Image.fromarray(pictures(1)[0]).save(folder / "walk.png")
    return [folder / "walk.png"]


def pipe(folder):
    os.mkfifo(folder / "a.mp4")
    return [folder / "a.mp4"]


REFUSED = {
    "a pipe": (pipe, "a.mp4 is a pipe, but videos are read twice: save it in a file, or use vonet.Segmenter"),
    "nothing there": (lambda folder: [folder / "none.mp4"], "there is nothing at"),
    "not a video": (text, "notes.txt has no video in it"),
    "empty": (empty, "a.mp4 is empty; give a video file"),
    "cut short": (cut, "a.mp4 is damaged, cut short or no video"),
    "no frames": (no_frames, "a.avi"),
    "only sound": (sound, "song.wav has no video in it"),
    "other results": (other_results, "walk exists and is not a result of vonet segment: choose another --out"),
    "results there": (results_there, "walk holds a result already: add --overwrite, or choose another --out"),
    "no such weights": (lambda folder: good(folder, "--weights", "none"), "there are no weights at none"),
    "not safetensors": (not_safetensors, "w.safetensors is damaged, or not a file of weights"),
    "other version": (other_version, "with the unknown options gadget). Another version of vonet"),
    "slots": (lambda folder: good(folder, "--slots", 0), "0 slots were asked for"),
    "every": (lambda folder: good(folder, "--every", 0), "every is 0; it must be 1"),
    "start": (lambda folder: good(folder, "--start", "soon"), "start is 'soon'; give a frame"),
    "late": (lambda folder: good(folder, "--start", "99"), "walk ends before the start that was asked for: it has 6"),
    "fit": (
        lambda folder: good(folder, "--fit", "pad"),
        "fit is 'pad'; expected one of 'stretch', 'crop', 'letterbox'",
    ),
    "background": (
        lambda folder: good(folder, "--background", "hide"),
        "background is 'hide'; expected one of 'drop', 'k",
    ),
    "share": (lambda folder: good(folder, "--min-area", "200%"), "min-area is '200%'; give pixels (200)"),
    "min-area": (lambda folder: good(folder, "--min-area", "tiny"), "min-area is 'tiny'; give pixels (200)"),
    "min-frames": (lambda folder: good(folder, "--min-frames", 0), "min-frames is 0; it must be 1 (no limit)"),
    "write": (lambda folder: good(folder, "--write", "movie"), "there is no output 'movie'; there are overlay,"),
    "sure": (
        lambda folder: good(folder, "--min-probability", 30),
        "min_probability is 30.0; it must be a probability",
    ),
}
TAKEN = {
    "one frame": (one_frame, (1, 48, 64)),
    "8K": (huge, (1, 4320, 7680)),
    "unsteady rate": (unsteady, (6, 48, 64)),
    "rotated": (rotated, (6, 64, 48)),
    "grey": (grey, (6, 48, 64)),
    "alpha": (see_through, (6, 48, 64)),
    "10 bits": (ten_bits, (6, 48, 64)),
    "odd sides": (odd, (3, 47, 63)),
    "a picture": (picture, (1, 48, 64)),
}


NOTES = {
    "grey": "vonet: note: walk has no colours, and the weights know videos with colours: expect more mistakes\n",
    "8K": "vonet: note: walk has no colours, and the weights know videos with colours: expect more mistakes\n",
}


@pytest.mark.parametrize("case", [*REFUSED, *TAKEN])
def test_every_input_is_segmented_or_refused_in_a_sentence(monkeypatch, tmp_path, tiny, capfd, case):
    make, expected = {**REFUSED, **TAKEN}[case]
    given = make(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    default = () if "--weights" in given else ("--weights", tiny)
    write = () if "--write" in given else ("--write", "overlay,masks")
    code = run(monkeypatch, "segment", "--out", tmp_path / "out", *default, *write, *given)
    said = capfd.readouterr().err
    if case in REFUSED:
        assert (code, said.count("\n")) == (2, 1), said
        assert said.startswith("vonet: ")
        assert expected in said
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    else:
        assert (code, said) == (0, NOTES.get(case, ""))
        assert read_masks(tmp_path / "out" / "walk").shape == expected
        assert len(read_overlay(tmp_path / "out" / "walk")) == expected[0]


def test_the_flag_of_a_phone_turns_the_picture(tmp_path, model):
    """The bright corner lies at the upper left of the stored pixels and is to be seen at the upper right."""
    path = turn_by_flag(write_video(tmp_path / "a.mp4"))
    shown = next(iter(vonet.segment(path, model))).pixels
    assert shown.shape == (64, 48, 3)
    assert shown[:30, 26:].mean(axis=(0, 1)) == pytest.approx([220, 40, 40], abs=25)
    assert shown[34:, :].mean() < 100


def test_deep_grey_and_transparent_videos_look_as_they_should(tmp_path, model):
    for make, expected in ((ten_bits, [220, 40, 40]), (grey, [93, 93, 93]), (see_through, [220, 40, 40])):
        pixels = next(iter(vonet.segment(make(tmp_path)[0], model))).pixels
        assert pixels[2:20, 2:28].mean(axis=(0, 1)) == pytest.approx(expected, abs=8)


def test_a_damaged_video_is_segmented_as_far_as_it_goes(monkeypatch, tmp_path, tiny, capfd):
    """And the next one after it."""
    given = (*cut_but_readable(tmp_path), *good(tmp_path / "b"))
    more = ("--weights", tiny, "--out", tmp_path / "out", "--write", "masks", "--end", "39")  # which is never reached
    assert run(monkeypatch, "segment", *given, *more) == 2
    said = capfd.readouterr()
    about = json.loads((tmp_path / "out" / "walk" / "segment.json").read_text())
    last = max(track["last_second"] for track in about["tracks"])
    assert said.err == f"vonet: {given[0]} is damaged or cut short: nothing after second {last:.2f} can be decoded\n"
    assert 3 < about["frames"] == len(read_masks(tmp_path / "out" / "walk")) < 40
    assert not about["complete"]
    assert len(read_masks(tmp_path / "out" / "walk-2")) == 6


def test_overwriting_replaces_results_and_nothing_else(monkeypatch, tmp_path, tiny, capsys):
    given = ("segment", *good(tmp_path), "--weights", tiny, "--out", tmp_path / "out", "--write")
    assert run(monkeypatch, *given, "masks") == 0
    assert run(monkeypatch, *given, "mot") == 2
    assert (tmp_path / "out" / "walk" / "masks").exists()
    assert run(monkeypatch, *given, "mot", "--overwrite") == 0
    assert sorted(p.name for p in (tmp_path / "out" / "walk").iterdir()) == ["mot.csv", "segment.json"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["walk"]


def test_results_do_not_become_inputs_and_names_stay_below_the_folder(monkeypatch, tmp_path, tiny, capsys):
    good(tmp_path / "clips")
    assert run(monkeypatch, "segment", tmp_path / "clips", "--weights", tiny, "--out", tmp_path / "clips" / "out") == 2
    assert "out would lie among the videos of" in capsys.readouterr().err
    odd_names = ["../../etc/passwd", "", "a\0b", "/", "a/b", "a-b", "x" * 300]
    names = _folder_names([ArrayVideo(name, pictures(1)) for name in odd_names])
    assert names == ["etc-passwd", "video", "a_b", "video-2", "a-b", "a-b-2", "x" * 70]


def test_without_weights_the_mixture_segments_and_is_named(monkeypatch, tmp_path, capsys):
    given = ("segment", *good(tmp_path), "--write", "mot")
    assert run(monkeypatch, *given, "--out", tmp_path / "default") == 0
    assert capsys.readouterr().err.startswith("vonet: no --weights given, using mixture (no learning)\n")
    assert run(monkeypatch, *given, "--out", tmp_path / "named", "--weights", "mixture") == 0
    assert "no learning" not in capsys.readouterr().err
    default, named = ((tmp_path / out).rglob("mot.csv") for out in ("default", "named"))
    assert next(default).read_text() == next(named).read_text()


def test_a_folder_of_results_called_mixture_does_not_hide_the_method(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = ("segment", *good(tmp_path), "--write", "mot", "--overwrite")
    assert run(monkeypatch, *given, "--weights", "mixture", "--out", "mixture") == 0
    assert run(monkeypatch, *given, "--out", "again") == 0
    save_weights(tmp_path / "mixture")  # but weights of that name come first
    assert weights.load("mixture")[1].name == "vonet-sprites"


def test_shipped_weights_are_found_by_their_name(monkeypatch, tmp_path):
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "pretrained")
    save_weights(tmp_path / "pretrained" / "small")
    assert weights.shipped() == ["small"]
    assert weights.load("small")[1].name == "vonet-sprites"


def test_a_model_that_needs_whole_clips_gets_a_sentence(monkeypatch, tmp_path, capsys):
    experiment = reduced_experiment(experiments.get("simone-laptop-a"))
    weights.save(tmp_path / "simone", experiment.build_model(seed=0), experiment)
    given = ("segment", *good(tmp_path), "--out", tmp_path / "out", "--weights", tmp_path / "simone")
    assert run(monkeypatch, *given) == 2
    assert "SIMONe needs whole clips and cannot follow a video frame by frame" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Labelling(torch.nn.Module):
    """A model with labels of its own, as SCALOR has: in every frame a new object, and numbers that are left out."""

    size, cells, slots, enlargement = (32, 32), (32, 32), 2, "nearest"

    def initial_state(self, batch, slots=None, generator=None):
        return EmptyState(torch.zeros(batch, 2, 0))

    def step(self, frame, state):
        self.seen = getattr(self, "seen", 0) + 1
        labels = torch.ones(1, 32, 32, dtype=torch.long)
        labels[:, :16] = 10 * self.seen
        even = torch.full((1, 2, 32, 32), 0.5).log()
        return StepOutput(even, self.size, self.enlargement, state.slots, state.slots, labels), state


def test_a_model_s_own_labels_are_what_is_written(tmp_path):
    frames = pictures(3, 32, 32)
    segmenter = Segmenter(Labelling())
    found = [segmenter(frame).ids for frame in frames]
    assert [np.unique(ids[:16]).tolist() for ids in found] == [[2], [3], [4]]
    assert all((ids[16:] == 1).all() for ids in found)
    write_video(tmp_path / "clip.mp4", frames)
    every = ObjectRule(background="keep", min_area="0", min_frames=1)
    outputs = ["ytvis", "masks", "npz", "mot"]
    segment_to_files([tmp_path / "clip.mp4"], tmp_path / "out", Labelling(), write=outputs, objects=every)
    youtube = json.loads((tmp_path / "out/clip/ytvis.json").read_text())
    assert [one["id"] for one in youtube["annotations"]] == [1, 2, 3, 4]
    for one in youtube["annotations"]:
        seen = [mask is not None for mask in one["segmentations"]]
        assert seen == ([True] * 3 if one["id"] == 1 else [t == one["id"] - 2 for t in range(3)])
    ids = np.load(tmp_path / "out/clip/ids.npz")["ids"]
    assert np.array_equal(ids, np.stack(found))


@pytest.mark.parametrize("output", ["overlay", "masks", "npz", "coco"])
def test_a_full_disc_leaves_nothing(monkeypatch, tmp_path, tiny, capsys, output):
    """Files may not become larger than some bytes, which the disc says as it says that it is full."""
    noise = np.random.default_rng(0).integers(0, 256, (12, 96, 128, 3), dtype=np.uint8)
    path = write_video(tmp_path / "walk.avi", noise, "mjpeg", "yuvj420p")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        code = run(monkeypatch, "segment", path, "--weights", tiny, "--out", tmp_path / "out", "--write", output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert code == 2
    assert re.search(
        r"^vonet: .*walk cannot be written \(.*File too large.*\): choose another place$", capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_leaves_valid_files(monkeypatch, tmp_path, tiny, capsys, number):
    watch = Segmenter.__call__

    def stop_at_the_third(self, pixels, number_, seconds):
        if number_ == 2:
            os.kill(os.getpid(), number)
        return watch(self, pixels, number_, seconds)

    monkeypatch.setattr(Segmenter, "__call__", stop_at_the_third)
    given = ("--weights", tiny, "--out", tmp_path / "out", "--write", "all")
    assert run(monkeypatch, "segment", *good(tmp_path), *good(tmp_path / "b"), *given) == 130
    assert "vonet: stopped; results are complete up to the frame" in capsys.readouterr().err
    folder = tmp_path / "out" / "walk"
    assert [path.name for path in folder.parent.iterdir()] == ["walk"]
    assert len(read_masks(folder)) == len(read_overlay(folder)) == len(np.load(folder / "ids.npz")["ids"]) == 3
    for name in ("coco.json", "ytvis.json", "segment.json"):
        told = json.loads((folder / name).read_text())
    assert (told["complete"], told["frames"]) == (False, 3)


LONG = """
import sys
from pathlib import Path
from vonet.data.files import FileVideo
from vonet.serving.outputs import Overlay
from vonet.serving.objects import ObjectRule
from vonet.serving.segment import segment_to_files

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

watch, found = FileVideo.watch, []

def counted(video):
    for shown in watch(video):
        if shown.number in (1000, 4999):
            found.append(memory())
        yield shown

FileVideo.watch, Overlay.smallest = counted, 32
outputs = ["overlay", "tracks", "ytvis", "mot", "npz"]
done = segment_to_files([sys.argv[1]], Path(sys.argv[2]), sys.argv[3], write=outputs)
print(done[0].frames, (found[1] - found[0]) / 2**20)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is told by /proc")
def test_memory_stays_flat_over_five_thousand_frames(tmp_path):
    """The frames from the 1,000th on alone would fill 46 MB."""
    from vonet.model.attention import DotAttentionConfig

    tiny = save_weights(tmp_path / "w", size=(16, 16), attention=DotAttentionConfig())
    shown = pictures(10, 48, 80)
    path = write_video(tmp_path / "long.avi", [shown[t % 10] for t in range(5000)], "mjpeg", "yuvj420p")
    given = [sys.executable, "-c", LONG, path, tmp_path / "out", tiny]
    done = subprocess.run(
        given, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    frames, growth = done.stdout.split()
    assert frames == "5000"
    assert float(growth) < 6
