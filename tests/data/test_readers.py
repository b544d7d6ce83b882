"""Every layout is read back exactly: pixels, ids, order, names, splits."""

import io
import os
import pickle
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vonet.data
from tests.data import layouts
from vonet.data import images, tfds

SAMPLE = Path(os.environ.get("VONET_MOVI_A", Path(__file__).parents[2] / "../shared/data/movi_a"))
needs_sample = pytest.mark.skipif(not SAMPLE.is_dir(), reason="the sample of the original MOVi-A is not here")


def assert_same(video, frames, ids=None):
    np.testing.assert_array_equal(video.frames, frames)
    assert video.frames.flags.writeable
    assert video.has_ids == (ids is not None)
    assert len(video) == len(frames)
    assert video.size == frames.shape[1:3]
    np.testing.assert_array_equal(video.read(1, 3), frames[1:3])
    if ids is not None:
        np.testing.assert_array_equal(video.ids, ids)
        np.testing.assert_array_equal(video.read_ids(1, 3), ids[1:3])
    layouts.read_all(video)


def names(videos):
    return [(video.split, video.name) for video in videos]


# MOVi's shards


@pytest.mark.parametrize("level", "abcde")
def test_movi_records_are_read_exactly(tmp_path, level):
    features, truth = layouts.movi(level, frames=5)
    layouts.write_shards(tmp_path, [features], 1, f"movi_{level}")
    videos = vonet.data.open(tmp_path)
    assert videos.problems == []
    video = videos[0]
    assert (video.name, video.split) == ("10", "train")
    assert_same(video, truth["frames"], truth["ids"])
    np.testing.assert_allclose(video.field("depth"), truth["depth"] / 65535 * 8 + 2, rtol=1e-6)
    np.testing.assert_allclose(video.field("forward_flow"), truth["flow"] / 65535 * 8 - 4, atol=1e-6)
    np.testing.assert_allclose(video.field("backward_flow"), truth["flow"][::-1] / 65535 * 4 - 1, atol=1e-6)
    np.testing.assert_array_equal(video.field("normal"), truth["coordinates"])
    np.testing.assert_array_equal(video.field("object_coordinates"), truth["coordinates"])
    expected = {key for key in features if key not in ("video", "segmentations", *tfds.FIELDS)}
    assert set(video.annotations) == expected
    for key in expected:
        if isinstance(features[key], list):
            assert list(video.annotations[key]) == [value.decode() for value in features[key]]
        else:
            np.testing.assert_array_equal(video.annotations[key], features[key].astype(video.annotations[key].dtype))


def test_flow_is_parsed_only_when_asked_for(tmp_path, monkeypatch):
    layouts.write_shards(tmp_path, [layouts.movi()[0]], 1)
    monkeypatch.setattr("vonet.data.records.decode_varints", lambda data: pytest.fail("parsed numbers"))
    video = vonet.data.open(tmp_path)[0]
    assert video.frames.shape == (3, 6, 8, 3)
    assert video.ids.shape == (3, 6, 8)
    assert video.name == "10"


@pytest.mark.parametrize(
    "folder", ["movi_a/128x128/1.0.0", "movi_a/128x128", "256x256/1.0.0", ".", "some/where"], ids=lambda f: f
)
def test_shards_are_found_wherever_they_lie(tmp_path, folder):
    records = [layouts.movi(name=str(i), seed=i) for i in range(3)]
    place = tmp_path / folder
    layouts.write_shards(place, [features for features, _ in records[:2]], 2)
    layouts.write_shards(place, [records[2][0]], 1, split="validation")
    layouts.write_dataset_info(place, [1, 1])
    (place / ".DS_Store").write_text("")
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("train", "0"), ("train", "1"), ("validation", "2")]
    assert videos.problems == []
    for video, (_, truth) in zip(videos, records, strict=True):
        assert_same(video, truth["frames"], truth["ids"])
    assert names(vonet.data.open(tmp_path, "val")) == [("validation", "2")]


def test_splits_in_folders_are_one_set_and_one_shard_is_a_set(tmp_path):
    layouts.write_shards(tmp_path / "train", [layouts.movi(name=n)[0] for n in "ab"], 2)
    layouts.write_shards(tmp_path / "test", [layouts.movi(name="c")[0]], 1, split="test")
    videos = vonet.data.open(tmp_path)
    assert sorted(names(videos)) == [("test", "c"), ("train", "a"), ("train", "b")]
    alone = vonet.data.open(tmp_path / "train" / "movi_a-train.tfrecord-00001-of-00002")
    assert (names(alone), alone.problems) == ([("train", "b")], [])


