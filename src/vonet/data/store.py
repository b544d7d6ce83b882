"""The store: the format that `vonet generate` and `vonet prepare` write and training reads.

A store is a folder with one index and one `.npz` file per video, which plain numpy can read::

    OUT/index.json           format, version, how it was made, and for each video its file, length, size and checksum
    OUT/train/000000.npz     frames       T H W 3 bytes, not compressed, so that any range of frames is one read
                             ids_values   true ids as runs of equal ids over the pixels of a frame, row by row
                             ids_lengths  np.repeat(ids_values, ids_lengths).reshape(frames.shape[:3]) is ids, T H W
                             ids_starts   frame t has the runs ids_starts[t] to ids_starts[t + 1]
                             about.json   whatever else is known, beside any number of further arrays

Every file is written to a temporary name and renamed. The index comes last, after all videos are synced to the disk: a
folder without an index is not a store. A video that replaces another one gets a new file, so the old index stays valid
until the new one replaces it. So an interrupted command continues where it stopped, any number of processes may read,
and a lock keeps two writers apart. Only a power loss can leave a damaged video, which no index lists; it is made again.
"""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from vonet.data import npy
from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.data.store_index import FORMAT, INDEX, VERSION, Entry, Inside, read_index
from vonet.data.video import Video, Videos
from vonet.errors import BadInput
from vonet.writing import LOCK, PART, disc_refusals, only_writer, sync_file_system, written_aside

STORE = "vonet store"
UNFINISHED = "unfinished.json"
BROKEN = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    IndexError,
    RuntimeError,  # also RecursionError
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""Exceptions that zipfile, numpy and json raise on damaged files."""
ID_TYPES = (np.uint8, np.uint16, np.uint32)


def run_lengths(ids: Integer[np.ndarray, "T H W"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run-length encoding of ids: values and lengths of the runs, and the number of runs of each frame."""
    if ids.min() < 0 or ids.max() > np.iinfo(ID_TYPES[-1]).max:
        raise BadInput(f"ids are from {ids.min()} to {ids.max()}; expected 0 (the background) to {2**32 - 1}")
    rows = ids.reshape(len(ids), -1)
    begins = np.ones(rows.shape, bool)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    at = np.flatnonzero(begins)
    return rows.ravel()[at], np.diff(at, append=rows.size).astype(np.uint32), begins.sum(axis=1)


