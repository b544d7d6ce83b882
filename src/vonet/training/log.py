"""RUN/log.jsonl: a line of JSON for every so many updates and for every evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vonet.writing import disc_refusals, sync_to_disk, written_aside


class Log:
    """Resuming from an earlier update drops the lines of later updates."""

    def __init__(self, path: Path, update: int):
        self.path = path
        self.entries = [entry for entry in read(path) if entry["update"] <= update]
        with written_aside(path) as aside:
            aside.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries), encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        with disc_refusals(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def sync(self) -> None:
        """Wait until the disk holds all lines: before a checkpoint that assumes them."""
        with disc_refusals(self.path):
            sync_to_disk(self.path)


def read(path: Path) -> list[dict[str, Any]]:
    """The complete lines; a crash or a full disk may have torn one."""
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return [entry for entry in entries if isinstance(entry, dict) and "update" in entry]
