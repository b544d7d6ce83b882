"""TFRecords: what was written is read; whatever else the bytes are, `BadInput` and nothing worse."""

import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data import layouts
from vonet.data.records import Example, check_payload, decode_varints, index_records, masked_crc
from vonet.data.tfds import Names, Record, RecordVideo, Shard
from vonet.errors import BadInput

MEMORY = 4_000_000  # far more than the small shards here need, far less than a believed length would take
relaxed = settings(deadline=None, max_examples=100, database=None, suppress_health_check=list(HealthCheck))

PAYLOADS = [layouts.example(layouts.movi(name=n, frames=2, height=3, width=4)[0]) for n in "ab"]
SHARD = b"".join(map(layouts.framed, PAYLOADS))
REST = layouts.framed(layouts.example({"video": [b"x"]}))


def test_the_checksum_is_that_of_the_standard():
    assert masked_crc(b"123456789") == (0xE3069283 >> 15 | 0xE3069283 << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF
    long = bytes(range(256)) * 5000
    assert struct.pack("<I", masked_crc(long)) == layouts.masked(long)


def test_records_are_found_and_checked():
    payloads = [b"", b"one", b"x" * 70000]
    shard = memoryview(b"".join(layouts.framed(payload) for payload in payloads))
    records, wrong = index_records(shard)
    assert [bytes(shard[start:stop]) for start, stop in records] == payloads
    assert wrong is None
    for start, stop in records:
        check_payload(shard, start, stop, "it")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@relaxed
def test_all_integers_are_read_packed_or_not(numbers):
    singles = b"".join(layouts.varint(1 << 3) + layouts.varint(n) for n in numbers)
    half = len(numbers) // 2
    mixed = b"".join(layouts.varint(1 << 3) + layouts.varint(n) for n in numbers[:half])
    mixed += layouts.delimited(1, b"".join(map(layouts.varint, numbers[half:])))
    for content in (singles, mixed, layouts.delimited(1, b"".join(map(layouts.varint, numbers)))):
        entry = layouts.delimited(1, b"k") + layouts.delimited(2, layouts.delimited(3, content))
        example = Example(memoryview(layouts.delimited(1, layouts.delimited(1, entry))), "it")
        assert example.integers("k").tolist() == numbers


def test_floats_are_read_packed_or_not():
    numbers = np.array([1.5, -2.25, 3e30], "<f4")
    singles = b"".join(layouts.varint(1 << 3 | 5) + number.tobytes() for number in numbers)
    for content in (singles, layouts.delimited(1, numbers.tobytes())):
        entry = layouts.delimited(1, b"k") + layouts.delimited(2, layouts.delimited(2, content))
        example = Example(memoryview(layouts.delimited(1, layouts.delimited(1, entry))), "it")
        np.testing.assert_array_equal(example.floats("k"), numbers)


def test_unknown_fields_are_passed_over():
    unknown = layouts.varint(9 << 3) + layouts.varint(300) + layouts.varint(8 << 3 | 1) + bytes(8)
    entry = (
        unknown
        + layouts.delimited(1, b"k")
        + layouts.delimited(7, b"?")
        + layouts.delimited(2, layouts.feature([b"v"]))
    )
    example = Example(memoryview(unknown + layouts.delimited(1, layouts.delimited(1, entry))), "it")
    assert [bytes(value) for value in example.bytes_list("k")] == [b"v"]


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 10 + b"\x01", b"\x01\x80"])
def test_numbers_that_do_not_end_are_refused(data):
    assert decode_varints(memoryview(data)) is None


def read_all(shard: bytes, path: Path):
    """Everything a user can ask of a shard; only `BadInput` may be raised, and little memory taken."""
    path.write_bytes(shard)
    tracemalloc.start()
    with suppress(BadInput):
        records, _ = index_records(memoryview(shard))
        owned = [Record(Shard(path, "movi_a", "train", 0, 1), i, *span) for i, span in enumerate(records)]
        names = Names(owned)
        for number, record in enumerate(owned):
            read_video(RecordVideo(record, names, number))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY


def read_video(video):
    asks = [lambda: video.name, lambda: video.size, lambda: video.frames, lambda: video.ids]
    asks += [lambda name=name: video.field(name) for name in ("depth", "forward_flow", "normal")]
    asks += [lambda: [video.annotations[key] for key in video.annotations]]
    for ask in asks:
        with suppress(BadInput):
            ask()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "movi_a-train.tfrecord-00000-of-00001"


@given(st.binary(max_size=200))
@relaxed
def test_random_bytes(path, data):
    read_all(data, path)


mutations = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert", "grow"]), st.floats(0, 1), st.binary(min_size=1, max_size=9)),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, changes) -> bytes:
    for kind, where, what in changes:
        at = int(where * len(data))
        if kind == "flip":
            data = data[:at] + bytes(b ^ w for b, w in zip(data[at:], what, strict=False)) + data[at + len(what) :]
        elif kind == "cut":
            data = data[:at] + data[at + what[0] :]
        elif kind == "insert":
            data = data[:at] + what + data[at:]
        else:
            data = data[:at]
    return data


@given(mutations)
@relaxed
def test_mutated_shards(path, changes):
    read_all(mutated(SHARD, changes), path)


@given(mutations)
@relaxed
def test_mutated_payloads_with_right_checksums(path, changes):
    """So that the parser of the payload is really reached."""
    read_all(layouts.framed(mutated(PAYLOADS[0], changes)) + REST, path)


@given(st.integers(0, 600), st.binary(min_size=1, max_size=12))
@relaxed
def test_mutated_beginnings_of_payloads(path, at, what):
    """Where lengths and names are dense."""
    read_all(layouts.framed(PAYLOADS[0][:at] + what + PAYLOADS[0][at + len(what) :]), path)


messages = st.recursive(
    st.binary(max_size=20),
    lambda inner: st.lists(st.tuples(st.integers(1, 4), inner), max_size=4).map(
        lambda fields: b"".join(layouts.delimited(number, content) for number, content in fields)
    ),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.sampled_from(["video", "segmentations", "depth", "forward_flow"]), messages), max_size=3))
@relaxed
def test_random_features_under_the_names_of_movi(path, entries):
    content = (layouts.delimited(1, layouts.delimited(1, k.encode()) + layouts.delimited(2, v)) for k, v in entries)
    read_all(layouts.framed(layouts.delimited(1, b"".join(content))), path)


@pytest.mark.parametrize("length", [2**63, 2**40, 10**6])
def test_a_length_that_is_not_there_is_not_believed(path, length):
    header = struct.pack("<Q", length)
    read_all(header + layouts.masked(header) + b"abc", path)
    read_all(layouts.framed(b"\x0a" + layouts.varint(length)), path)