def test_video_names_are_distinct(tmp_path):
    records = [layouts.movi(name=name)[0] for name in ("7", "7", "8", "", "9")]
    del records[4]["metadata/video_name"]
    layouts.write_shards(tmp_path, records, 1)
    found = [video.name for video in vonet.data.open(tmp_path)]
    assert found == ["7 train-00000-00000", "7 train-00000-00001", "8", "train-00000-00003", "train-00000-00004"]


def test_videos_travel_to_other_processes(tmp_path):
    features, truth = layouts.movi()
    layouts.write_shards(tmp_path, [features], 1)
    video = vonet.data.open(tmp_path)[0]
    np.testing.assert_array_equal(video.frames, truth["frames"])
    arrived = pickle.loads(pickle.dumps(video))
    assert "frames" not in vars(arrived)
    assert arrived.name == "10"
    assert_same(arrived, truth["frames"], truth["ids"])


def test_large_sets_open_quickly(tmp_path):
    features, _ = layouts.movi()
    layouts.write_shards(tmp_path, [features] * 1024, 512)
    start = time.process_time()
    videos = vonet.data.open(tmp_path)
    assert time.process_time() - start < 2
    assert len(videos) == 1024


@pytest.mark.parametrize("kinds", [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)])
def test_sixteen_bit_colour_is_exact(kinds):
    pixels = np.random.default_rng(0).integers(0, 65536, (7, 5, 3), dtype=np.uint16)
    png = memoryview(layouts.png16(pixels, kinds))
    np.testing.assert_array_equal(images.read_rgb16(png, "it", (7, 5)), pixels)
    np.testing.assert_array_equal(images.read_rgb(png, "it", (7, 5)), pixels >> 8)  # Pillow agrees on the high byte


@needs_sample
def test_real_movi(tmp_path):
    videos = vonet.data.open(SAMPLE)
    assert (len(videos), videos.splits, videos.problems) == (10, {"train": 10}, [])
    assert len({video.name for video in videos}) == 10
    for video in videos:
        assert video.frames.shape == (24, 128, 128, 3)
        assert video.ids.shape == (24, 128, 128)
        assert video.ids.max() == video.annotations["metadata/num_instances"][0]
    clips = [video.frames.tobytes() + video.ids.tobytes() for video in videos]
    assert len(set(clips)) == 9


@needs_sample
def test_real_movi_is_what_a_simple_search_for_pictures_finds():
    """Each PNG in the shard from its first to its last byte, told apart by what kind of picture it is."""
    shard = next(SAMPLE.rglob("*00000-of-*"))
    data, found = shard.read_bytes(), {"RGB": [], "L": []}
    at = data.find(b"\x89PNG\r\n\x1a\n")
    while at >= 0:
        end = data.index(b"IEND", at) + 8
        if data[at + 24] == 8:  # bits
            image = Image.open(io.BytesIO(data[at:end]))
            found[image.mode].append(np.asarray(image))
        at = data.find(b"\x89PNG\r\n\x1a\n", end)
    videos = vonet.data.open(shard)
    np.testing.assert_array_equal(np.concatenate([video.frames for video in videos]), np.stack(found["RGB"]))
    np.testing.assert_array_equal(np.concatenate([video.ids for video in videos]), np.stack(found["L"]))


@needs_sample
def test_flow_of_real_movi_is_in_pixels():
    """Its frame 1, looked up where backward flow says each pixel was, is nearer to frame 0 than frame 1 itself is."""
    video = vonet.data.open(SAMPLE)[0]
    flow = np.rint(video.field("backward_flow")[1]).astype(int)
    rows, columns = np.mgrid[:128, :128]
    before = video.ids[0][np.clip(rows - flow[..., 0], 0, 127), np.clip(columns - flow[..., 1], 0, 127)]
    assert (before == video.ids[1]).mean() > (video.ids[0] == video.ids[1]).mean()
    assert 5 < video.field("depth").min() < video.field("depth").max() < 60


# VONet's pickles


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles(tmp_path, protocol):
    clips = {("train", "3"): layouts.clip(1), ("train", "11"): layouts.clip(2), ("validation", "3"): layouts.clip(3)}
    metadata = {
        "video_name": b"3",
        "depth_range": np.array([1.0, 2.0], "<f4"),
        "width": np.int32(8),
        "f": np.float64(2),
    }
    for (split, name), (frames, ids) in clips.items():
        layouts.write_pickle(tmp_path / split / f"video_{name}.pkl", frames, ids, protocol, metadata=metadata)
    videos = vonet.data.open(tmp_path)
    assert names(videos) == list(clips)
    for video, (frames, ids) in zip(videos, clips.values(), strict=True):
        assert_same(video, frames, ids)
        told = video.annotations["metadata"]
        assert (told["video_name"], told["width"], told["f"]) == (b"3", 8, 2.0)
        np.testing.assert_array_equal(told["depth_range"], [1, 2])


