"""Models on disk: `model.safetensors` with the experiment's description in its metadata, and `config.json`, a copy.

One file is enough to build the model and load its weights. It is read strictly: an unknown part or option is refused,
and an option that the file lacks takes its default.
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

from vonet.data.known import KnownInput
from vonet.errors import BadInput
from vonet.experiments import hub, registry
from vonet.experiments.experiment import Experiment
from vonet.writing import save_tensors, written_aside

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = "1"
"""Of the description in the file. Files of vonet 0.x have none: their parts had other names and options."""
SHIPPED = Path(__file__).parents[1] / "pretrained"
"""A folder for each model that comes with the package."""
DEFAULT = "mixture"
"""The default method of `vonet segment`: no trained model of ours is better yet on videos it was not tuned on."""
OTHER_VERSION = "Another version of vonet wrote it. Use that version, or train again with this one"


def save(folder: Path | str, model: nn.Module, experiment: Experiment) -> None:
    """Write both files atomically."""
    folder = Path(folder)
    text = json.dumps(described(experiment), indent=2)
    with written_aside(folder / CONFIG) as aside:
        aside.write_text(text + "\n", encoding="utf-8")
    save_tensors(folder / WEIGHTS, model.state_dict(), {"vonet": text, "format": FORMAT})


def load(path: Path | str) -> tuple[Any, Experiment]:
    """The model in evaluation mode, and the experiment that made it.

    path: a run's folder, a file of weights, the name of a model that comes with the package, the name of a method
        without parameters ("mixture"), or a repository of the Hugging Face Hub ("hf:OWNER/NAME").
    """
    if is_method(path):
        experiment = registry.get(str(path))
        return _ready(experiment.build_model(), experiment), experiment
    file = _file(path)
    if not file.is_file():
        known = ", ".join([*shipped(), DEFAULT])
        raise BadInput(f"there are no weights at {path}; give a folder with {WEIGHTS}, such a file, or one of: {known}")
    try:
        with safe_open(file, framework="pt") as stored:
            facts = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        raise BadInput(f"{file} is damaged, or not a file of weights: get it again") from None
    if "vonet" not in facts:
        raise BadInput(f"{file} does not say what model it belongs to; possible are weights that vonet saved")
    if facts.get("format") != FORMAT:
        version = "0.x" if "format" not in facts else f"with format {facts['format']}"
        raise BadInput(
            f"{file} holds weights of vonet {version}, which this version cannot read: train again with this version, "
            "or use them with the version that wrote them"
        )
    experiment = _read_experiment(facts["vonet"], file)
    model = experiment.build_model()
    if {name: t.shape for name, t in model.state_dict().items()} != {name: t.shape for name, t in tensors.items()}:
        raise BadInput(f"the weights in {file} do not fit the model that it describes. {OTHER_VERSION}")
    model.load_state_dict(tensors)
    return _ready(model, experiment), experiment


def _ready(model: Any, experiment: Experiment) -> Any:
    """For use, with what it knows of videos."""
    model.known_input = KnownInput(experiment.fit, experiment.grey)
    return model.eval()


def checksum(path: Path | str) -> str:
    """Of the weights' file: it tells whether scores are of these weights, wherever the file lies now. Of a method
    without parameters: of its description."""
    if is_method(path):
        return hashlib.sha256(json.dumps(described(registry.get(str(path)))).encode()).hexdigest()
    return hub.sum_of(_file(path))


def push(folder: Path | str, name: str, *, private: bool = False) -> str:
    """Upload the weights in a run's folder to the repository OWNER/NAME of the Hugging Face Hub, and return its
    address. Weights that cannot be read are refused before anything is sent."""
    load(folder)
    files = [Path(folder) / WEIGHTS, Path(folder) / CONFIG]
    for file in files:
        if not file.is_file():
            raise BadInput(f"{folder} has no {file.name}; give the folder of a run, which has {WEIGHTS} and {CONFIG}")
    return hub.push(files, name, private)


def shipped() -> list[str]:
    return sorted(file.parent.name for file in SHIPPED.glob(f"*/{WEIGHTS}"))


def is_method(path: Path | str) -> bool:
    """Whether this names an experiment without parameters. A file or run of that name comes first."""
    if str(path) not in registry.names() or _file(path).is_file():
        return False
    return registry.get(str(path)).training is None


def _file(path: Path | str) -> Path:
    if str(path).startswith(hub.PREFIX):
        return hub.fetch(str(path), WEIGHTS)
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
        experiment = _built(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"the description in {file} cannot be read ({error}). {OTHER_VERSION}") from None
    if not isinstance(experiment, Experiment):
        raise BadInput(f"{file} describes no experiment")
    return experiment


def _built(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_built(item) for item in value)
    if not isinstance(value, dict):
        return value
    built = {name: _built(item) for name, item in value.items() if name != "part"}
    if "part" not in value:
        return built
    part = registry.part(value["part"])
    if part is None:
        raise BadInput(f"the unknown part {value['part']} (if it is of your own making: vonet --with YOURS.py)")
    unknown = set(built) - {option.name for option in fields(part)}
    if unknown:
        raise BadInput(f"{value['part']} with the unknown options {', '.join(sorted(unknown))}")
    return part(**built)
