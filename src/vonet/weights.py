"""Models on disc: `model.safetensors`, which also says what the model is, and `config.json`, the same for people.

The whole description of the experiment stands in the file's metadata, so one file is enough to build and fill the
model again. It is read strictly: a part or option that this version does not know is refused, never guessed; an option
that the file does not have yet takes its default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from vonet import experiments
from vonet.errors import BadInput
from vonet.experiments.experiment import Experiment
from vonet.writing import save_tensors, written_aside

WEIGHTS, CONFIG = "model.safetensors", "config.json"
SHIPPED = Path(__file__).parent / "pretrained"
"""A folder for each model that comes with the package."""
DEFAULT = "laptop-a"
"""The one that segments when no other is named."""
OTHER_VERSION = "another version of vonet wrote it; use that version, or other weights"


def save(folder: Path, model: nn.Module, experiment: Experiment) -> None:
    """Both files, each whole or not at all."""
    text = json.dumps(described(experiment), indent=2)
    with written_aside(folder / CONFIG) as aside:
        aside.write_text(text + "\n", encoding="utf-8")
    save_tensors(folder / WEIGHTS, model.state_dict(), {"vonet": text})


def load(path: Path | str) -> tuple[Any, Experiment]:
    """The model, ready to watch, and the experiment that made it. `path`: a folder, the weights file itself, or the
    name of a model that comes with the package."""
    file = _file(path)
    if not file.is_file():
        raise BadInput(
            f"there are no weights at {path}; give a folder with {WEIGHTS}, such a file, or the name of a model that "
            f"comes with the package: {', '.join(shipped()) or 'none does yet'}"
        )
    try:
        with safe_open(file, framework="pt") as stored:
            text = (stored.metadata() or {}).get("vonet")
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        raise BadInput(f"{file} is damaged, or not a file of weights: get it again") from None
    if text is None:
        raise BadInput(f"{file} does not say what model it belongs to; possible are weights that vonet saved")
    experiment = _read_experiment(text, file)
    model = experiment.build_model()
    if {name: t.shape for name, t in model.state_dict().items()} != {name: t.shape for name, t in tensors.items()}:
        raise BadInput(f"the weights in {file} do not fit the model that it describes: {OTHER_VERSION}")
    model.load_state_dict(tensors)
    return model.eval(), experiment


def checksum(path: Path | str) -> str:
    """Of the weights' file: it tells whether scores are of these weights, wherever the file lies now."""
    with _file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shipped() -> list[str]:
    return sorted(file.parent.name for file in SHIPPED.glob(f"*/{WEIGHTS}"))


def default() -> Path:
    """Where the model lies that segments when no other is named."""
    if DEFAULT not in shipped():
        raise BadInput(
            f"no weights were given, and the default ones ({DEFAULT}) do not come with this vonet; train some (vonet "
            f"train {DEFAULT} --data WORLD) and give the run's folder with --weights (in Python: weights=)"
        )
    return SHIPPED / DEFAULT


def _file(path: Path | str) -> Path:
    if not Path(path).exists() and str(path) in shipped():
        path = SHIPPED / path
    return Path(path) / WEIGHTS if Path(path).is_dir() else Path(path)


def described(value: Any) -> Any:
    """As JSON; each part says what it is, for some have no options of their own."""
    if is_dataclass(value):
        options = {option.name: described(getattr(value, option.name)) for option in fields(value)}
        return {"part": type(value).__name__, **options}
    if isinstance(value, Mapping):
        return {name: described(item) for name, item in value.items()}
    return [described(item) for item in value] if isinstance(value, tuple) else value


def _read_experiment(text: str, file: Path) -> Experiment:
    try:
        experiment = _built(json.loads(text), experiments.known_parts())
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"the description in {file} cannot be read ({error}): {OTHER_VERSION}") from None
    if not isinstance(experiment, Experiment):
        raise BadInput(f"{file} describes no experiment")
    return experiment


def _built(value: Any, parts: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return tuple(_built(item, parts) for item in value)
    if not isinstance(value, dict):
        return value
    built = {name: _built(item, parts) for name, item in value.items() if name != "part"}
    if "part" not in value:
        return built
    part = parts.get(value["part"])
    if part is None:
        raise BadInput(f"the unknown part {value['part']} (if it is of your own making: vonet --with YOURS.py)")
    unknown = set(built) - {option.name for option in fields(part)}
    if unknown:
        raise BadInput(f"{value['part']} with the unknown options {', '.join(sorted(unknown))}")
    return part(**built)