def test_pickles_of_older_numpy_and_of_turned_arrays(tmp_path):
    frames, ids = layouts.clip()
    for number, order in enumerate("CF"):
        path = tmp_path / f"video_{number}.pkl"
        big_endian = np.arange(6, dtype=">u2").reshape(2, 3)
        layouts.write_pickle(
            path, np.asarray(frames, order=order), ids, 3, depth=big_endian, words=np.array(["ab", "c"])
        )
        data = path.read_bytes()
        path.write_bytes(data.replace(b"numpy._core.", b"numpy.core."))
        assert b"numpy.core." in path.read_bytes()
    for video in vonet.data.open(tmp_path):
        assert_same(video, frames, ids)
        np.testing.assert_array_equal(video.annotations["depth"], big_endian)
        assert list(video.annotations["words"]) == ["ab", "c"]


# Webdataset tars


def test_tars_of_videosaur(tmp_path):
    clips = [layouts.clip(seed) for seed in range(5)]
    layouts.write_tar(tmp_path / "movi_c-train-000000.tar", layouts.videosaur(clips[:2], with_ids=False))
    layouts.write_tar(tmp_path / "movi_c-train-000001.tar", layouts.videosaur(clips[2:4], with_ids=False))
    layouts.write_tar(tmp_path / "movi_c-validation-000000.tar", layouts.videosaur(clips[4:]))
    videos = vonet.data.open(tmp_path)
    assert videos.problems == []
    assert names(videos) == [
        ("train", "movi_c-train-000000/0"),
        ("train", "movi_c-train-000000/1"),
        ("train", "movi_c-train-000001/0"),
        ("train", "movi_c-train-000001/1"),
        ("validation", "movi_c-validation-000000/0"),
    ]
    for video, (frames, ids) in zip(videos, clips, strict=True):
        assert_same(video, frames, ids if video.split == "validation" else None)


def test_tars_of_oclf(tmp_path):
    clips = [layouts.clip(seed) for seed in range(3)]
    layouts.write_tar(tmp_path / "train" / "shard-000000.tar", layouts.oclf(clips[:2]))
    layouts.write_tar(tmp_path / "val" / "shard-000000.tar", layouts.oclf(clips[2:]))
    videos = vonet.data.open(tmp_path)
    assert [split for split, _ in names(videos)] == ["train", "train", "validation"]
    assert len({video.name for video in videos}) == 3
    for video, (frames, ids) in zip(videos, clips, strict=True):
        assert_same(video, frames, ids)
    one = vonet.data.open(tmp_path / "train" / "shard-000000.tar")
    assert [video.name for video in one] == ["00000", "00001"]


def test_a_range_of_a_plain_tar_reads_only_that(tmp_path, monkeypatch):
    frames, ids = layouts.clip(frames=10)
    layouts.write_tar(tmp_path / "a.tar", layouts.videosaur([(frames, ids)]))
    video = vonet.data.open(tmp_path)[0]
    counts = []
    original = np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *a, **k: counts.append(a[2]) or original(*a, **k))
    np.testing.assert_array_equal(video.read(4, 6), frames[4:6])
    assert counts == [2 * 6 * 8 * 3]


# Folders of pictures


def test_raw_kubric(tmp_path):
    frames, ids = layouts.clip(frames=12)
    layouts.write_kubric(tmp_path / "17", frames, ids)
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("train", "17")]
    assert videos.layout == "raw Kubric"
    assert_same(videos[0], frames, ids)


@pytest.mark.parametrize("masks", [True, False])
def test_steve(tmp_path, masks):
    clips = [layouts.clip(seed, most=24) for seed in range(2)]
    for number, (frames, ids) in enumerate(clips):
        layouts.write_steve(tmp_path / f"{number:08d}", frames, ids, masks)
    videos = vonet.data.open(tmp_path)
    assert (names(videos), videos.layout) == ([("train", "00000000"), ("train", "00000001")], "STEVE")
    for video, (frames, ids) in zip(videos, clips, strict=True):
        assert_same(video, frames, ids if masks else None)


