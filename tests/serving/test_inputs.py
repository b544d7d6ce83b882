"""What goes in: cameras, URLs, pictures; videos of another shape, and those that weights hardly know. And what of it
must come out again: files that exist, and sound."""

import functools
import http.server
import json
import sys
import threading

import numpy as np
import pytest
from PIL import Image

import vonet
from tests.serving.small import pictures, save_weights, write_sounding_video, write_video
from vonet import cli, experiments
from vonet.data.prepare import PrepareConfig, prepare
from vonet.experiments import weights
from vonet.serving import inputs
from vonet.serving.inputs import Place, live_place
from vonet.serving.placement import placed
from vonet.training.run import TrainOptions, train


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_weights(tmp_path_factory.mktemp("weights") / "tiny")


def run(monkeypatch, *words):
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, words)])
    try:
        cli.main()
    except SystemExit as end:
        return end.code or 0
    return 0


@pytest.fixture
def server(tmp_path):
    """A folder that is served on loopback: the folder, its address, and the paths that were asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield folder, f"127.0.0.1:{serving.server_address[1]}", asked
        serving.shutdown()


# Cameras and URLs


def test_a_camera_is_what_the_system_calls_it():
    assert live_place("camera:0", "linux") == Place("camera:0", "/dev/video0", "v4l2")
    assert live_place("camera:/dev/video2", "linux") == Place("camera:/dev/video2", "/dev/video2", "v4l2")
    assert live_place("camera:1", "darwin") == Place("camera:1", "1", "avfoundation")
    assert live_place("camera:HD Cam", "win32") == Place("camera:HD Cam", "video=HD Cam", "dshow")
    for given, system, accepted in (
        ("camera:", "linux", "a number"),
        ("camera:0", "win32", "the camera's name"),
        ("camera:0", "amiga", "a number"),
    ):
        with pytest.raises(vonet.BadInput, match=f"names no camera; expected {accepted}"):
            live_place(given, system)
    with pytest.raises(vonet.BadInput, match="is not a URL; give one such as"):
        live_place("http://[::1/clip.mp4")
    for path in ("clip.mp4", "folder/clip.mp4", "C:/clip.mp4", "a:b", "camera"):
        assert live_place(path, "linux") is None


def test_a_camera_is_segmented_as_it_comes(monkeypatch, tmp_path, tiny, capfd):
    """FFmpeg's own test picture in place of a camera's: it can be watched only once, and all outputs are written."""
    device = Place("camera:0", "testsrc=size=64x48:rate=10:duration=0.8", "lavfi")
    monkeypatch.setattr(inputs, "_camera", lambda given, device_, system: device)
    given = ("camera:0", "--weights", tiny, "--out", tmp_path / "out", "--write", "all", "--end", "0.6s")
    assert run(monkeypatch, "segment", *given) == 0
    folder = tmp_path / "out/camera-0"
    said = capfd.readouterr()
    assert said.out.startswith("camera-0: 6 frames of 64x48")
    assert said.err == ""
    assert np.load(folder / "ids.npz")["ids"].shape == (6, 48, 64)
    import av

    with av.open(str(folder / "overlay.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(shown) == 6
    assert shown[0].std() > 30  # the test picture has many colours
    assert not list(folder.glob("recording*"))
    assert len(list(vonet.segment("camera:0", tiny))) == 8


def test_a_camera_that_is_not_there_is_said(monkeypatch, tmp_path, tiny, capfd):
    place = Place("camera:7", str(tmp_path / "video7"), "v4l2")
    monkeypatch.setattr(inputs, "_camera", lambda given, device, system: place)
    assert run(monkeypatch, "segment", "camera:7", "--weights", tiny, "--out", tmp_path / "out") == 2
    said = capfd.readouterr().err
    assert said.startswith("vonet: camera:7 cannot be opened (No such file or directory): is there such a camera")
    assert not (tmp_path / "out").exists()


def test_a_url_is_segmented_like_the_file_behind_it(monkeypatch, tmp_path, server, tiny, capfd):
    folder, address, asked = server
    path = write_video(folder / "walk.mp4")
    given = ("--weights", tiny, "--write", "npz,coco,overlay")
    assert run(monkeypatch, "segment", f"http://me:secret@{address}/walk.mp4?v=1", *given, "--out", tmp_path / "a") == 0
    assert any(line.startswith("/walk.mp4") for line in asked)
    assert run(monkeypatch, "segment", path, *given, "--out", tmp_path / "b") == 0
    one, other = (np.load(tmp_path / out / "walk/ids.npz") for out in "ab")
    np.testing.assert_array_equal(one["ids"], other["ids"])
    np.testing.assert_allclose(one["seconds"], other["seconds"])
    written = [file.read_text() for file in (tmp_path / "a/walk").iterdir() if file.suffix == ".json"]
    assert not any("secret" in text for text in [*written, *capfd.readouterr()])
    coco = json.loads((tmp_path / "a/walk/coco.json").read_text())
    assert coco["images"][3]["file_name"] == f"http://{address}/walk.mp4#3"


def test_a_picture_behind_a_url_and_one_that_is_not_there(monkeypatch, tmp_path, server, tiny, capfd):
    folder, address, _ = server
    Image.fromarray(pictures(1)[0]).save(folder / "photo.png")
    given = ("--weights", tiny, "--write", "masks", "--out", tmp_path / "out")
    assert run(monkeypatch, "segment", f"http://{address}/photo.png", *given) == 0
    assert [path.name for path in (tmp_path / "out/photo/masks").iterdir()] == ["00000.png"]
    capfd.readouterr()
    assert run(monkeypatch, "segment", f"http://{address}/none.mp4", *given) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"vonet: http://{address}/none.mp4 cannot be opened (")
    assert said.count("\n") == 1


def test_a_local_file_never_leads_to_the_network(monkeypatch, tmp_path, server, tiny, capfd):
    """Not even a playlist whose pieces lie elsewhere."""
    folder, address, asked = server
    write_video(folder / "piece.ts", codec="mpeg2video")
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://{address}/piece.ts\n#EXT-X-ENDLIST\n"
    (tmp_path / "list.m3u8").write_text(playlist)
    assert run(monkeypatch, "segment", tmp_path / "list.m3u8", "--weights", tiny, "--out", tmp_path / "out") == 2
    assert asked == []


def test_pictures_one_by_one_and_as_a_folder(monkeypatch, tmp_path, tiny):
    """A folder holds the frames of one video; pictures that are given by name are each on their own, of any size."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for t, frame in enumerate(pictures(3)):
        Image.fromarray(frame).save(folder / f"photo{t}.jpg")
    given = ("--weights", tiny, "--write", "masks,coco")
    assert run(monkeypatch, "segment", folder, *given, "--out", tmp_path / "together") == 0
    assert len(list((tmp_path / "together/photos/masks").iterdir())) == 3
    Image.fromarray(pictures(1, 30, 90)[0]).save(folder / "photo1.jpg")
    assert run(monkeypatch, "segment", *sorted(folder.iterdir()), *given, "--out", tmp_path / "alone") == 0
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == ["photo0", "photo1", "photo2"]
    assert Image.open(tmp_path / "alone/photo1/masks/photo1.png").size == (90, 30)


