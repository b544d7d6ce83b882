"""What is wrong on the disc is said in a sentence, and the rest is used."""

import gzip
import os
import pickle
import shutil
import struct
import tarfile
import tracemalloc
import wave
import zlib
from contextlib import suppress

import numpy as np
import pytest

import vonet.data
from tests.data import layouts
from vonet.data import images, pickles, tfds
from vonet.errors import BadInput


def test_paths_with_nothing(tmp_path):
    for path in ("", tmp_path / "none", "a\0b"):
        with pytest.raises(BadInput, match=r"there is nothing at .*; give the path of"):
            vonet.data.open(path)
    with pytest.raises(BadInput, match="has no files"):
        vonet.data.open(tmp_path)
    (tmp_path / ".hidden.mp4").write_text("")
    with pytest.raises(BadInput, match="has no files"):
        vonet.data.open(tmp_path)
    (tmp_path / "notes.txt").write_text("hello\n" * 100)
    with pytest.raises(BadInput, match=r"no videos among the files in .* \(such as notes.txt\)"):
        vonet.data.open(tmp_path)
    with pytest.raises(BadInput, match=r"notes.txt has no video in it"):
        vonet.data.open(tmp_path / "notes.txt")


def test_a_split_that_is_not_there(tmp_path):
    layouts.write_shards(tmp_path, [layouts.movi()[0]], 1)
    with pytest.raises(BadInput, match=r"no split 'test'; it has 'train' \(1 videos\)"):
        vonet.data.open(tmp_path, "test")


def test_links_that_lead_back_do_no_harm(tmp_path):
    layouts.write_shards(tmp_path / "a", [layouts.movi()[0]], 1)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "a")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "broken.mp4").symlink_to(tmp_path / "nowhere")
    videos = vonet.data.open(tmp_path)
    assert (len(videos), videos.problems) == (1, [])


def test_links_are_followed(tmp_path):
    frames, _ = layouts.clip()
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / "elsewhere" / f"{t}.png", frame)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "walk").symlink_to(tmp_path / "elsewhere")
    video = vonet.data.open(tmp_path / "root")[0]
    assert video.name == "walk"
    np.testing.assert_array_equal(video.frames, frames)


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path, monkeypatch):
    layouts.write_shards(tmp_path, [layouts.movi()[0]], 1)
    (tmp_path / "secret").mkdir()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    videos = vonet.data.open(tmp_path)
    assert len(videos) == 1
    assert "secret cannot be read (Permission denied)" in videos.problems[0]


# MOVi's shards


@pytest.fixture
def shards(tmp_path):
    """Two shards of three records."""
    records = [layouts.movi(name=str(i), seed=i) for i in range(6)]
    paths = layouts.write_shards(tmp_path, [features for features, _ in records], 2)
    return tmp_path, paths, [truth["frames"] for _, truth in records]


