"""Reads the index of a store and checks it: types, reasonable sizes, and no path that leads out of the store."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from vonet.data.limits import Limits
from vonet.errors import BadInput

FORMAT, VERSION = "vonet-store", 1
INDEX = "index.json"
LONGEST, WIDEST, LARGEST = 1 << 31, 1 << 16, 1 << 48
"""Largest number of frames of a video, pixels of a side, and bytes of a file."""
KINDS = {"str": str, "int": int, "bool": bool}


@dataclass(frozen=True)
class Entry:
    """One video: its file below the store's folder, and properties of that file. `frames_at`: Offset of the first
    pixel, in bytes. Other keys of the index are ignored."""

    name: str
    split: str
    file: str
    frames: int
    height: int
    width: int
    ids: bool
    frames_at: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Index:
    """What a store holds, and which command made it with which options."""

    made_by: Mapping[str, Any]
    videos: list[Entry]


def _short(value: object) -> str:
    """A short form of any value, for an error message."""
    text = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_index(root: Path, limits: Limits | None = None) -> Index:
    """Reads the index of a store. A malformed index is refused as a whole, because its store can be made again.

    limits: Limits on the size of frames.
    """
    path = root / INDEX
    if not path.exists():
        raise BadInput(f"{root} is a store that was never finished: run the command that made it again, it continues")
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        version = index["version"] if index["format"] == FORMAT else None
        entries, made_by = index["videos"], index["made_by"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path) from None
    if version != VERSION:
        raise BadInput(
            f"{path} is of version {_short(version)}; this vonet reads version {VERSION}: make the store again"
        )
    if not isinstance(entries, list):
        raise _damaged(path, f"videos is {_short(entries)}; expected a list")
    return Index(made_by if isinstance(made_by, dict) else {}, [_entry(path, entry, limits) for entry in entries])


def _entry(path: Path, stored: object, limits: Limits | None) -> Entry:
    wrong = _wrong(stored)
    if wrong:
        raise _damaged(path, wrong)
    assert isinstance(stored, dict)
    entry = Entry(**{field.name: stored[field.name] for field in fields(Entry)})
    if limits is not None:
        limits.check_size(entry.height, entry.width, str(path.parent / entry.file))
    return entry


def _wrong(stored: object) -> str | None:
    """The reason why a value is not a valid entry; None if it is valid."""
    if not isinstance(stored, dict):
        return f"a video is {_short(stored)}; expected an object with its file and size"
    missing = [field.name for field in fields(Entry) if field.name not in stored]
    if missing:
        return f"a video has no {', '.join(missing)}"
    for field in fields(Entry):
        if type(stored[field.name]) is not KINDS[str(field.type)]:
            return f"{field.name} is {_short(stored[field.name])}; expected {field.type}"
    for name, most in (("frames", LONGEST), ("height", WIDEST), ("width", WIDEST), ("bytes", LARGEST)):
        if not 1 <= stored[name] <= most:
            return f"{name} is {_short(stored[name])}; expected 1 to {most}"
    frames, height, width = stored["frames"], stored["height"], stored["width"]
    if not 0 <= stored["frames_at"] <= stored["bytes"] - frames * height * width * 3:
        return (
            f"{frames} frames of {height}x{width} from byte {_short(stored['frames_at'])} on do not fit into a file of "
            f"{stored['bytes']} bytes"
        )
    file = PurePosixPath(stored["file"])
    if file.is_absolute() or ".." in file.parts or not file.parts or {"\0", "\\", ":"} & set(stored["file"]):
        return f"file is {_short(stored['file'])}; expected a path inside the store, such as train/000000.npz"
    return None


def _damaged(path: Path, why: str = "") -> BadInput:
    return BadInput(
        f"{path} is damaged{f' ({why})' if why else ''}: run the command that made this store again, it writes a new "
        "one"
    )


class Inside:
    """Tests whether a file lies inside a folder. A link inside the folder that points to a file outside does not count:
    otherwise a downloaded store could read any file of this machine as the pixels of a video. The folder itself may be
    a link."""

    def __init__(self, root: Path):
        self._root = os.path.realpath(root)
        self._folders: dict[Path, bool] = {}

    def __call__(self, file: Path) -> bool:
        """Checks an existing file. Needs one file-system call per file, and some per folder."""
        folder = file.parent
        if folder not in self._folders:
            real = os.path.realpath(folder)
            self._folders[folder] = os.path.commonpath([real, self._root]) == self._root
        if not self._folders[folder]:
            return False
        if not stat.S_ISLNK(os.lstat(file).st_mode):
            return True
        return os.path.commonpath([os.path.realpath(file), self._root]) == self._root
