"""A disk that forgets: records what a program does to the files below a folder, and rebuilds what a power loss leaves.

The disk keeps only what was synced: the content of a file by its own fsync, the names in a folder by the folder's. What
was not synced may survive or not, names and contents each for themselves, and a content may survive in part.
"""

import builtins
import io
import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import vonet.data.store
import vonet.writing

Image = dict[str, bytes | None]
"""A disk: the content of each file by its path below the folder; None for a folder."""
SURVIVORS = ("nothing", "everything", "names", "torn", "contents", "dice")
"""What survives of what was not synced; "torn": names, and half of each content; "dice": a random mixture."""


@dataclass(frozen=True)
class Moment:
    """The disk after an operation. Files and folders go by number, because names move: `names` holds the content of
    each folder, `contents` that of each file; `synced_names` and `synced_contents` are what the disk surely has."""

    operation: str
    names: dict[int, dict[str, int]]
    contents: dict[int, bytes]
    synced_names: dict[int, dict[str, int]]
    synced_contents: dict[int, bytes]


class Recorder:
    """The moments of everything that happens below `root` within `recorded`."""

    def __init__(self, root: Path):
        self.root = root
        self.moments: list[Moment] = []
        self.operations = 0
        self._held: dict[int, int] = {}
        self._read: dict[int, tuple[tuple[int, int], bytes]] = {}
        self._synced_names: dict[int, dict[str, int]] = {}
        self._synced_contents: dict[int, bytes] = {}

    @contextmanager
    def recorded(self) -> Iterator[None]:
        self._sync_everything()  # what was there before is safe
        self._look("start")
        watched = [(os, name) for name in ("replace", "rename", "unlink", "remove", "mkdir", "rmdir", "fsync")]
        watched += [(io, "open"), (builtins, "open")]
        patches = [patch.object(module, name, self._watch(name, getattr(module, name))) for module, name in watched]
        whole = self._watch("sync_file_system", vonet.writing.sync_file_system)
        patches += [patch.object(module, "sync_file_system", whole) for module in (vonet.writing, vonet.data.store)]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()
            self._look("end")
            for held in self._held.values():
                os.close(held)

    def _watch(self, name, function):
        def watched(*arguments, **options):
            mode = options.get("mode", arguments[1] if len(arguments) > 1 else "r")
            if name == "open" and (not isinstance(mode, str) or not set(mode) & set("wax+")):
                return function(*arguments, **options)
            self._look(f"before {name}")
            done = function(*arguments, **options)
            if name == "fsync":
                self._sync(os.fstat(arguments[0]).st_ino)
            elif name == "sync_file_system":
                self._sync_everything()
            self._look(name)
            self.operations += 1
            return done

        return watched

    def _sync(self, number: int) -> None:
        names, contents = self._tree()
        if number in names:
            self._synced_names[number] = names[number]
        elif number in contents:
            self._synced_contents[number] = contents[number]

    def _sync_everything(self) -> None:
        names, contents = self._tree()
        self._synced_names.update(names)
        self._synced_contents.update(contents)

    def _look(self, operation: str) -> None:
        names, contents = self._tree()
        moment = Moment(operation, names, contents, dict(self._synced_names), dict(self._synced_contents))
        if not self.moments or vars(moment) | {"operation": ""} != vars(self.moments[-1]) | {"operation": ""}:
            self.moments.append(moment)

    def _tree(self) -> tuple[dict[int, dict[str, int]], dict[int, bytes]]:
        names: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        folders = [str(self.root)]
        while folders:
            folder = folders.pop()
            inside = names[os.stat(folder).st_ino] = {}
            for entry in os.scandir(folder):
                found = os.stat(entry.path)
                inside[entry.name] = found.st_ino
                if found.st_ino not in self._held:  # held open, so that no other file gets its number
                    self._held[found.st_ino] = os.open(entry.path, os.O_RDONLY)
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry.path)
                    continue
                mark = found.st_size, found.st_mtime_ns
                if self._read.get(found.st_ino, (None,))[0] != mark:
                    content = os.pread(self._held[found.st_ino], found.st_size, 0)
                    self._read[found.st_ino] = mark, content
                contents[found.st_ino] = self._read[found.st_ino][1]
        return names, contents

    # ---- after the power is back ------------------------------------------------------------------------------------

    def images(self) -> Iterator[tuple[int, str, Image, bool]]:
        """Every disk that a power loss may leave: the moment, what survived, the disk, and whether it is a new one."""
        seen = set()
        for number, moment in enumerate(self.moments):
            for survivors in SURVIVORS:
                image = self.after_loss(moment, survivors, random.Random(f"{number} {survivors}"))
                mark = frozenset((path, content) for path, content in image.items())
                yield number, survivors, image, mark not in seen
                seen.add(mark)

    def after_loss(self, moment: Moment, survivors: str, dice: random.Random) -> Image:
        image: Image = {}
        folders = [("", os.stat(self.root).st_ino)]
        while folders:
            path, number = folders.pop()
            kept = dice.choice(SURVIVORS[:-1]) if survivors == "dice" else survivors
            synced = moment.synced_names.get(number, {})
            names = moment.names.get(number, synced) if kept in ("everything", "names", "torn") else synced
            for name, inner in names.items():
                inside = f"{path}/{name}" if path else name
                if inner in moment.synced_names or inner in moment.names:
                    image[inside] = None
                    folders.append((inside, inner))
                else:
                    kept = dice.choice(SURVIVORS[:-1]) if survivors == "dice" else survivors
                    image[inside] = _content(moment, inner, kept)
        return image

    def finals(self) -> set[tuple[str, bytes]]:
        """Every file under a final name, as the program left it there."""
        found = set()
        for moment in self.moments:
            image = self.after_loss(moment, "everything", random.Random(0))
            found |= {(path, content) for path, content in image.items() if content is not None}
        return found


def _content(moment: Moment, number: int, survivors: str) -> bytes:
    synced = moment.synced_contents.get(number, b"")
    written = moment.contents.get(number, synced)
    if survivors in ("everything", "contents"):
        return written
    if survivors == "torn" and written.startswith(synced):
        return written[: (len(synced) + len(written)) // 2]
    return synced


def write_image(image: Image, folder: Path) -> None:
    folder.mkdir(parents=True)
    for path, content in sorted(image.items()):
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
