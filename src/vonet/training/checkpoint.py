"""Checkpoints: the whole state of a training on disk, from which it resumes exactly.

RUN/checkpoints/00001000-0-of-2.safetensors holds the state of one process: model, optimiser, replay, random numbers.
RUN/checkpoints/latest.json names the last update that all processes have written, and the last good one, from before
the loss left its band (band.py). It is replaced last, so a crash at any moment leaves a complete checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from vonet.errors import BadInput
from vonet.training.distributed import Processes
from vonet.training.segments import Memory
from vonet.writing import save_tensors, written_aside

FOLDER, LATEST = "checkpoints", "latest.json"


def _file(run: Path, update: int, processes: Processes) -> Path:
    return run / FOLDER / f"{update:08d}-{processes.rank}-of-{processes.count}.safetensors"


def save(
    run: Path,
    memory: Memory,
    about: Mapping[str, Any],
    processes: Processes,
    keep: int = 2,
    good: Mapping[str, int] | None = None,
) -> Path:
    """Write a checkpoint; all processes call this together. Only the last `keep` checkpoints and the `good` one are
    kept; `good` gives its update and its number of processes."""
    tensors, facts = memory
    path = _file(run, facts["update"], processes)
    save_tensors(path, tensors, {"facts": json.dumps(facts)})
    processes.wait()
    if processes.is_first:
        _point_to(run, {"update": facts["update"], "processes": processes.count, "good": good, **about})
        _remove(run, {*_updates(run)[:-keep]} - {good["update"] if good else None})
    processes.wait()
    return path


def _point_to(run: Path, description: Mapping[str, Any]) -> None:
    """Make this checkpoint the latest, and remove those of later updates."""
    with written_aside(run / FOLDER / LATEST) as aside:
        aside.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    _remove(run, {update for update in _updates(run) if update > description["update"]})


def _updates(run: Path) -> list[int]:
    """The updates with a checkpoint, complete or not."""
    return sorted({int(file.name[:8]) for file in (run / FOLDER).glob("[0-9]*.safetensors")})


def _remove(run: Path, updates: Iterable[int | None]) -> None:
    for update in updates:
        for old in (run / FOLDER).glob(f"{update:08d}-*.safetensors"):
            old.unlink(missing_ok=True)


def mark_good(run: Path, good: Mapping[str, int] | None) -> None:
    """Name the good checkpoint, for a training that ends without saving. Only the first process calls this."""
    found = latest(run)
    if found is not None:
        _point_to(run, {**found, "good": good})


def go_back(run: Path, about: Mapping[str, Any], processes: Processes) -> None:
    """Make the good checkpoint the latest one; all processes call this together."""
    found = latest(run)
    good = (found or {}).get("good")
    if found is None or good is None:
        raise BadInput(
            f"{run} has no checkpoint from before the loss left its band. Start a new run with lower learning rates or "
            "more clipping (--set)."
        )
    processes.wait()
    if processes.is_first:
        _point_to(run, {**found, **about, **good})
    processes.wait()


def latest(run: Path) -> dict[str, Any] | None:
    """The description of the last complete checkpoint; None if there is none."""
    path = run / FOLDER / LATEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        found = None
    if not _is_description(found):
        raise BadInput(f"{path} is damaged: delete it to start a new run")
    return found


def _is_description(found: object) -> bool:
    """Whether it has the values that reading a checkpoint needs. Older checkpoints lack some of the text entries."""
    if not isinstance(found, dict):
        return False
    numbers = all(type(found.get(name)) is int and 0 <= found[name] < 10**8 for name in ("update", "processes"))
    texts = all(
        type(found.get(name, "")) is str and "\0" not in found.get(name, "") for name in ("job", "path", "precision")
    )
    good = found.get("good")
    numbers = numbers and (good is None or _is_description(good))
    return numbers and texts and isinstance(found.get("experiment", {}), dict)


def load(run: Path, processes: Processes) -> list[Memory]:
    """This process's part of the last checkpoint, or all parts if another number of processes wrote it."""
    found = latest(run)
    if found is None:
        raise BadInput(f"{run} holds no checkpoint. Omit --resume to start a new run.")
    count = found["processes"]
    ranks = [processes.rank] if count == processes.count else range(count)
    return [_read(_file(run, found["update"], Processes(rank, count))) for rank in ranks]


def _read(path: Path) -> Memory:
    try:
        with safe_open(path, framework="pt") as stored:
            facts = json.loads(stored.metadata()["facts"])
            return {name: stored.get_tensor(name) for name in stored.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError):
        raise BadInput(f"{path} is missing or damaged: it cannot be resumed from") from None


def recall(training: Any, memories: Sequence[Memory], run: Path, of_others: bool = False) -> float:
    """Restore a training (`loop.Training`) from the parts that `load` read. Returns the seconds of training so far.

    of_others: Whether another number of processes wrote the parts.
    """
    try:
        if of_others:
            training.recall_of_others(memories)
        else:
            training.recall(memories[0])
        seconds = float(memories[0][1]["seconds"])
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{seconds} seconds of training")
    except Exception as error:  # tensors of other names or shapes, and values of other types
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"  # torch lists parameters on further lines
        raise BadInput(
            f"the checkpoint in {run / FOLDER} does not fit this training ({why}): it is damaged, and it cannot be "
            "resumed from"
        ) from None
    return seconds
