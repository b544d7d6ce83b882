"""RUN/log.jsonl: one line of JSON at regular intervals of updates and for every evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vonet.errors import BadInput
from vonet.writing import disc_refusals, sync_to_disk, written_aside

GROUPS = ("losses", "norms", "scores")
"""Keys of an entry that hold numbers by name."""
LARGEST = 1e300


class Log:
    """Resuming from an earlier update drops the lines of later updates."""

    def __init__(self, path: Path, update: int):
        self.path = path
        self.entries = [entry for entry in read(path) if entry["update"] <= update]
        with written_aside(path) as aside:
            aside.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry to the file and to `entries`."""
        self.entries.append(entry)
        with disc_refusals(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def sync(self) -> None:
        """Wait until the disk holds all lines, because a checkpoint that is written next refers to them."""
        with disc_refusals(self.path):
            sync_to_disk(self.path)


def read(path: Path) -> list[dict[str, Any]]:
    """The complete lines; a crash or a full disk may have truncated one. Lines that are not valid entries are left out
    too."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): delete it to continue without it") from None
    entries: list[dict[str, Any]] = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_entry(entry) and _is_like(entry, entries):
            entries.append(entry)
    return entries


def _is_entry(entry: object) -> bool:
    """Whether an entry has an update and its training time in seconds, and numbers where they are expected."""
    if not isinstance(entry, dict) or type(entry.get("update")) is not int or not 0 <= entry["update"] < 2**53:
        return False
    groups = [entry.get(group, {}) for group in GROUPS]
    if not all(isinstance(group, dict) for group in groups):
        return False
    numbers = [entry.get("seconds"), *(number for group in groups for number in group.values())]
    return all(type(number) in (int, float) and abs(number) <= LARGEST for number in numbers if number == number)


def _is_like(entry: dict[str, Any], earlier: list[dict[str, Any]]) -> bool:
    """Whether an entry names the same losses or scores as earlier ones, so that they form curves."""
    for group in ("losses", "scores"):
        before = next((other for other in earlier if group in other), entry)
        if group in entry and entry[group].keys() != before[group].keys():
            return False
    return True
