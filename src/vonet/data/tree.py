"""The files below a path, listed once. Layouts look only at this list until they have recognised their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vonet.data.limits import DEFAULT_LIMITS, Limits
from vonet.errors import BadInput

SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Tree:
    """Folders and the names of the files in them, both in natural order; `root` is the path that was given. `limits`
    apply to the videos that are found."""

    root: Path
    folders: Mapping[Path, Sequence[str]]
    problems: Sequence[str] = ()
    limits: Limits = DEFAULT_LIMITS

    @property
    def is_file(self) -> bool:
        """Whether the given path is a single file."""
        return self.root not in self.folders

    def files(self) -> Iterator[Path]:
        return (folder / name for folder, names in self.folders.items() for name in names)

    def below(self, folder: Path) -> tuple[str, ...]:
        """The names of the folders that lead from the root to this one."""
        return () if self.is_file else folder.relative_to(self.root).parts

    def place(self, file: Path) -> str:
        """Identifies the file: its path below the root without its suffix."""
        return "/".join((*self.below(file.parent), file.stem))


def list_tree(root: Path, limits: Limits = DEFAULT_LIMITS) -> Tree:
    """Follows links but visits no folder twice, so cyclic links are harmless. Hidden files are left out."""
    if not root.is_dir():
        return Tree(root, {root.parent: [root.name]}, limits=limits)
    folders: dict[Path, list[str]] = {}
    problems, seen, waiting = [], set(), [root]
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        try:
            inner, files = _entries(folder)
        except OSError as error:
            problems.append(f"the folder {folder} cannot be read ({error.strerror}) and was left out")
            inner, files = [], []
        folders[folder] = sorted(files, key=natural)
        waiting += [folder / name for name in sorted(inner, key=natural, reverse=True)]
    return Tree(root, folders, problems, limits)


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__MACOSX":
                continue
            try:
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.is_file():
                    files.append(entry.name)
            except OSError:  # a link to itself
                continue
    return folders, files


def natural(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Sort key that puts frame2 before frame10."""
    parts = re.split(r"([0-9]+)", name)
    return [_number(part) if odd % 2 else part for odd, part in enumerate(parts)], name


def _number(digits: str) -> tuple[int, str]:
    """Sort key of a string of digits by its value, for any length."""
    short = digits.lstrip("0")
    return len(short), short


def split_and_rest(folders: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The split that one of the folders names, if any, and the remaining folders."""
    for at, name in enumerate(folders):
        if name.lower() in SPLITS:
            return SPLITS[name.lower()], (*folders[:at], *folders[at + 1 :])
    return None, tuple(folders)


def read_bytes(path: Path, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The content of a file, unless it is too large."""
    try:
        limits.check_bytes(path.stat().st_size, str(path))
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None


def read_text(path: Path) -> str:
    """A file as text; bytes that are not UTF-8 are replaced."""
    return read_bytes(path).decode("utf-8", "replace")
