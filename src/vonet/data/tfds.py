"""Reads MOVi as TensorFlow Datasets writes it: shards named `movi_a-train.tfrecord-00003-of-00512`, in any folder.

Opening a set jumps from record header to record header, so the number of videos is exact and damage is noticed. A
record's checksum is verified before the record is decoded. Only requested fields are decoded; optical flow in
particular is skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer, UInt8

from vonet.data import images
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.records import Example, check_payload, index_records, map_file
from vonet.data.tree import SPLITS, Tree, read_bytes, split_and_rest
from vonet.data.video import Video, Videos
from vonet.errors import BadInput

SHARD = re.compile(r"(?P<dataset>.+)-(?P<split>[^-]+)\.tfrecord-(?P<number>\d{5})-of-(?P<count>\d{5})")

FIELDS = ("depth", "forward_flow", "backward_flow", "normal", "object_coordinates")

# How the flat lists of a record are to be seen; T is the number of frames, -1 whatever results.
SHAPES: Mapping[str, tuple[int | str, ...]] = {
    "camera/positions": ("T", 3),
    "camera/quaternions": ("T", 4),
    "instances/positions": (-1, "T", 3),
    "instances/velocities": (-1, "T", 3),
    "instances/angular_velocities": (-1, "T", 3),
    "instances/quaternions": (-1, "T", 4),
    "instances/image_positions": (-1, "T", 2),
    "instances/bboxes_3d": (-1, "T", 8, 3),
    "instances/visibility": (-1, "T"),
    "instances/color": (-1, 3),
    "instances/bboxes/ragged_flat_values": (-1, 4),
    "events/collisions/instances": (-1, 2),
    "events/collisions/position": (-1, 3),
    "events/collisions/image_position": (-1, 2),
    "events/collisions/contact_normal": (-1, 3),
}


@dataclass(frozen=True)
class Shard:
    """One file of a TFDS dataset."""

    path: Path
    dataset: str
    split: str
    number: int
    count: int


@dataclass(frozen=True)
class Record:
    """One record of a shard, by its byte range."""

    shard: Shard
    number: int
    start: int
    stop: int

    @property
    def where(self) -> str:
        return f"record {self.number} of {self.shard.path}"

    def example(self) -> Example:
        return Example(map_file(self.shard.path)[self.start : self.stop], self.where)

    def check(self) -> None:
        check_payload(map_file(self.shard.path), self.start, self.stop, self.where)


class Names:
    """The names of the videos of a set. They are stored in the records, so the first request for a name looks into all
    records, and none are read before."""

    def __init__(self, records: Sequence[Record]):
        self._records = records

    @cached_property
    def all(self) -> list[str]:
        places = [f"{r.shard.split}-{r.shard.number:05d}-{r.number:05d}" for r in self._records]
        return _distinct([_told_name(record) for record in self._records], places)


def _told_name(record: Record) -> str:
    try:
        told = record.example().bytes_list("metadata/video_name")
    except BadInput:
        return ""
    return bytes(told[0]).decode("utf-8", "replace") if told else ""


def _distinct(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Makes names unique: an empty or repeated name is extended by its position in the shards."""
    count = Counter(names)
    told = [
        name if name and count[name] == 1 else f"{name} {place}".strip()
        for name, place in zip(names, places, strict=True)
    ]
    return told if len(set(told)) == len(told) else list(places)