def write_video(
    path: Path,
    pieces: Iterable[tuple[np.ndarray, np.ndarray | None]],
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes one video file from pieces of frames and ids (ids in all pieces, or in none), with the memory of one
    piece.

    `about` holds at least `name` and `made_by`, and optionally `source`."""
    values: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    frames_count, size = 0, (0, 0)
    with written_aside(path, sync=False) as aside, tempfile.TemporaryFile(dir=path.parent) as raw:
        for frames, ids in pieces:
            frames_count, size = frames_count + len(frames), frames.shape[1:3]
            raw.write(np.ascontiguousarray(frames, np.uint8).tobytes())
            if ids is not None:
                for kept, new in zip((values, lengths, counts), run_lengths(ids), strict=True):
                    kept.append(new)
        if not frames_count:
            raise BadInput(f"{about.get('name', path)} has no frames; a video needs at least one")
        with zipfile.ZipFile(aside, "w") as archive:
            with archive.open(_member("frames.npy"), "w", force_zip64=True) as member:
                header = {"descr": "|u1", "fortran_order": False, "shape": (frames_count, *size, 3)}
                np.lib.format.write_array_header_1_0(member, header)
                raw.seek(0)
                while block := raw.read(1 << 20):
                    member.write(block)
            if values:
                joined = np.concatenate(values)
                _write_array(archive, "ids_values", joined.astype(_smallest(joined)))
                runs = np.concatenate(lengths)
                _write_array(archive, "ids_lengths", runs.astype(_smallest(runs)))
                _write_array(archive, "ids_starts", np.cumsum([0, *np.concatenate(counts)]).astype(np.int64))
            for name, array in (arrays or {}).items():
                _write_array(archive, name, array, zipfile.ZIP_DEFLATED)
            text = json.dumps(about, ensure_ascii=False, sort_keys=True, indent=1)
            archive.writestr(_member("about.json", zipfile.ZIP_DEFLATED), text)


def _member(name: str, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    """Omits the time of day, so that the same video gives the same bytes."""
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.compress_type = compression
    return member


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray, compression: int = zipfile.ZIP_STORED) -> None:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
    archive.writestr(_member(f"{name}.npy", compression), content.getvalue())


def _smallest(values: np.ndarray) -> np.dtype:
    """The smallest unsigned type that holds all values."""
    return next(np.dtype(t) for t in ID_TYPES if int(values.max()) <= np.iinfo(t).max)


class StoredVideo(Video):
    """A video of a store: one .npz file whose frames are read by their offset."""

    def __init__(self, root: Path, entry: Entry, limits: Limits = DEFAULT_LIMITS):
        super().__init__(entry.name, entry.split)
        self.path = root / entry.file
        self._length, self._size = entry.frames, (entry.height, entry.width)
        self._has_ids, self._frames_at = entry.ids, entry.frames_at
        self._limits = limits

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> tuple[int, int]:
        return self._size

    @property
    def has_ids(self) -> bool:
        return self._has_ids

    @property
    def files(self) -> Sequence[Path]:
        return [self.path]

    def _read(self, start: int, stop: int) -> UInt8[np.ndarray, "T H W 3"]:
        shape = (stop - start, *self._size, 3)
        frame = self._size[0] * self._size[1] * 3
        try:
            pixels = np.fromfile(self.path, np.uint8, (stop - start) * frame, offset=self._frames_at + start * frame)
            return pixels.reshape(shape)
        except BROKEN:
            raise _broken(self.path) from None

    def _read_ids(self, start: int, stop: int) -> Integer[np.ndarray, "T H W"]:
        values, lengths, starts = self._runs
        runs = slice(starts[start], starts[stop])
        shape = (stop - start, *self._size)
        if lengths[runs].sum(dtype=np.uint64) != prod(shape):
            raise _broken(self.path)
        return np.repeat(values[runs], lengths[runs]).reshape(shape)

    @cached_property
    def _runs(self) -> tuple[np.ndarray, ...]:
        values, lengths, starts = self._arrays(["ids_values", "ids_lengths", "ids_starts"]).values()
        whole = values.dtype.kind == lengths.dtype.kind == "u" and starts.dtype == np.int64
        whole = whole and values.shape == lengths.shape == (values.size,) and starts.shape == (len(self) + 1,)
        if not whole or starts[0] != 0 or starts[-1] != values.size or (np.diff(starts) < 1).any():
            raise _broken(self.path)
        return values, lengths, starts

    @cached_property
    def annotations(self) -> Mapping[str, Any]:
        """The content of about.json and the further arrays of the file."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                about = _about(archive)
                names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
        except BROKEN:
            raise _broken(self.path) from None
        return about | self._arrays([n for n in names if n != "frames" and not n.startswith("ids_")])

    def _arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Further arrays of the file; their total size is limited."""
        found: dict[str, np.ndarray] = {}
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = {name: archive.getinfo(f"{name}.npy") for name in names}
                size = sum(member.file_size for member in members.values())
                if size <= self._limits.gigabytes * 1e9:
                    for name, member in members.items():
                        with archive.open(member) as file:
                            found[name] = npy.read_array(file, member.file_size)
        except BROKEN:
            raise _broken(self.path) from None
        self._limits.check_bytes(size, f"what {self.path} holds besides frames")
        return found


ABOUT_BYTES = 64 << 20


def _about(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The content of about.json; raises one of `BROKEN` if it is not a JSON object of reasonable size."""
    if archive.getinfo("about.json").file_size > ABOUT_BYTES:
        raise ValueError
    about = json.loads(archive.read("about.json"))
    if not isinstance(about, dict):
        raise TypeError
    return about


def _broken(path: Path) -> BadInput:
    return BadInput(f"{path} is missing or damaged: run the command that made this store again, it repairs it")


def describe(path: Path) -> dict[str, Any] | None:
    """The index entry of a video file, from its content alone; None if the file is missing or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
            names = archive.namelist()
            with archive.open("frames.npy") as member:
                (frames, height, width, _), _, _ = npy.read_header(member)
                header = member.tell()
            about = {"made_by": None, "source": "", **_about(archive)}
            where = archive.getinfo("frames.npy").header_offset
        with path.open("rb") as file:
            file.seek(where + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
            file.seek(0)
            checksum = 0
            while block := file.read(1 << 20):
                checksum = zlib.crc32(block, checksum)
        about["name"]
    except BROKEN:
        return None
    return {
        "name": about["name"],
        "made_by": about["made_by"],
        "source": about["source"],
        "frames": frames,
        "height": height,
        "width": width,
        "ids": "ids_values.npy" in names,
        "frames_at": where + 30 + int(lengths.sum()) + header,
        "bytes": path.stat().st_size,
        "crc32": checksum,
    }


class Store:
    """Writes a store. Use it as a context manager: it holds the folder's lock.

    `made_by` holds all options that determine the videos; a folder that was made with other options is refused.
    Requesting more videos than a finished store has extends it.
    """

    def __init__(self, out: Path, made_by: Mapping[str, Any]):
        self.out = out
        self.made_by = json.loads(json.dumps(made_by))
        self._lock = ExitStack()

    def __enter__(self) -> Store:
        self._lock.enter_context(only_writer(self.out))
        try:
            self._begin()
        except BaseException:
            self._lock.close()
            raise
        return self

    def _begin(self) -> None:
        marker = self.out / UNFINISHED
        names = {path.name for path in self.out.iterdir() if not _is_left_over(path.name)}
        if names and names.isdisjoint({INDEX, UNFINISHED}):
            raise BadInput(f"{self.out} is not empty and not a store: choose a new folder, or empty this one")
        begun = _made_by(marker, self.out)
        if begun is not None and begun != self.made_by:
            raise BadInput(f"{self.out} holds other videos: {_difference(begun, self.made_by)}; choose another folder")
        with written_aside(marker) as aside:
            aside.write_text(json.dumps(self.made_by, indent=1), encoding="utf-8")
        with disc_refusals(self.out):
            self._remove_parts()
        self._indexed = _indexed_files(self.out)

    def __exit__(self, *_: object) -> None:
        """The marker of an unfinished store stays only if there are videos to continue with."""
        with self._lock:
            self._remove_parts()
            for folder in self.out.glob("*/"):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
            if (self.out / INDEX).exists() or not any(self.out.glob("*/[0-9]*.npz")):
                (self.out / UNFINISHED).unlink(missing_ok=True)
        if self.out.is_dir() and not any(self.out.iterdir()):
            self.out.rmdir()

    def _remove_parts(self) -> None:
        for abandoned in self.out.rglob(f"*{PART}"):
            abandoned.unlink(missing_ok=True)

    def path(self, split: str, number: int) -> Path:
        return self.out / split / f"{number:06d}.npz"

    def _spare_path(self, split: str, number: int) -> Path:
        return self.out / split / f"{number:06d}-1.npz"

    def free_path(self, split: str, number: int) -> Path:
        """Path for a new video: never that of a video in the old index, unless that video is damaged."""
        path = self.path(split, number)
        in_use = path.relative_to(self.out).as_posix() in self._indexed and describe(path) is not None
        return self._spare_path(split, number) if in_use else path

    def finish(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write the index, which makes the folder a store. `entries`: Results of `describe`, with `split` and `file`
        added."""
        index = {"format": FORMAT, "version": VERSION, "made_by": self.made_by, "videos": list(entries)}
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in index.pop("videos"))
        head = json.dumps(index, ensure_ascii=False, sort_keys=True, indent=1)[:-2]
        with disc_refusals(self.out):
            sync_file_system(self.out)  # the videos, all at once
        with written_aside(self.out / INDEX) as aside:
            aside.write_text(f'{head},\n "videos": [\n{lines}\n]}}\n', encoding="utf-8")
        kept = {self.out / entry["file"] for entry in entries}
        for outdated in {*self.out.glob("*/[0-9]*.npz")} - kept:
            outdated.unlink()

    def refuse_to_shrink(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Refuse to remove videos from a finished store."""
        have = self._indexed
        extra = have - {self.path(*video).relative_to(self.out).as_posix() for video in wanted}
        if extra:
            raise BadInput(
                f"{self.out} has {len(have)} videos and fewer were asked for: choose another folder, or delete this one"
            )

    def entry(self, split: str, number: int, source: str = "") -> dict[str, Any] | None:
        """The index entry of an existing video, if it is undamaged and was made with the same options and source."""
        for path in (self.path(split, number), self._spare_path(split, number)):
            described = describe(path)
            if described and (described.pop("made_by"), described.pop("source")) == (self.made_by, source):
                return {"split": split, "file": path.relative_to(self.out).as_posix(), **described}
        return None


def _is_left_over(name: str) -> bool:
    """Whether it is a file that an empty store may hold: the lock, or unfinished files after a crash."""
    return name == LOCK or (name.endswith(PART) and name.startswith((INDEX, UNFINISHED)))


def _made_by(marker: Path, out: Path) -> dict[str, Any] | None:
    """The options with which the folder was begun, if they are known; each video stores them too."""
    try:
        made_by = json.loads(marker.read_text(encoding="utf-8")) if marker.exists() else read_index(out).made_by
    except (ValueError, RecursionError):
        return None
    return made_by if isinstance(made_by, dict) and made_by else None


def _indexed_files(out: Path) -> set[str]:
    """The files of a finished store; empty if its index is missing or damaged."""
    try:
        return {entry.file for entry in read_index(out).videos}
    except BadInput:
        return set()


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old.get("command") != new.get("command"):
        return f"those of vonet {old.get('command')}"
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)!r} instead of {new.get(key)!r}" for key in keys)


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, by its index or, if that is damaged, by its videos; other tools write an index.json
    too."""
    if not (folder / INDEX).is_file():
        return (folder / UNFINISHED).is_file()
    with (folder / INDEX).open("rb") as index:
        return FORMAT.encode() in index.read(1000) or any(folder.glob("*/[0-9]*.npz"))


def open_store(root: Path, limits: Limits = DEFAULT_LIMITS) -> Videos:
    """The videos of a store. A video whose file is missing, has the wrong size or lies outside the store is reported as
    a problem."""
    index = read_index(root, limits)
    is_inside = Inside(root)
    videos, problems = [], []
    for entry in index.videos:
        video = StoredVideo(root, entry, limits)
        try:
            found = video.path.stat().st_size if video.path.is_file() else None
            leads_out = found is not None and not is_inside(video.path)
        except OSError:
            found, leads_out = None, False
        if leads_out:
            problems.append(f"{video.path} is a link that leads out of the store: put the file itself there")
        elif found == entry.bytes:
            videos.append(video)
        else:
            seen = "is missing" if found is None else f"has {found} bytes instead of {entry.bytes}"
            problems.append(f"{video.path} {seen}: run the command that made this store again")
    return Videos(videos, STORE, root, problems, index.made_by)


def damaged(root: Path, videos: Videos) -> list[str]:
    """Reads all videos and returns a sentence for each whose checksum is wrong."""
    checksums = {entry.file: entry.crc32 for entry in read_index(root).videos}
    problems = []
    for video in videos:
        assert isinstance(video, StoredVideo)
        found = describe(video.path)
        if found is None or found["crc32"] != checksums[video.path.relative_to(root).as_posix()]:
            problems.append(str(_broken(video.path)))
    return problems
