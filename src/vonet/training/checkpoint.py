"""Checkpoints: the whole state of a training on disk, from which it resumes exactly.

RUN/checkpoints/00001000-0-of-2.safetensors holds the state of one process: model, optimiser, replay, random numbers.
RUN/checkpoints/latest.json names the last update that all processes have written. It is replaced last, so a crash at
any moment leaves a complete checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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


def save(run: Path, memory: Memory, about: Mapping[str, Any], processes: Processes, keep: int = 2) -> Path:
    """Write a checkpoint; all processes call this together. Only the last `keep` are kept."""
    tensors, facts = memory
    path = _file(run, facts["update"], processes)
    save_tensors(path, tensors, {"facts": json.dumps(facts)})
    processes.wait()
    if processes.is_first:
        with written_aside(run / FOLDER / LATEST) as aside:
            latest = {"update": facts["update"], "processes": processes.count, **about}
            aside.write_text(json.dumps(latest, indent=1) + "\n", encoding="utf-8")
        updates = sorted({int(old.name[:8]) for old in (run / FOLDER).glob("*.safetensors")})
        abandoned = [update for update in updates if update > facts["update"]]
        outdated = [update for update in updates if update <= facts["update"]][:-keep]
        for update in abandoned + outdated:
            for old in (run / FOLDER).glob(f"{update:08d}-*.safetensors"):
                old.unlink(missing_ok=True)
    processes.wait()
    return path


def latest(run: Path) -> dict[str, Any] | None:
    """The description of the last complete checkpoint; None where there is none."""
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
    """Whether it has the values that reading it relies on. Older checkpoints lack some texts."""
    if not isinstance(found, dict):
        return False
    numbers = all(type(found.get(name)) is int and 0 <= found[name] < 10**8 for name in ("update", "processes"))
    texts = all(
        type(found.get(name, "")) is str and "\0" not in found.get(name, "") for name in ("job", "path", "precision")
    )
    return numbers and texts and isinstance(found.get("experiment", {}), dict)


def load(run: Path, processes: Processes) -> Memory:
    """This process's part of the last checkpoint."""
    found = latest(run)
    if found is None:
        raise BadInput(f"{run} holds no checkpoint. Omit --resume to start a new run.")
    if found["processes"] != processes.count:
        raise BadInput(
            f"{run} was trained by {found['processes']} processes and this is {processes.count}: "
            "resume with the same number, or start a new run from its weights"
        )
    path = _file(run, found["update"], processes)
    try:
        with safe_open(path, framework="pt") as stored:
            facts = json.loads(stored.metadata()["facts"])
            return {name: stored.get_tensor(name) for name in stored.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError):
        raise BadInput(f"{path} is missing or damaged: it cannot be resumed from") from None


def recall(training: Any, memory: Memory, run: Path) -> float:
    """Restore a training (`loop.Training`) from a checkpoint of the run. Returns the seconds that it took so far."""
    try:
        training.recall(memory)
        seconds = float(memory[1]["seconds"])
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{seconds} seconds of training")
    except Exception as error:  # tensors of other names or shapes, and values of other types
        why = str(error).partition("\n")[0]
        raise BadInput(
            f"the checkpoint in {run / FOLDER} does not fit this training ({type(error).__name__}: {why}): it is "
            "damaged, and it cannot be resumed from"
        ) from None
    return seconds
