"""Crash-safe writing: atomic files and folders that are synced to the disk, one writer per folder, and messages for
disk errors.

An important file is written to a temporary name, synced and renamed, and then its folder is synced. So after a power
loss a reader finds either the complete old file or the complete new one.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from vonet.errors import BadInput

PART = ".part"
"""Suffix of unfinished files."""
LOCK = ".vonet-lock"
"""Name of the file in a folder that its writer holds locked, and suffix of locks beside folders."""
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets take a cell that begins with one of these for a formula."""


class DiscRefusal(BadInput):
    """The disk is full or read-only. The input is not the cause."""


# ---- files and folders ---------------------------------------------------------------------------------------------


@contextmanager
def written_aside(path: Path, sync: bool = True) -> Iterator[Path]:
    """Yields a temporary path beside `path`. It is renamed to `path` when the block succeeds, else it is removed.

    Args:
        path: The final path.
        sync: Wait until the disk holds the file and its name. Without it, a power loss may leave an empty or truncated
            file under its final name; the caller then syncs many files at once (`sync_file_system`) or accepts the
            risk.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    with disc_refusals(path):
        make_folder(path.parent)
        try:
            yield aside
            if sync:
                sync_to_disk(aside)
            os.replace(aside, path)
            if sync:
                sync_to_disk(path.parent)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def folder_written_aside(folder: Path) -> Iterator[Path]:
    """Yields a new folder beside `folder` to write into. If the block succeeds, it replaces `folder`; otherwise it is
    removed, together with parent folders that were made for it. Only one process may do this at a time."""
    aside = folder.with_name(f"{folder.name}.{os.getpid()}{PART}")
    old = folder.with_name(f"{folder.name}.{os.getpid()}.old{PART}")
    with disc_refusals(folder), only_writer(folder, beside=True):
        _mend_folder(folder)
        aside.mkdir()
        try:
            yield aside
            sync_file_system(aside)
            if folder.exists():
                os.replace(folder, old)
            os.replace(aside, folder)
            sync_to_disk(folder.parent)
        finally:
            if old.exists() and not folder.exists():
                os.replace(old, folder)
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def _mend_folder(folder: Path) -> None:
    """Repairs what a crash left: the old folder under a temporary name, or an incomplete new one."""
    pattern = glob.escape(folder.name)
    for old in folder.parent.glob(f"{pattern}.*.old{PART}"):
        if not folder.exists():
            os.replace(old, folder)
    for abandoned in folder.parent.glob(f"{pattern}.*{PART}"):
        shutil.rmtree(abandoned, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files that a crash left in a folder. Only the single writer of the folder may call this."""
    for abandoned in folder.glob(f"*{PART}"):
        abandoned.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file atomically, with the permissions of any new file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with written_aside(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode
        try:
            save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, aside, dict(metadata))
        except SafetensorError as error:  # in which it wraps what the disc said
            raise DiscRefusal(f"{path} cannot be written ({error}): make room, or choose another place") from None
        aside.chmod(mode)  # safetensors hides its files from all other users


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, and sync their names."""
    for new in reversed(_missing(folder)):
        with suppress(FileExistsError):  # another process was faster
            new.mkdir()
        sync_to_disk(new.parent)
    folder.mkdir(exist_ok=True)


def _missing(folder: Path) -> list[Path]:
    """The folder and its parents that do not exist yet, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


# ---- the disk ------------------------------------------------------------------------------------------------------


def sync_to_disk(path: Path) -> None:
    """Wait until the disk holds the content of a file, or the names in a folder."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder in which we may write but not look
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):  # file systems that sync no folders
            raise
    finally:
        os.close(opened)


def sync_file_system(folder: Path) -> None:
    """Wait until the disk holds everything that was written to the file system of a folder, with one call for many
    files."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if sys.platform == "linux" else None
    if syncfs is None:
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(opened) == 0:
            return
        if ctypes.get_errno() != errno.ENOSYS:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.sync()
    finally:
        os.close(opened)


@contextmanager
def disc_refusals(path: Path) -> Iterator[None]:
    """Turns errors of the disk while writing `path` into one sentence."""
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


# ---- one writer ----------------------------------------------------------------------------------------------------


@contextmanager
def only_writer(folder: Path, beside: bool = False, patience: float = 0.0) -> Iterator[None]:
    """Holds a lock on `folder`, which is created if it is missing, so that no other process that uses this lock writes
    there.

    The system releases the lock when the process dies. Readers do not need the lock. On a file system without locks, a
    warning is printed.

    beside: Put the lock beside the folder, for a folder that is replaced as a whole.
    patience: Seconds to wait for another writer before giving up.
    """
    path = folder.with_name(f".{folder.name}{LOCK}") if beside else folder / LOCK
    with ExitStack() as held:
        with disc_refusals(folder):
            held.callback(_remove_empty, _missing(path.parent))
            make_folder(path.parent)
            file = _locked(path, folder, patience)
        held.callback(file.close)
        held.callback(path.unlink, missing_ok=True)
        with suppress(OSError):  # a full disk: the lock holds all the same
            about = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            file.truncate(0)
            file.write(json.dumps(about))
            file.flush()
        yield


def _locked(path: Path, folder: Path, patience: float) -> IO[str]:
    """Opens and locks the lock file. Its last holder may remove the file while we open it; then it is opened again."""
    end = time.monotonic() + patience
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            refusal = _try_to_lock(file)
        except OSError as error:
            print(
                f"vonet: {folder} cannot be locked ({error.strerror}): make sure that no other process writes to it",
                file=sys.stderr,
            )
            return file
        if not refusal and _is_named(file, path):
            return file
        file.seek(0)
        holder = file.read()
        file.close()
        if refusal and time.monotonic() >= end:
            raise BadInput(
                f"another process is writing to {folder} ({_told(holder)}): wait until it has ended, or choose another "
                "folder"
            )
        time.sleep(0.02 if refusal else 0)


def _is_named(file: IO[str], path: Path) -> bool:
    """Whether the open file still has this name; its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _try_to_lock(file: IO[str]) -> bool:
    """Whether another process holds the lock. Raises OSError if the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "this system has no locks") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _told(holder: str) -> str:
    """The holder of a lock, as its file names it."""
    try:
        about = json.loads(holder)
        return f"process {about['process']} on {about['host']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):  # it was locked a moment ago
        return "it does not say which"


def _remove_empty(folders: list[Path]) -> None:
    """Removes folders that were created for a lock and are still empty, innermost first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


# ---- tables --------------------------------------------------------------------------------------------------------


def csv_cell(value: Any) -> Any:
    """A value for a cell of a CSV file: text that a spreadsheet would run as a formula is prefixed with an apostrophe.
    Numbers stay numbers, including numbers in text such as "-1.5"."""
    if not isinstance(value, str) or not value.startswith(FORMULA_SIGNS):
        return value
    with suppress(ValueError):
        float(value)
        return value
    return f"'{value}"
