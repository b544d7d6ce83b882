"""Atomic writing of files and folders, and errors of full or read-only disks."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vonet.errors import BadInput

PART = ".part"
"""How the names of unfinished files end."""


class DiscRefusal(BadInput):
    """The disk is full or read-only. The input is fine."""


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`. It is renamed to `path` when the block succeeds, else it is removed."""
    aside = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    with disc_refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def folder_written_aside(folder: Path) -> Iterator[Path]:
    """Gives a new folder beside `folder` to write into; it takes that name, and the place of what has it, when the
    block ends well, else it vanishes, and so does the folder around it if that was made for it."""
    aside = folder.with_name(f"{folder.name}.{os.getpid()}{PART}")
    old = folder.with_name(f"{folder.name}.{os.getpid()}.old{PART}")
    is_first = not folder.parent.exists()
    with disc_refusals(folder):
        for abandoned in folder.parent.glob(f"{glob.escape(folder.name)}.*{PART}"):
            shutil.rmtree(abandoned, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            yield aside
            if folder.exists():
                folder.replace(old)
            aside.replace(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            if is_first and not any(folder.parent.iterdir()):
                folder.parent.rmdir()


def save_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """A safetensors file, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with written_aside(path) as aside:
        try:
            save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, aside, dict(metadata))
        except SafetensorError as error:  # in which it wraps what the disc said
            raise DiscRefusal(f"{path} cannot be written ({error}): make room, or choose another place") from None


@contextmanager
def disc_refusals(path: Path) -> Iterator[None]:
    """Says in a sentence why the disc would not take what was to be written to `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiscRefusal(
                f"no space left on the disc while writing {path}; what was finished before is whole: "
                "make room and run the same command again"
            ) from None
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise DiscRefusal(f"{path} cannot be written ({error.strerror}): choose another place") from None
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise DiscRefusal(f"{path} cannot be written ({error.strerror}): a file is in the way") from None
        raise DiscRefusal(f"{path} cannot be written ({error.strerror or error}): choose another place") from None
