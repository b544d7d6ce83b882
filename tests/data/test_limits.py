"""Indices that lie, and files that are small on the disc and large in memory."""

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

import vonet.data
from tests.data import layouts
from vonet import cli
from vonet.data import npy
from vonet.data.limits import Limits
from vonet.data.prepare import PrepareConfig, prepare
from vonet.data.store import Store, describe, open_store, write_video
from vonet.errors import BadInput

# The index of a store


@pytest.fixture
def stored(tmp_path):
    """The folder of a store with one video, and its index."""
    folder, made_by = tmp_path / "store", {"command": "generate"}
    with Store(folder, made_by) as made:
        about = {"name": "a", "split": "train", "made_by": made_by, "source": ""}
        write_video(made.path("train", 0), [layouts.clip()], about)
        made.finish([made.entry("train", 0)])
    return folder, json.loads((folder / "index.json").read_text())


def rewrite(folder, index):
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"frames": float("inf")}, "frames is inf; expected int"),
        ({"frames": -5}, "frames is -5; expected 1 to"),
        ({"frames": 10**6}, "do not fit into a file of"),
        ({"frames": True}, "frames is True; expected int"),
        ({"height": 0}, "height is 0; expected 1 to"),
        ({"width": "8"}, "width is '8'; expected int"),
        ({"frames_at": -1}, "from byte -1 on do not fit"),
        ({"ids": None}, "ids is None; expected bool"),
        ({"name": 5}, "name is 5; expected str"),
        ({"file": ["a"]}, "file is a list; expected str"),
        ({"bytes": ...}, "a video has no bytes"),
        ({"crc32": ...}, "a video has no crc32"),
    ],
)
def test_a_damaged_entry_is_named(stored, change, sentence):
    folder, index = stored
    (entry,) = index["videos"]
    index["videos"] = [{name: value for name, value in {**entry, **change}.items() if value is not ...}]
    rewrite(folder, index)
    with pytest.raises(BadInput, match=rf"index.json is damaged \(.*{sentence}.*run the command that made this store"):
        vonet.data.open(folder)


@pytest.mark.parametrize("videos", [5, None, {}, "x", [5], [[]], [None]])
def test_videos_that_are_no_list_of_videos(stored, videos):
    folder, index = stored
    rewrite(folder, {**index, "videos": videos})
    with pytest.raises(BadInput, match=r"index.json is damaged"):
        vonet.data.open(folder)


def test_brackets_without_end(stored):
    folder, _ = stored
    (folder / "index.json").write_text('{"format": "vonet-store", "videos": ' + "[" * 200_000)
    with pytest.raises(BadInput, match=r"index.json is damaged"):
        vonet.data.open(folder)
    (folder / "unfinished.json").write_text("[" * 200_000)
    with Store(folder, {"command": "generate"}):
        pass


@pytest.mark.parametrize("marker", ["5", "[1]", "null", '"x"'])
def test_a_marker_that_says_nothing_is_overwritten(stored, marker):
    folder, _ = stored
    (folder / "unfinished.json").write_text(marker)
    with Store(folder, {"command": "generate"}) as made:
        assert made.entry("train", 0) is not None


@pytest.mark.parametrize("file", ["/etc/passwd", "../secret", "train/../../secret", "", ".", "C:/x", "a\\b", "a\0b"])
def test_an_index_cannot_point_outside_its_store(stored, file):
    folder, index = stored
    (folder.parent / "secret").write_bytes((folder / "train" / "000000.npz").read_bytes())
    index["videos"][0]["file"] = file
    rewrite(folder, index)
    with pytest.raises(BadInput, match="expected a path inside the store"):
        vonet.data.open(folder)


def test_links_that_lead_out_of_a_store_are_problems(stored):
    folder, _ = stored
    inside, outside = folder / "train" / "000000.npz", folder.parent / "secret"
    inside.rename(outside)
    inside.symlink_to(outside)
    videos = open_store(folder)
    assert len(videos) == 0
    assert "is a link that leads out of the store: put the file itself there" in videos.problems[0]
    inside.unlink()
    outside.rename(folder / "train" / "elsewhere")
    inside.symlink_to("elsewhere")
    assert len(open_store(folder)) == 1  # a link within the store
    (folder / "train").rename(folder.parent / "train")
    (folder / "train").symlink_to(folder.parent / "train")
    assert "leads out of the store" in open_store(folder).problems[0]