# Files that exist


def test_coco_names_pictures_that_exist(monkeypatch, tmp_path, tiny):
    (tmp_path / "walk").mkdir()
    for t, frame in enumerate(pictures(2)):
        Image.fromarray(frame).save(tmp_path / "walk" / f"shot{9 + t}.PNG")
    given = ("--weights", tiny, "--write", "coco,ytvis", "--out", tmp_path / "out")
    assert run(monkeypatch, "segment", tmp_path / "walk", write_video(tmp_path / "in/clip.mp4"), *given) == 0
    for name, expected in (("walk", ["shot9.PNG", "shot10.PNG"]), ("clip", [f"clip.mp4#{t}" for t in range(6)])):
        coco, youtube = (
            json.loads((tmp_path / "out" / name / file).read_text()) for file in ("coco.json", "ytvis.json")
        )
        assert [image["file_name"] for image in coco["images"]] == youtube["videos"][0]["file_names"] == expected
        for told in (coco, youtube):
            folder = told["info"]["folder"]
            assert all((tmp_path / folder / file.partition("#")[0]).is_file() for file in expected)


# Sound


def heard(path):
    """Loudness of each tenth of a second, and the pitch of the first half second."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        rate = stream.rate
        samples = np.concatenate([frame.to_ndarray().mean(axis=0) for frame in container.decode(stream)])
    tenths = [np.abs(samples[i : i + rate // 10]).mean() for i in range(0, len(samples), rate // 10)]
    spectrum = np.abs(np.fft.rfft(samples[: rate // 2]))
    return np.array(tenths), np.argmax(spectrum) * 2


def test_the_overlay_keeps_the_sound(monkeypatch, tmp_path, tiny, capfd):
    path = write_sounding_video(tmp_path / "walk.mp4")
    assert run(monkeypatch, "segment", path, "--weights", tiny, "--out", tmp_path / "out") == 0
    loudness, pitch = heard(tmp_path / "out/walk/overlay.mp4")
    assert 20 <= len(loudness) <= 21
    assert pitch == pytest.approx(440, abs=4)
    assert (loudness[1:9] > 0.2).all()
    assert (loudness[11:19] < 0.02).all()
    assert capfd.readouterr().err == ""


def test_sound_begins_and_ends_with_the_pictures(monkeypatch, tmp_path, tiny):
    """From 0.5 to 1.5 seconds: half a second of tone, half a second of silence."""
    path = write_sounding_video(tmp_path / "walk.mp4")
    span = ("--start", "0.5s", "--end", "1.5s", "--every", 2)
    assert run(monkeypatch, "segment", path, "--weights", tiny, "--out", tmp_path / "out", *span) == 0
    loudness, _ = heard(tmp_path / "out/walk/overlay.mp4")
    assert 9 <= len(loudness) <= 11
    assert (loudness[1:4] > 0.2).all()
    assert (loudness[6:9] < 0.02).all()


def test_sound_that_is_lost_is_told(monkeypatch, tmp_path, server, tiny, capfd):
    folder, address, _ = server
    write_sounding_video(folder / "walk.mp4", seconds=0.5)
    assert run(monkeypatch, "segment", f"http://{address}/walk.mp4", "--weights", tiny, "--out", tmp_path / "out") == 0
    note = "the overlay of walk is without sound, which is kept of files only"
    assert capfd.readouterr().err == f"vonet: note: {note}\n"
    assert json.loads((tmp_path / "out/walk/segment.json").read_text())["notes"] == [note]


# One fit


@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
def test_a_model_sees_the_same_picture_in_training_and_serving(tmp_path, fit):
    frames = pictures(3, 48, 96)
    for t, frame in enumerate(frames):
        (tmp_path / "in/walk").mkdir(parents=True, exist_ok=True)
        Image.fromarray(frame).save(tmp_path / f"in/walk/{t}.png")
    prepare(tmp_path / "in", tmp_path / "store", PrepareConfig((32, 32), fit), workers=1)
    stored = vonet.data.open(tmp_path / "store")[0].frames
    for frame, seen in zip(frames, stored, strict=True):
        given = placed(frame, (32, 32), fit).permute(1, 2, 0).numpy()
        np.testing.assert_allclose(given, seen / 255, atol=1e-6)


def test_the_fit_is_stored_with_the_weights_and_used(monkeypatch, tmp_path, capfd):
    write_video(tmp_path / "in/walk.mp4", pictures(8, 48, 96))
    prepare(tmp_path / "in", tmp_path / "store", PrepareConfig((32, 32), "crop"), workers=1)
    train(experiments.get("vonet-sprites"), tmp_path / "store", tmp_path / "run", TrainOptions(updates=1))
    said = capfd.readouterr().out
    assert weights.load(tmp_path / "run")[1].fit == "crop"
    given = ("segment", tmp_path / "in/walk.mp4", "--weights", tmp_path / "run", "--write", "npz", "--out")
    assert run(monkeypatch, *given, tmp_path / "as-trained") == 0
    assert run(monkeypatch, *given, tmp_path / "told", "--fit", "letterbox") == 0
    for name, fit in (("as-trained", "crop"), ("told", "letterbox")):
        assert json.loads((tmp_path / name / "walk/segment.json").read_text())["fit"] == fit
    model = weights.load(tmp_path / "run")[0]
    ids = next(iter(vonet.segment(tmp_path / "in/walk.mp4", model))).ids
    assert not ids[:, :24].any()  # of a frame twice as wide as high only the middle is seen
    assert not ids[:, 72:].any()
    assert ids[:, 24:72].any()
    assert "vonet evaluate" not in said  # which needs labels
    assert f"vonet segment VIDEO --weights {tmp_path / 'run'}" in said


def test_both_commands_have_the_same_default_fit(monkeypatch, tmp_path, tiny):
    path = write_video(tmp_path / "in/walk.mp4", pictures(2, 48, 96))
    assert run(monkeypatch, "prepare", tmp_path / "in", tmp_path / "store", "--size", 32, "--workers", 1) == 0
    assert run(monkeypatch, "segment", path, "--weights", tiny, "--out", tmp_path / "out", "--write", "mot") == 0
    prepared = json.loads((tmp_path / "store/index.json").read_text())["made_by"]["fit"]
    assert prepared == json.loads((tmp_path / "out/walk/segment.json").read_text())["fit"] == "stretch"


# What weights hardly know


def test_prepare_names_videos_that_are_small_grey_or_of_another_shape(monkeypatch, tmp_path, capfd):
    write_video(tmp_path / "in/good.mp4", pictures(2, 48, 64))
    write_video(tmp_path / "in/small.mp4", pictures(2, 16, 24))
    write_video(tmp_path / "in/wide.mp4", pictures(2, 48, 192))
    write_video(tmp_path / "in/old.mkv", pictures(2, 48, 64), codec="ffv1", pixels="gray")
    given = ("prepare", tmp_path / "in", tmp_path / "out", "--size", 32, "--workers", 1)
    assert run(monkeypatch, *given) == 0
    notes = [line for line in capfd.readouterr().err.splitlines() if line.startswith("vonet: note: ")]
    assert [line.partition("1 of 4 videos ")[2] for line in notes] == [
        "have no colours, which weights that are trained on colours hardly know: old",
        "are smaller than 32x32 pixels and were enlarged: small",
        "have quite another shape than 32x32 pixels and were distorted (--fit crop or letterbox): wide",
    ]


def test_prepare_names_a_grey_video_that_is_added_to_others(monkeypatch, tmp_path, capfd):
    given = ("prepare", tmp_path / "in", tmp_path / "out", "--size", 32, "--workers", 1)
    write_video(tmp_path / "in/good.mp4", pictures(2))
    assert run(monkeypatch, *given) == 0
    assert "note" not in capfd.readouterr().err
    write_video(tmp_path / "in/old.mkv", pictures(2), codec="ffv1", pixels="gray")
    assert run(monkeypatch, *given) == 0
    assert "vonet: note: 1 of 2 videos have no colours" in capfd.readouterr().err


def test_segment_names_videos_that_the_weights_hardly_know(monkeypatch, tmp_path, tiny, capfd):
    small = write_video(tmp_path / "small.mp4", pictures(2, 16, 24))
    wide = write_video(tmp_path / "wide.mp4", pictures(2, 48, 192))
    good = write_video(tmp_path / "good.mp4", pictures(2))
    given = ("--weights", tiny, "--out", tmp_path / "out", "--write", "mot")
    assert run(monkeypatch, "segment", small, wide, good, *given) == 0
    assert capfd.readouterr().err.splitlines() == [
        "vonet: note: small has frames of 24x16 pixels, fewer than the 32x32 that the weights know: enlarged",
        "vonet: note: wide has frames of 192x48 pixels, distorted to 32x32: --fit letterbox keeps their shape",
    ]


def test_weights_of_grey_videos_know_grey_videos(monkeypatch, tmp_path, capfd):
    path = write_video(tmp_path / "in/old.mkv", pictures(8, 32, 32), codec="ffv1", pixels="gray")
    train(experiments.get("vonet-sprites"), tmp_path / "in", tmp_path / "run", TrainOptions(updates=1))
    assert weights.load(tmp_path / "run")[1].grey
    capfd.readouterr()
    assert run(monkeypatch, "segment", path, "--weights", tmp_path / "run", "--out", tmp_path / "out") == 0
    assert capfd.readouterr().err == ""