def test_a_shard_that_is_cut_short(shards):
    root, paths, frames = shards
    data = paths[0].read_bytes()
    for cut in (len(data) - 1, len(data) * 5 // 6):
        paths[0].write_bytes(data[:cut])
        videos = vonet.data.open(root)
        assert [video.name for video in videos] == ["0", "1", "3", "4", "5"]
        assert "is cut short within record 2; the 2 records before are used" in videos.problems[0]
        np.testing.assert_array_equal(videos[1].frames, frames[1])
        np.testing.assert_array_equal(videos[2].frames, frames[3])


def test_a_flipped_bit_in_a_header(shards):
    root, paths, _ = shards
    data = bytearray(paths[1].read_bytes())
    second = struct.unpack("<Q", data[:8])[0] + 16
    data[second + 2] ^= 1
    paths[1].write_bytes(data)
    videos = vonet.data.open(root)
    assert [video.name for video in videos] == ["0", "1", "2", "3"]
    assert f"is damaged at the start of record 1 (byte {second})" in videos.problems[0]


def test_a_flipped_bit_in_a_payload_spoils_only_that_video(shards):
    root, paths, frames = shards
    data = bytearray(paths[0].read_bytes())
    first = struct.unpack("<Q", data[:8])[0]
    data[first // 2] ^= 4
    paths[0].write_bytes(data)
    videos = vonet.data.open(root)
    assert (len(videos), videos.problems) == (6, [])
    with pytest.raises(BadInput, match=r"record 0 of .*00000-of-00002 is damaged \(its checksum is wrong\)"):
        layouts.read_all(videos[0])
    for number in range(1, 6):
        np.testing.assert_array_equal(videos[number].frames, frames[number])


def test_missing_shards_are_named(tmp_path):
    paths = layouts.write_shards(tmp_path, [layouts.movi(name=str(i))[0] for i in range(15)], 15)
    for number in (3, 7, 10, 11, 12):
        paths[number].unlink()
    videos = vonet.data.open(tmp_path)
    assert len(videos) == 10
    assert "shards 3, 7 and 10 to 12 of 15 of the split 'train' are missing" in videos.problems[0]
    assert tfds.spoken([4]) == "4"
    assert tfds.spoken([4, 5]) == "4 and 5"


def test_an_empty_shard_is_a_problem_unless_it_should_be_empty(tmp_path):
    paths = layouts.write_shards(tmp_path, [layouts.movi()[0]] * 2, 2)
    paths[1].write_bytes(b"")
    assert "00001-of-00002 is empty" in vonet.data.open(tmp_path).problems[0]
    layouts.write_dataset_info(tmp_path, [1, 0])
    assert vonet.data.open(tmp_path).problems == []
    paths[0].write_bytes(b"")
    with pytest.raises(BadInput, match=r"no usable video in .*has 0 records where dataset_info.json says 1"):
        vonet.data.open(tmp_path)


def test_records_are_counted_against_dataset_info(tmp_path):
    layouts.write_shards(tmp_path, [layouts.movi(name=n)[0] for n in "abc"], 1)
    layouts.write_dataset_info(tmp_path, [4])
    videos = vonet.data.open(tmp_path)
    assert len(videos) == 3
    assert "has 3 records where dataset_info.json says 4" in videos.problems[0]
    (tmp_path / "dataset_info.json").write_text("{")
    assert "cannot be understood" in vonet.data.open(tmp_path).problems[0]


def test_several_datasets_are_refused(tmp_path):
    layouts.write_shards(tmp_path / "movi_a" / "128x128", [layouts.movi()[0]], 1)
    layouts.write_shards(tmp_path / "movi_a" / "256x256", [layouts.movi()[0]], 1)
    layouts.write_shards(tmp_path / "movi_b", [layouts.movi("b")[0]], 1, "movi_b")
    with pytest.raises(BadInput, match=r"holds 3 datasets .*128x128.*256x256.*movi_b.*point at the folder of one"):
        vonet.data.open(tmp_path)
    assert len(vonet.data.open(tmp_path / "movi_a" / "128x128")) == 1


def test_a_split_twice_is_refused(tmp_path):
    layouts.write_shards(tmp_path, [layouts.movi()[0]] * 2, 1)
    layouts.write_shards(tmp_path, [layouts.movi()[0]] * 2, 2)
    with pytest.raises(BadInput, match=r"'train' more than once \(shards of 1 and 2\)"):
        vonet.data.open(tmp_path)


def broken_record(tmp_path, **changes):
    features, truth = layouts.movi()
    features |= changes
    layouts.write_shards(tmp_path, [{k: v for k, v in features.items() if v is not None}], 1)
    return vonet.data.open(tmp_path)[0], truth


def test_a_record_without_masks(tmp_path):
    video, truth = broken_record(tmp_path, segmentations=None)
    assert not video.has_ids
    assert video.ids is None
    np.testing.assert_array_equal(video.frames, truth["frames"])


def test_a_large_id_and_ids_that_are_missing_in_frames_are_kept(tmp_path):
    features, truth = layouts.movi(most=64)
    truth["ids"][0] = 0
    features["segmentations"] = [layouts.png(frame) for frame in truth["ids"]]
    layouts.write_shards(tmp_path, [features], 1, "movi_e")
    video = vonet.data.open(tmp_path)[0]
    np.testing.assert_array_equal(video.ids, truth["ids"])
    assert [frame.max() for frame in video.ids] == [0, truth["ids"][1].max(), 64]


def test_records_that_are_no_videos(tmp_path):
    frames, ids = layouts.clip()
    png = [layouts.png(frame) for frame in frames]
    small = layouts.png(frames[0, :3])
    cases = {
        "has no frames in 'video'": {"video": []},
        "has no 'video'; it has backward_flow": {"video": None},
        "'video' of .* is a list of int, not of bytes": {"video": np.array([1])},
        "frame 1 of video .* has 3x8 pixels where 6x8 are expected": {"video": [png[0], small, png[2]]},
        "frame 2 of video .* cannot be decoded": {"video": [*png[:2], png[2][:60]]},
        "frame 0 of .* cannot be decoded": {"video": [b"GIF89a", *png[1:]]},
        "3 frames but 2 pictures of segmentations": {"segmentations": [layouts.png(i) for i in ids[:2]]},
        "frame 0 of segmentations .* kind RGB; ids need": {"segmentations": png},
        "frame 0 of segmentations .* has 3x8 pixels": {"segmentations": [layouts.png(i[:3]) for i in ids]},
    }
    for number, (sentence, change) in enumerate(cases.items()):
        video, _ = broken_record(tmp_path / str(number), **change)
        with pytest.raises(BadInput, match=sentence):
            layouts.read_all(video)


def test_names_in_a_damaged_record_stay_on_one_line(tmp_path):
    video, _ = broken_record(tmp_path, **{"video": None, "a\nb\0" + "x" * 999: [b""]})
    with pytest.raises(BadInput, match=r"has no 'video'; it has a\?b\?x{56}, backward_flow"):
        layouts.read_all(video)


def test_annotations_and_fields_that_do_not_fit(tmp_path):
    video, _ = broken_record(
        tmp_path,
        **{
            "instances/positions": np.zeros(5),
            "forward_flow": np.zeros(7, int),
            "metadata/depth_range": np.zeros(1),
            "normal": None,
            "object_coordinates": [layouts.png(np.zeros((6, 8), np.uint8))] * 3,
        },
    )
    with pytest.raises(BadInput, match=r"instances/positions of record 0 .* has 5 numbers"):
        video.annotations["instances/positions"]
    with pytest.raises(BadInput, match=r"forward_flow of .* has 7 numbers instead of 288"):
        video.field("forward_flow")
    with pytest.raises(BadInput, match=r"depth_range of .* has 1 numbers"):
        video.field("depth")
    with pytest.raises(BadInput, match="no field 'normal'; it has depth, forward_flow"):
        video.field("normal")
    with pytest.raises(BadInput, match="is not a PNG of 6x8 pixels with three channels of 16 bits"):
        video.field("object_coordinates")


def test_damaged_sixteen_bit_pngs():
    pixels = np.random.default_rng(0).integers(0, 65536, (7, 5, 3), dtype=np.uint16)
    good = layouts.png16(pixels, (4,))
    for at in range(0, len(good), 3):
        flipped = good[:at] + bytes([good[at] ^ 8]) + good[at + 1 :]
        for bad in (good[:at], flipped):
            if (at < 8 and bad is flipped) or at >= len(good) - 12:
                continue  # the signature is not looked at, nor the end
            with pytest.raises(BadInput):
                images.read_rgb16(memoryview(bad), "it", (7, 5))


# Pickles


class Evil:
    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


def test_malicious_pickles_are_not_run(tmp_path):
    touched = tmp_path / "touched"
    frames, ids = layouts.clip()
    nested = np.empty(1, object)
    nested[0] = Evil(os.system, f"touch {touched}")
    system = f"calls {os.system.__module__}.system, which is not allowed"
    attacks = [
        (system, Evil(os.system, f"touch {touched}")),
        (r"calls (builtins|__builtin__).eval,", Evil(eval, f"open({str(touched)!r}, 'w')")),
        (r"calls (builtins|__builtin__).bytearray,", Evil(bytearray, 1 << 40)),
        (r"calls numpy.*fromfile,", Evil(np.fromfile, str(touched))),
        (r"is damaged, cut short, or not a pickle of arrays", nested),
    ]
    path = tmp_path / "video_1.pkl"
    for sentence, attack in attacks:
        for protocol in (2, 3, 4, 5):
            layouts.write_pickle(path, frames, ids, protocol, more=attack)
            with pytest.raises(BadInput, match=sentence):
                layouts.read_all(vonet.data.open(tmp_path)[0])
    assert not touched.exists()
    path.write_bytes(pickle.dumps(attacks[0][1]))
    with pytest.raises(BadInput, match=system):
        pickles.load(path)
    pickle.loads(path.read_bytes())
    assert touched.exists()  # else nothing was shown


def test_pickles_that_claim_much_get_little(tmp_path):
    path = tmp_path / "video_1.pkl"
    bytearray_of = b"\x80\x05\x96" + struct.pack("<Q", 1 << 45) + b"x."
    memo = b"\x80\x04Nr" + struct.pack("<I", 0xFFFFFFF0) + b"."
    frame = b"\x80\x04\x95" + struct.pack("<Q", 1 << 45) + b"N."
    shape = pickle.dumps(np.zeros(3, np.uint8), 2).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    deep = b"\x80\x02}(" + b")" + b"\x85" * 200_000 + b"Nu."
    for data in (bytearray_of, memo, frame, shape, deep, b"", b"\x80", b"garbage"):
        path.write_bytes(data)
        with pytest.raises(BadInput):
            pickles.load(path)


def test_damaged_pickles(tmp_path):
    frames, ids = layouts.clip()
    path = tmp_path / "video_1.pkl"
    for protocol in (2, 4, 5):
        layouts.write_pickle(path, frames, ids, protocol)
        data = path.read_bytes()
        for cut in range(0, len(data), 41):
            path.write_bytes(data[:cut])
            with pytest.raises(BadInput):
                layouts.read_all(vonet.data.open(tmp_path)[0])
        for at in [*range(60), *range(60, len(data), 7)]:
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
            with suppress(BadInput):
                layouts.read_all(vonet.data.open(tmp_path)[0])


def test_pickles_of_something_else(tmp_path):
    frames, ids = layouts.clip()
    cases = {
        "holds a list": [1],
        "has no 'video'": {"frames": frames},
        "no 'video' of bytes": {"video": frames.astype(np.float32)},
        "has no frames": {"video": frames[:0]},
        "not integers for the": {"video": frames, "segmentations": ids[:1]},
    }
    for sentence, content in cases.items():
        (tmp_path / "video_1.pkl").write_bytes(pickle.dumps(content))
        with pytest.raises(BadInput, match=sentence):
            layouts.read_all(vonet.data.open(tmp_path)[0])


# Tars


def test_a_tar_that_is_cut_short(tmp_path):
    clips = [layouts.clip(seed) for seed in range(3)]
    layouts.write_tar(tmp_path / "a-train-0.tar", layouts.videosaur(clips))
    data = (tmp_path / "a-train-0.tar").read_bytes()
    whole = data.index(b"2.video.npy")
    for cut in (whole - 512, whole + 700):
        (tmp_path / "a-train-0.tar").write_bytes(data[:cut])
        videos = vonet.data.open(tmp_path)
        assert [video.name for video in videos] == ["0", "1"]
        assert "get the tar again" in videos.problems[0]
        for video, (frames, ids) in zip(videos, clips[:2], strict=True):
            np.testing.assert_array_equal(video.frames, frames)
            np.testing.assert_array_equal(video.ids, ids)
    (tmp_path / "a-train-0.tar").write_bytes(data[:100])
    with pytest.raises(BadInput, match=r"no usable video .* is cut short or damaged"):
        vonet.data.open(tmp_path)


def test_a_tar_that_was_not_finished(tmp_path):
    path = tmp_path / "a.tar"
    layouts.write_tar(path, layouts.videosaur([layouts.clip(seed) for seed in range(3)]))
    with tarfile.open(path) as tar:
        between = tar.getmember("2.video.npy").offset
    path.write_bytes(path.read_bytes()[:between])
    videos = vonet.data.open(tmp_path)
    assert [video.name for video in videos] == ["0", "1"]
    assert "has no proper end, so files may be lacking" in videos.problems[0]


def test_a_damaged_header_in_a_tar(tmp_path):
    layouts.write_tar(tmp_path / "a.tar", layouts.videosaur([layouts.clip(seed) for seed in range(3)]))
    data = bytearray((tmp_path / "a.tar").read_bytes())
    data[data.index(b"1.segmentations.npy")] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    videos = vonet.data.open(tmp_path)
    assert [(video.name, video.has_ids) for video in videos] == [("0", True), ("1", False)]
    assert "is cut short or damaged; the 4 files before are used" in videos.problems[0]


def test_arrays_in_tars_that_are_not_what_they_claim(tmp_path):
    frames, ids = layouts.clip()
    good = layouts.npy(frames)
    claims_more = good.replace(b"(3, 6, 8, 3)", b"(9, 6, 8, 3)")
    objects = layouts.npy(np.zeros(3)).replace(b"'<f8'", b"'|O' ")
    cases = {
        "0.video.npy in .* is damaged": {"0.video.npy": claims_more},
        "0.video.npy in .* is damaged ": {"0.video.npy": good[:-1]},
        "0.video.npy in .* is damaged  ": {"0.video.npy": b"not an array"},
        "holds object": {"0.video.npy": objects},
        "holds float64": {"0.video.npy": layouts.npy(frames.astype(float))},
        "has no frames": {"0.video.npy": layouts.npy(frames[:0])},
        "instead of bytes, T H W 3": {"0.video.npy": layouts.npy(ids)},
        "the frames have": {"0.video.npy": good, "0.segmentations.npy": layouts.npy(ids[:2])},
        "0.video.npy.gz in .* is damaged": {"0.video.npy.gz": gzip.compress(good)[:-40]},
        "0.video.npy.gz in .* is damaged ": {"0.video.npy.gz": gzip.compress(claims_more)},
        "0.video.npy.gz in .* is damaged  ": {"0.video.npy.gz": b"not gzip"},
    }
    for sentence, files in cases.items():
        layouts.write_tar(tmp_path / "a.tar", files)
        with pytest.raises(BadInput, match=sentence.strip()):
            layouts.read_all(vonet.data.open(tmp_path)[0])
    layouts.write_tar(tmp_path / "a.tar", {"1.segmentations.npy": layouts.npy(ids), "0.video.npy": good})
    videos = vonet.data.open(tmp_path)
    assert [video.name for video in videos] == ["0"]
    assert "has ids but no frames for 1" in videos.problems[0]


def test_a_gzip_bomb_does_not_go_off(tmp_path):
    """Three numbers and then a hundred megabytes: only what the header claims is unpacked."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    bomb = packer.compress(layouts.npy(np.zeros((1, 1, 1, 3), np.uint8)))
    bomb += b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    layouts.write_tar(tmp_path / "a.tar", {"0.video.npy.gz": bomb})
    tracemalloc.start()
    assert vonet.data.open(tmp_path)[0].frames.shape == (1, 1, 1, 3)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


# Pictures


def test_frames_of_different_sizes(tmp_path):
    frames, _ = layouts.clip()
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / f"{t}.png", frame if t < 2 else frame[:4])
    video = vonet.data.open(tmp_path)[0]
    assert (len(video), video.size) == (3, (6, 8))
    np.testing.assert_array_equal(video.read(0, 2), frames[:2])
    with pytest.raises(BadInput, match=r"2.png has 4x8 pixels where 6x8 are expected"):
        layouts.read_all(video)


def test_sixteen_bit_masks_keep_their_ids(tmp_path):
    frames, ids = layouts.clip()
    large = ids.astype(np.uint16) * 1000
    seen = layouts.write_masked_jpegs(tmp_path, frames, large)
    video = vonet.data.open(tmp_path)[0]
    assert video.ids.dtype == np.uint16
    np.testing.assert_array_equal(video.ids, large)
    np.testing.assert_array_equal(video.frames, seen)


def test_masks_of_another_size_or_in_colour(tmp_path):
    frames, ids = layouts.clip()
    layouts.write_masked_jpegs(tmp_path, frames, ids[:, :4])
    with pytest.raises(BadInput, match=r"000000_mask.png has 4x8 pixels"):
        layouts.read_all(vonet.data.open(tmp_path)[0])
    layouts.write_masked_jpegs(tmp_path, frames, frames)
    with pytest.raises(BadInput, match=r"000000_mask.png is a picture of kind RGB"):
        layouts.read_all(vonet.data.open(tmp_path)[0])


def test_a_picture_that_is_damaged_is_named(tmp_path):
    frames, _ = layouts.clip()
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / f"{t}.png", frame)
    for bad in (b"", b"nothing", layouts.png(frames[1])[:70]):
        (tmp_path / "1.png").write_bytes(bad)
        with pytest.raises(BadInput, match=r"1.png cannot be decoded"):
            layouts.read_all(vonet.data.open(tmp_path)[0])


def test_a_picture_that_claims_to_be_huge_is_refused_before_it_is_decoded(tmp_path):
    frames, _ = layouts.clip()
    data = layouts.png(frames[0])
    header = data[12:16] + struct.pack(">II", 60000, 60000) + data[24:29]
    huge = data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]
    layouts.save(tmp_path / "0.png", frames[0])
    (tmp_path / "1.png").write_bytes(huge)
    with pytest.raises(BadInput, match=r"1.png has more than \d+ million pixels"):
        layouts.read_all(vonet.data.open(tmp_path)[0])


def test_sequences_with_ids_for_some_frames_are_used_without(tmp_path):
    clips = {name: layouts.clip(seed, frames=6) for seed, name in enumerate(["bear", "camel", "swan"])}
    layouts.write_davis(tmp_path, "bear", *clips["bear"])
    seen = layouts.write_davis(tmp_path, "camel", *clips["camel"], annotated=[0, 5])
    videos = vonet.data.open(tmp_path)
    assert [(video.name, video.has_ids) for video in videos] == [("bear", True), ("camel", False)]
    np.testing.assert_array_equal(videos[1].frames, seen)
    assert "camel has ids for only some of the frames: it is used without ids" in videos.problems[0]
    layouts.write_davis(tmp_path, "swan", *clips["swan"], annotated=[0])
    problems = vonet.data.open(tmp_path).problems
    assert len(problems) == 1
    assert problems[0].startswith("2 videos (the first is")


def test_ids_of_another_resolution_are_no_videos(tmp_path):
    frames, ids = layouts.clip()
    layouts.write_davis(tmp_path, "bear", frames, ids[:, :4])
    videos = vonet.data.open(tmp_path)
    assert [(video.name, video.has_ids) for video in videos] == [("JPEGImages/480p/bear", False)]
    assert "ids only of another size than the frames" in videos.problems[0]


# Video files


def test_files_that_are_no_videos(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match=r"no usable video .*a.mp4 is damaged, cut short or no video"):
        vonet.data.open(tmp_path)
    with wave.open(str(tmp_path / "sound.mkv"), "w") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    with pytest.raises(BadInput, match=r"sound.mkv has no video in it"):
        vonet.data.open(tmp_path / "sound.mkv")
    layouts.write_video(tmp_path / "good.mp4", frames=3)
    videos = vonet.data.open(tmp_path)
    assert [video.name for video in videos] == ["good"]
    assert len(videos.problems) == 2


def test_a_video_of_an_unknown_codec_is_said(tmp_path):
    path = tmp_path / "a.mp4"
    layouts.write_video(path, frames=3)
    before, after = path.read_bytes().split(b"stsd", 1)
    path.write_bytes(before + b"stsd" + after.replace(b"avc1", b"zzzz", 1))
    with pytest.raises(BadInput, match=r"a.mp4 has a video in a format that cannot be decoded"):
        vonet.data.open(path)


def test_a_video_without_frames(tmp_path):
    layouts.write_video(tmp_path / "a.avi", "mpeg4", frames=0)
    with pytest.raises(BadInput, match=r"a.avi"):
        layouts.read_all(vonet.data.open(tmp_path)[0])
    with pytest.raises(BadInput, match=r"a.avi"):
        len(vonet.data.open(tmp_path)[0])


def test_a_video_that_is_cut_short(tmp_path):
    path = tmp_path / "a.mkv"
    layouts.write_video(path, options={"g": "12", "bf": "0"})
    everything = layouts.decode_video(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    video = vonet.data.open(path)[0]
    assert 5 < len(video) < 40
    np.testing.assert_array_equal(video.read(0, len(video) - 1), everything[: len(video) - 1])
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in video.pieces(4)]), video.frames)


def test_a_damaged_video_ends_at_the_damage(tmp_path, capfd):
    path = tmp_path / "a.mp4"
    layouts.write_video(path, options={"g": "12", "bf": "2"})
    everything = layouts.decode_video(path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = bytes(400)
    path.write_bytes(data)
    video = vonet.data.open(path)[0]
    assert 0 < len(video) < 40
    np.testing.assert_array_equal(video.frames[:5], everything[:5])
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in video.pieces(4)]), video.frames)
    with pytest.raises(BadInput, match=r"a.mp4 is damaged or cut short"):
        layouts.read_all(video)
    assert capfd.readouterr().err == ""


def test_a_video_whose_size_changes_keeps_that_of_its_first_frame(tmp_path):
    layouts.write_video(tmp_path / "a.ts", "mpeg2video", frames=6, options={"g": "1"})
    layouts.write_video(tmp_path / "b.ts", "mpeg2video", frames=6, height=96, width=128, options={"g": "1"})
    with (tmp_path / "a.ts").open("ab") as both:
        both.write((tmp_path / "b.ts").read_bytes())
    shutil.move(tmp_path / "b.ts", tmp_path / "b.ts.away")
    video = vonet.data.open(tmp_path)[0]
    assert len(video) > 7
    assert video.frames.shape == (len(video), 48, 64, 3)


def test_video_files_among_pictures_are_said(tmp_path):
    frames, _ = layouts.clip(frames=3)
    for t, frame in enumerate(frames):
        layouts.save(tmp_path / "seq" / f"{t}.png", frame)
    layouts.write_video(tmp_path / "clips/a.mp4", frames=2)
    videos = vonet.data.open(tmp_path)
    assert len(videos) == 1
    assert "1 video files (the first is" in videos.problems[0]


def test_masks_that_are_grey_three_times_and_masks_in_colour(tmp_path):
    frames, ids = layouts.clip(frames=2)
    for t in range(2):
        layouts.jpeg(tmp_path / "v" / f"{t:06d}.jpg", frames[t])
        layouts.save(tmp_path / "v" / f"{t:06d}_mask.png", np.repeat(ids[t][:, :, None], 3, axis=2))
    np.testing.assert_array_equal(vonet.data.open(tmp_path)[0].ids, ids)
    layouts.save(tmp_path / "v" / "000001_mask.png", frames[1])
    with pytest.raises(BadInput, match=r"000001_mask.png is a picture of kind RGB; ids need a grey picture"):
        _ = vonet.data.open(tmp_path)[0].ids


def test_deep_pictures_keep_their_numbers_or_are_refused(tmp_path):
    from PIL import Image

    ids = np.array([[0, 70_000], [3, 65_535]], np.int32)
    for t in range(2):
        layouts.save(tmp_path / "frames/v" / f"{t}.png", np.zeros((2, 2, 3), np.uint8))
        (tmp_path / "ids/v").mkdir(parents=True, exist_ok=True)
        Image.fromarray(ids).save(tmp_path / "ids/v" / f"{t}.tif")
    np.testing.assert_array_equal(vonet.data.open(tmp_path)[0].ids, np.stack([ids, ids]))
    for t in range(2):
        (tmp_path / "f").mkdir(exist_ok=True)
        Image.fromarray(np.full((2, 2), 0.5, np.float32)).save(tmp_path / "f" / f"{t}.tif")
    with pytest.raises(BadInput, match="holds floats"):
        _ = vonet.data.open(tmp_path / "f")[0].frames


def test_very_long_numbers_in_names(tmp_path):
    from vonet.data.tree import natural

    long = "9" * 5000
    assert sorted([f"{long}.png", "10.png", "009.png", "2.png"], key=natural) == [
        "2.png",
        "009.png",
        "10.png",
        f"{long}.png",
    ]