def test_the_folder_of_a_store_may_be_a_link(stored):
    folder, _ = stored
    (folder.parent / "link").symlink_to(folder)
    assert len(vonet.data.open(folder.parent / "link")[0].frames) == 3


def rewritten(path, **members):
    """The video file with other arrays, and its index entry."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive if name != "about.json"}
    about = json.dumps({"name": "a", "made_by": {"command": "generate"}, "source": ""}).encode()

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**arrays, **members}.items():
            archive.writestr(f"{name}.npy", layouts.npy(array))
        archive.writestr("about.json", about)
    return {"split": "train", "file": "train/000000.npz", **describe(path)}


def test_ids_that_are_no_runs_of_the_frames(stored):
    folder, index = stored
    path = folder / "train" / "000000.npz"
    whole = path.read_bytes()
    for broken in (
        {
            "ids_lengths": np.full(3, 2**32 - 1, np.uint32),
            "ids_values": np.ones(3, np.uint8),
            "ids_starts": np.arange(4),
        },
        {"ids_starts": np.zeros(2, np.int64)},
        {"ids_starts": np.arange(4)},
        {"ids_values": np.zeros(3)},
        {"ids_starts": np.zeros((2, 2), np.int64)},
    ):
        path.write_bytes(whole)
        rewrite(folder, {**index, "videos": [rewritten(path, **broken)]})
        with pytest.raises(BadInput, match="is missing or damaged"):
            _ = vonet.data.open(folder)[0].ids


def test_arrays_of_a_store_are_limited_together(stored):
    folder, index = stored
    path = folder / "train" / "000000.npz"
    rewrite(folder, {**index, "videos": [rewritten(path, large=np.zeros(5_000_000, np.uint8))]})
    assert vonet.data.open(folder)[0].annotations["large"].size == 5_000_000
    with pytest.raises(BadInput, match=r"takes 0.0 GB of memory, more than the limit of 0.001: .*--max-gigabytes"):
        _ = vonet.data.open(folder, limits=Limits(gigabytes=0.001))[0].annotations
    with pytest.raises(BadInput, match=r"has 6x8 pixels, more than the limit of 4e-05 million"):
        vonet.data.open(folder, limits=Limits(megapixels=0.00004))


# Arrays


@pytest.mark.parametrize(
    "shape", ["(-3, -6, 8, 3)", f"({2**63}, 1, 1, 3)", "(-3, -6, 8, 1)", f"({2**40}, {2**40}, 8, 3)", "(3.0, 6, 8, 3)"]
)
def test_shapes_that_cannot_be(tmp_path, shape):
    """They are problems of their video alone: all others are prepared."""
    good = layouts.npy(layouts.clip()[0])
    header = good[10:128].decode("latin1").replace("(3, 6, 8, 3)", shape).rstrip().ljust(117) + "\n"
    bad = good[:8] + struct.pack("<H", len(header)) + header.encode("latin1") + good[128:]
    with pytest.raises(npy.BadHeader):
        npy.read_header(io.BytesIO(bad))
    for suffix, pack in (("", bytes), (".gz", gzip.compress)):
        files = {f"0.video.npy{suffix}": pack(bad), f"1.video.npy{suffix}": pack(good)}
        layouts.write_tar(tmp_path / f"in{suffix}" / "a.tar", files)
        made = prepare(tmp_path / f"in{suffix}", tmp_path / f"out{suffix}", PrepareConfig(), workers=1)
        assert [video.name for video in vonet.data.open(tmp_path / f"out{suffix}")] == ["1"]
        assert f"0.video.npy{suffix}" in made.problems[0]


def test_arrays_of_objects_are_not_read(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with (tmp_path / "a.npy").open("rb") as file, pytest.raises(npy.BadHeader):
        npy.read_array(file, (tmp_path / "a.npy").stat().st_size)


def test_a_gzipped_array_is_read_in_any_order_and_in_pieces(tmp_path):
    """Some 60 MB that take 60 kB in the tar are read in the memory of a piece."""
    frames = np.zeros((300, 256, 256, 3), np.uint8)
    frames[:, 0, 0, 0] = np.arange(300) % 251
    layouts.write_tar(tmp_path / "a.tar", {"0.video.npy.gz": gzip.compress(layouts.npy(frames), 1)})
    video = vonet.data.open(tmp_path)[0]
    tracemalloc.start()
    seen = [int(frame[0, 0, 0]) for piece, _ in video.pieces(8) for frame in piece]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == frames[:, 0, 0, 0].tolist()
    assert most < 12_000_000
    for start, stop in ((290, 300), (3, 5), (4, 9), (0, 1), (299, 300)):
        np.testing.assert_array_equal(video.read(start, stop), frames[start:stop])


# Pictures and frames


def claimed(height, width):
    """A PNG that claims to be of this size."""
    data = layouts.png(layouts.clip()[0][0])
    header = data[12:16] + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def test_pictures_beyond_the_limit_are_refused_before_they_are_decoded(tmp_path):
    for t in range(2):
        (tmp_path / f"{t}.png").write_bytes(claimed(13_000, 12_000))
    tracemalloc.start()
    with pytest.raises(
        BadInput, match=r"0.png has 13000x12000 pixels, more than the limit of 36 million: reduce it, or"
    ):
        layouts.read_all(vonet.data.open(tmp_path)[0])
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_every_layout_knows_the_limits(tmp_path):
    frames, ids = layouts.clip()
    layouts.write_shards(tmp_path / "tfds", [layouts.movi()[0]], 1)
    layouts.write_tar(tmp_path / "tars" / "a.tar", {"0.video.npy": layouts.npy(frames)})
    layouts.write_pickle(tmp_path / "pickles" / "video_1.pkl", frames, ids)
    layouts.save(tmp_path / "pictures" / "0.png", frames[0])
    layouts.save(tmp_path / "pictures" / "1.png", frames[1])
    layouts.write_video(tmp_path / "files" / "a.mp4", frames=2, height=16, width=16)
    for name in ("tfds", "tars", "pickles", "pictures", "files"):
        layouts.read_all(vonet.data.open(tmp_path / name)[0])
        with pytest.raises(BadInput, match=r"pixels, more than the limit of 4e-05 million: reduce it, or"):
            layouts.read_all(vonet.data.open(tmp_path / name, limits=Limits(megapixels=0.00004))[0])
    with pytest.raises(BadInput, match=r"video_1.pkl takes 0.0 GB of memory, more than the limit of 1e-07"):
        layouts.read_all(vonet.data.open(tmp_path / "pickles", limits=Limits(gigabytes=1e-7))[0])


def test_limits_are_options_of_the_commands(tmp_path, capsys):
    frames, _ = layouts.clip()
    for t in range(2):
        layouts.save(tmp_path / "in" / f"{t}.png", frames[t])
    for words in (["inspect", "--json"], ["prepare", str(tmp_path / "out"), "--workers", "1"]):
        command, *rest = words
        with pytest.raises(SystemExit):
            cli.main([command, str(tmp_path / "in"), *rest, "--max-megapixels", "0.00001"])
        assert "more than the limit of 1e-05 million: reduce it, or raise --max-megapixels" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["inspect", str(tmp_path / "in"), "--max-gigabytes", "0"])
    assert "max-gigabytes is 0.0; it must be more than 0 and finite" in capsys.readouterr().err


def test_shards_of_a_store_that_are_no_videos(stored):
    folder, _ = stored
    path = folder / "train" / "000000.npz"

    for content in (b"[]", b"5", b'{"x": 1}', b"[" * 200_000):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("frames.npy", layouts.npy(layouts.clip()[0]))
            archive.writestr("about.json", content)
        assert describe(path) is None
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("frames.npy", layouts.npy(np.zeros(3, np.uint8)))
        archive.writestr("about.json", b'{"name": "a"}')
    assert describe(path) is None