def test_jpegs_and_masks_of_slot_diffusion(tmp_path):
    frames, ids = layouts.clip(most=200)
    seen = {}
    for split in ("test", "train", "validation"):
        seen[split] = layouts.write_masked_jpegs(tmp_path / "MOVi-D" / split / "00000004", frames, ids)
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [(split, "MOVi-D/00000004") for split in seen]
    for video in videos:
        assert_same(video, seen[video.split], ids)


def test_ppmp(tmp_path):
    frames, ids = layouts.clip()
    folder = tmp_path / "movi_a" / "train" / "movi_a_5995"
    seen = layouts.write_masked_jpegs(folder, frames, ids, "movi_a_5995_rgb_{t:03d}.jpg", "movi_a_5995_ano_{t:03d}.png")
    (folder / "movi_a_5995_fwd_000.npz").write_bytes(b"")
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("train", "movi_a/movi_a_5995")]
    assert_same(videos[0], seen, ids)


def test_davis(tmp_path):
    clips = {name: layouts.clip(seed) for seed, name in enumerate(["bear", "camel", "swan"])}
    seen = {name: layouts.write_davis(tmp_path, name, *clip) for name, clip in clips.items()}
    lists = tmp_path / "ImageSets" / "2017"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("bear\nswan\n")
    (lists / "val.txt").write_text("camel\n")
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("train", "bear"), ("validation", "camel"), ("train", "swan")]
    for video in videos:
        assert_same(video, seen[video.name], clips[video.name][1])


def test_davis_lists_of_2016_and_other_folder_names(tmp_path):
    frames, ids = layouts.clip()
    seen = layouts.write_davis(tmp_path, "bear", frames, ids)
    (tmp_path / "Annotations").rename(tmp_path / "A")
    (tmp_path / "JPEGImages").rename(tmp_path / "Z")
    lists = tmp_path / "ImageSets" / "480p"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("/JPEGImages/480p/bear/00000.jpg /Annotations/480p/bear/00000.png\n")
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("validation", "bear")]
    assert_same(videos[0], seen, ids)


def test_davis_of_several_resolutions(tmp_path):
    small, large = layouts.clip(1), layouts.clip(2, height=12, width=16)
    seen_small = layouts.write_davis(tmp_path, "bear", *small)
    seen_large = layouts.write_davis(tmp_path, "bear", *large, resolution="Full-Resolution")
    videos = vonet.data.open(tmp_path)
    assert [v.name for v in videos] == ["JPEGImages/480p/bear", "JPEGImages/Full-Resolution/bear"]
    assert_same(videos[0], seen_small, small[1])
    assert_same(videos[1], seen_large, large[1])


def test_frames_and_ids_of_the_same_name_in_one_folder(tmp_path):
    frames, ids = layouts.clip()
    seen = layouts.write_masked_jpegs(tmp_path, frames, ids, mask_name="{t:06d}.png")
    videos = vonet.data.open(tmp_path)
    assert len(videos) == 1
    assert_same(videos[0], seen, ids)


def test_plain_folders_are_in_natural_order(tmp_path):
    frames, _ = layouts.clip(frames=12)
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / "val" / "walk" / f"frame{t}.png", frame)
        layouts.save(tmp_path / f"{t}.png", frame)
    (tmp_path / "notes.txt").write_text("")
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("train", tmp_path.name), ("validation", "walk")]
    for video in videos:
        assert_same(video, frames)


def test_all_kinds_of_pictures_become_rgb(tmp_path):
    frames, _ = layouts.clip(frames=1)
    frame, grey = frames[0], frames[0, :, :, 0]
    Image.fromarray(frame).save(tmp_path / "0.bmp")
    Image.fromarray(frame).save(tmp_path / "1.tif")
    Image.fromarray(frame).save(tmp_path / "2.webp", lossless=True)
    layouts.save(tmp_path / "3.png", np.dstack([frame, grey]))
    layouts.save(tmp_path / "4.png", grey)
    layouts.save(tmp_path / "5.png", grey.astype(np.uint16) * 256 + 77)
    layouts.save(tmp_path / "6.png", grey, "P")
    video = vonet.data.open(tmp_path)[0]
    grey_rgb = np.repeat(grey[..., None], 3, axis=2)
    palette = np.array(layouts.PALETTE, np.uint8).reshape(256, 3)
    expected = [frame, frame, frame, frame, grey_rgb, grey_rgb, palette[grey]]
    np.testing.assert_array_equal(video.frames, np.stack(expected))