class RecordVideo(Video):
    """One record of MOVi. Beside frames and ids it has `annotations` and, through `field`, large fields such as depth
    and flow."""

    def __init__(self, record: Record, names: Names, number: int, limits: Limits = DEFAULT_LIMITS):
        self.split = record.shard.split
        self._record, self._names, self._number, self._limits = record, names, number, limits

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return self._names.all[self._number]

    def __getstate__(self) -> dict[str, Any]:
        """Another process gets the name of this video, not the table of all names."""
        return {**super().__getstate__(), "name": self.name, "_names": None}

    @cached_property
    def _unchecked(self) -> Example:
        """The record without its checksum verified, for quick access to small parts."""
        return self._record.example()

    @cached_property
    def _example(self) -> Example:
        self._record.check()
        return self._unchecked

    @cached_property
    def _length(self) -> int:
        return len(_pictures(self._unchecked, "video", self._record.where))

    def __len__(self) -> int:
        return self._length

    @cached_property
    def size(self) -> tuple[int, int]:
        first = _pictures(self._unchecked, "video", self._record.where)[0]
        return images.size_of(first, f"frame 0 of {self._record.where}", self._limits)

    @cached_property
    def has_ids(self) -> bool:
        return "segmentations" in self._unchecked and bool(self._unchecked.bytes_list("segmentations"))

    @property
    def files(self) -> Sequence[Path]:
        return [self._record.shard.path]

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        return self._decode("video", images.read_rgb, start, stop)

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        return self._decode("segmentations", images.read_ids, start, stop)

    def _decode(self, field: str, reader: Any, start: int, stop: int) -> np.ndarray:
        pictures = _pictures(self._example, field, self._record.where)
        if len(pictures) != len(self):
            raise BadInput(f"{self._record.where} has {len(self)} frames but {len(pictures)} pictures of {field}")
        where = f"of {field} of {self._record.where}"
        return np.stack([reader(pictures[t], f"frame {t} {where}", self.size) for t in range(start, stop)])

    def field(self, name: str) -> np.ndarray:
        """Depth in scene units (`T H W`) or flow in pixels (`T H W 2`, row and column) as floats; normals or object
        coordinates as stored, in 16 bits (`T H W 3`)."""
        if name not in FIELDS or name not in self._unchecked:
            have = ", ".join(field for field in FIELDS if field in self._unchecked) or "none"
            raise BadInput(f"{self._record.where} has no field {name!r}; it has {have}")
        if name in ("normal", "object_coordinates"):
            return self._decode(name, images.read_rgb16, 0, len(self))
        if name == "depth":
            return self._in_units(self._decode(name, images.read_ids, 0, len(self)), name)
        codes = self._example.integers(name)
        shape = (len(self), *self.size, 2)
        if codes.size != np.prod(shape):
            raise BadInput(f"{name} of {self._record.where} has {codes.size} numbers instead of {np.prod(shape)}")
        return self._in_units(codes.reshape(shape), name)

    def _in_units(self, codes: np.ndarray, name: str) -> Float32[np.ndarray, ...]:
        """Fields are stored as integers from 0 to 65535, which are scaled to a range that the record gives."""
        span = self._example.floats(f"metadata/{name}_range")
        if len(span) != 2:
            raise BadInput(f"metadata/{name}_range of {self._record.where} has {len(span)} numbers instead of 2")
        low, high = span.astype(float)
        return (codes * ((high - low) / 65535) + low).astype(np.float32)

    @cached_property
    def annotations(self) -> Mapping[str, Any]:
        return Annotations(self._example, len(self), self._record.where)


def _pictures(example: Example, field: str, where: str) -> list[memoryview]:
    pictures = example.bytes_list(field)
    if not pictures:
        raise BadInput(f"{where} has no frames in {field!r}; a video needs at least one")
    return pictures