def test_grey_videos_are_no_ids_of_another_split(tmp_path):
    frames, _ = layouts.clip()
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / "train" / "walk" / f"{t}.png", frame)
        layouts.save(tmp_path / "test" / "walk" / f"{t}.png", frame[..., 0])
    videos = vonet.data.open(tmp_path)
    assert names(videos) == [("test", "walk"), ("train", "walk")]
    assert_same(videos[0], np.repeat(frames[..., :1], 3, axis=3))
    assert_same(videos[1], frames)


def test_a_stray_picture_is_no_video(tmp_path):
    frames, _ = layouts.clip()
    layouts.save(tmp_path / "teaser.png", frames[0])
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / "a" / f"{t}.png", frame)
    assert names(vonet.data.open(tmp_path)) == [("train", "a")]
    assert len(vonet.data.open(tmp_path / "teaser.png")[0]) == 1


# Video files


CODECS = {
    "h264.mp4": ("libx264", {"g": "12", "bf": "3"}),
    "open.mkv": ("libx264", {"g": "12", "bf": "3", "x264-params": "open-gop=1"}),
    "mpeg4.avi": ("mpeg4", {"g": "12", "bf": "2"}),
    "stream.ts": ("libx264", {"g": "12", "bf": "2"}),
    "old.mpg": ("mpeg2video", {"g": "6", "bf": "2"}),
    "vp9.webm": ("libvpx-vp9", {"g": "12"}),
}


@pytest.mark.parametrize("file", CODECS)
def test_any_range_of_a_video_file_is_what_full_decoding_gives(tmp_path, file):
    codec, options = CODECS[file]
    layouts.write_video(tmp_path / file, codec, frames=40, options=options)
    everything = layouts.decode_video(tmp_path / file)
    videos = vonet.data.open(tmp_path)
    video = videos[0]
    assert (video.name, video.has_ids, video.ids) == (file.split(".")[0], False, None)
    assert len(video) == len(everything) == 40
    assert len(np.unique(everything.reshape(40, -1), axis=0)) == 40  # or a wrong frame would go unnoticed
    for start, stop in [(0, 40), (5, 9), (12, 14), (13, 25), (24, 40), *((t, t + 1) for t in range(40))]:
        np.testing.assert_array_equal(videos[0].read(start, stop), everything[start:stop])
    pieces = [piece for piece, _ in video.pieces(7)]
    assert [len(piece) for piece in pieces] == [7] * 5 + [5]
    np.testing.assert_array_equal(np.concatenate(pieces), everything)
    layouts.read_all(video)


@pytest.mark.parametrize("file", ["h264.mp4", "vp9.webm"])
def test_a_late_range_is_decoded_from_the_key_frame_before(tmp_path, file):
    codec, options = CODECS[file]
    layouts.write_video(tmp_path / file, codec, frames=60, options=options)
    video = vonet.data.open(tmp_path / file)[0]
    assert len(video) == 60
    content, decoded = video._content, []
    decode = content.decode
    content.decode = lambda *a: (decoded.append(frame) or frame for frame in decode(*a))
    video.read(50, 52)
    assert 2 <= len(decoded) <= 1 + 12 + 2  # the first frame tells the size


def test_a_video_is_turned_as_the_phone_says(tmp_path):
    path = tmp_path / "phone.mp4"
    layouts.write_video(path, frames=3)
    upright = layouts.decode_video(path)
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40
    one = 1 << 16
    data[matrix : matrix + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 48 * one, 0, 1 << 30)  # clockwise
    path.write_bytes(data)
    video = vonet.data.open(path)[0]
    assert video.size == (64, 48)
    np.testing.assert_array_equal(video.frames, np.rot90(upright, -1, axes=(1, 2)))


def test_thumbnails_beside_videos_are_no_videos(tmp_path):
    layouts.write_video(tmp_path / "test" / "a.mp4", frames=2)
    layouts.write_video(tmp_path / "test" / "a.avi", "mpeg4", frames=2)
    layouts.save(tmp_path / "test" / "a.png", layouts.clip()[0][0])
    assert names(vonet.data.open(tmp_path)) == [("test", "a.avi"), ("test", "a.mp4")]


def test_a_file_that_is_given_needs_no_suffix(tmp_path):
    layouts.write_video(tmp_path / "a.mp4", frames=4)
    (tmp_path / "a.mp4").rename(tmp_path / "film")
    assert len(vonet.data.open(str(tmp_path / "film"))[0]) == 4


def test_opening_imports_no_decoder_before_it_is_needed():
    code = "import sys, vonet.data; sys.exit(bool({'av', 'google_crc32c', 'torch', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