class Annotations(Mapping[str, np.ndarray]):
    """All other features of a record, by their names there (`instances/positions`), decoded on access."""

    def __init__(self, example: Example, frames: int, where: str):
        self._example, self._frames, self._where = example, frames, where
        self._names = [name for name in example if name not in ("video", "segmentations", *FIELDS)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        kind = self._example.kind(name)
        if kind is bytes:
            return _texts(self._example.bytes_list(name))
        values = self._example.integers(name) if kind is int else self._example.floats(name)
        shape = [self._frames if isinstance(side, str) else side for side in SHAPES.get(name, (-1,))]
        try:
            return values.reshape(shape)
        except ValueError:
            raise BadInput(f"{name} of {self._where} has {values.size} numbers, not the shape {shape}") from None


def _texts(values: Sequence[memoryview]) -> np.ndarray:
    texts = np.empty(len(values), object)
    for at, value in enumerate(values):
        try:
            texts[at] = str(value, "utf-8")
        except UnicodeDecodeError:
            texts[at] = bytes(value)
    return texts


def find(tree: Tree) -> Videos | None:
    """TFDS shards below a path; None if there are none."""
    sets: dict[tuple[str, Path], list[Shard]] = defaultdict(list)
    for folder, names in tree.folders.items():
        for name in names:
            if match := SHARD.fullmatch(name):
                split = SPLITS.get(match["split"], match["split"])
                shard = Shard(folder / name, match["dataset"], split, int(match["number"]), int(match["count"]))
                _, rest = split_and_rest(tree.below(folder))
                sets[shard.dataset, Path(*rest)].append(shard)
    if not sets:
        return None
    if len(sets) > 1:
        places = ", ".join(f"{dataset} in {tree.root / folder}" for dataset, folder in sets)
        raise BadInput(f"{tree.root} holds {len(sets)} datasets ({places}): point at the folder of one of them")
    return _open_set(tree, *sets.values())


def _open_set(tree: Tree, shards: Sequence[Shard]) -> Videos:
    problems = [] if tree.is_file else _missing(tree, shards)
    told, unreadable = _told_lengths({shard.path.parent for shard in shards})
    problems += unreadable
    records: list[Record] = []
    for shard in shards:
        found, wrong = _index(shard)
        expected = told.get((shard.split, shard.count), {}).get(shard.number)
        if wrong is None and expected not in (None, len(found)):
            wrong = f"has {len(found)} records where dataset_info.json says {expected}: download it again"
        elif wrong is None and not found and expected is None:
            wrong = "is empty: download it again"
        records += found
        if wrong:
            problems.append(f"{shard.path} {wrong}")
    names = Names(records)
    videos = [RecordVideo(record, names, number, tree.limits) for number, record in enumerate(records)]
    return Videos(videos, f"TFDS shards of {shards[0].dataset}", tree.root, problems)


def _index(shard: Shard) -> tuple[list[Record], str | None]:
    try:
        spans, wrong = index_records(map_file(shard.path))
    except BadInput:
        return [], "cannot be read"
    if wrong:
        usable = f"the {len(spans)} records before are used" if spans else "nothing of it can be used"
        wrong = f"{wrong}; {usable}: download it again"
    return [Record(shard, number, *span) for number, span in enumerate(spans)], wrong


def _missing(tree: Tree, shards: Sequence[Shard]) -> list[str]:
    """One sentence for each split with missing shards."""
    by_split: dict[str, list[Shard]] = defaultdict(list)
    for shard in shards:
        by_split[shard.split].append(shard)
    sentences = []
    for split, group in by_split.items():
        counts = {shard.count for shard in group}
        if len(counts) > 1 or len({shard.number for shard in group}) < len(group):
            said = " and ".join(str(count) for count in sorted(counts))
            raise BadInput(f"{tree.root} holds the split {split!r} more than once (shards of {said}): keep one of them")
        count = counts.pop()
        lacking = sorted(set(range(count)) - {shard.number for shard in group})
        if lacking:
            word = "shard" if len(lacking) == 1 else "shards"
            sentences.append(
                f"{word} {spoken(lacking)} of {count} of the split {split!r} "
                f"{'is' if len(lacking) == 1 else 'are'} missing below {tree.root}: download what is missing"
            )
    return sentences


def spoken(numbers: Sequence[int]) -> str:
    """Formats a list of numbers as text: 3, 7 and 10 to 12."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = []
    for run in runs:
        said += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))


def _told_lengths(folders: set[Path]) -> tuple[dict[tuple[str, int], dict[int, int]], list[str]]:
    """Number of records in each shard by dataset_info.json, for each split and number of shards."""
    told: dict[tuple[str, int], dict[int, int]] = {}
    problems = []
    for path in sorted({folder / "dataset_info.json" for place in folders for folder in (place, place.parent)}):
        if not path.is_file():
            continue
        try:
            for split in json.loads(read_bytes(path))["splits"]:
                lengths = [int(length) for length in split.get("shardLengths", ())]  # as numbers or as texts
                told[SPLITS.get(split["name"], split["name"]), len(lengths)] = dict(enumerate(lengths))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            problems.append(f"{path} cannot be understood, so the numbers of records were not compared with it")
    return told, problems
