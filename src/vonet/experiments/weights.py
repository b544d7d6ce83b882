"""Models on disk: Reads and writes `model.safetensors`, which contains the experiment's description in its metadata,
and a copy of the description, `config.json`.

One file is enough to build the model and load its weights. It is read strictly: an unknown part or option is refused,
and an option that the file lacks takes its default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vonet.data.known import KnownInput
from vonet.errors import BadInput
from vonet.experiments import hub, registry
from vonet.experiments.descriptions import described, read_experiment
from vonet.experiments.experiment import Experiment
from vonet.experiments.trial import trial_model
from vonet.writing import save_tensors, written_aside

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = "1"
"""Version of the description in the file. Files of vonet 0.x have none, because their parts had other names and
options."""
SHIPPED = Path(__file__).parents[1] / "pretrained"
"""A folder for each model that comes with the package."""
DEFAULT = "mixture"
"""The default method of `vonet segment`, because none of our trained models is better yet on other kinds of videos than
it was trained on."""
OTHER_VERSION = "Another version of vonet wrote it. Use that version, or train again with this one"


def save(folder: Path | str, model: nn.Module, experiment: Experiment) -> None:
    """Write a model and the experiment that describes it, so that `load` reads them.

    Both files, `model.safetensors` and `config.json`, are written to temporary names and renamed.

    Args:
        folder: Where the files are written; created if it does not exist.
        model: Any model that the experiment builds.
        experiment: Its description.

    Raises:
        BadInput: If the files cannot be written.
    """
    folder = Path(folder)
    text = json.dumps(described(experiment), indent=2)
    with written_aside(folder / CONFIG) as aside:
        aside.write_text(text + "\n", encoding="utf-8")
    save_tensors(folder / WEIGHTS, model.state_dict(), {"vonet": text, "format": FORMAT})


def load(path: Path | str) -> tuple[Any, Experiment]:
    """Read a model and the experiment that made it.

    Args:
        path: A run's folder, a file of weights, the name of a model that comes with the package ("vonet-closeup"), the
            name of a method without parameters ("mixture"), or a repository of the Hugging Face Hub ("hf:OWNER/NAME").

    Returns:
        The model in evaluation mode, on the CPU, and its experiment.

    Raises:
        BadInput: If there are no weights, or another version of vonet wrote them.
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
        raise BadInput(f"{file} does not say what model it belongs to; give weights that vonet saved")
    if facts.get("format") != FORMAT:
        version = "0.x" if "format" not in facts else f"with format {facts['format']}"
        raise BadInput(
            f"{file} holds weights of vonet {version}, which this version cannot read: train again with this version, "
            "or use them with the version that wrote them"
        )
    try:
        experiment = read_experiment(facts["vonet"])
    except BadInput as error:
        raise BadInput(f"the description in {file} cannot be read ({error}). {OTHER_VERSION}") from None
    return _ready(_model(experiment, tensors, file), experiment), experiment


def _model(experiment: Experiment, tensors: Mapping[str, Tensor], file: Path) -> nn.Module:
    """The model with these weights. Its shapes are compared with the weights before memory is allocated."""
    wanted = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        trial = trial_model(experiment, most_parameters=max(1000, 2 * len(tensors)))
    except BadInput as error:
        raise BadInput(f"the model that {file} describes is refused: {error}. {OTHER_VERSION}") from None
    model = experiment.build_model() if trial is None or _shapes(trial) == wanted else trial
    if _shapes(model) != wanted:
        raise BadInput(f"the weights in {file} do not fit the model that it describes. {OTHER_VERSION}")
    model.load_state_dict(tensors)
    return model


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _ready(model: Any, experiment: Experiment) -> Any:
    """The model in evaluation mode, with a record of its training videos attached."""
    model.known_input = KnownInput(experiment.fit, experiment.grey)
    return model.eval()


def checksum(path: Path | str) -> str:
    """SHA-256 sum of the weights' file, which identifies the weights that were scored, wherever the file is. For a
    method without parameters, the sum of its description."""
    if is_method(path):
        return hashlib.sha256(json.dumps(described(registry.get(str(path)))).encode()).hexdigest()
    return hub.sum_of(_file(path))


def push(folder: Path | str, name: str, *, private: bool = False) -> str:
    """Upload the weights in a run's folder to the Hugging Face Hub.

    Weights that cannot be read are refused before anything is sent.

    Args:
        folder: The folder of a run, with `model.safetensors` and `config.json`.
        name: OWNER/NAME of the repository, which is created if it does not exist.
        private: Whether a new repository is private.

    Returns:
        The address of the repository.

    Raises:
        BadInput: If the weights cannot be read, or the Hub refuses.
    """
    load(folder)
    files = [Path(folder) / WEIGHTS, Path(folder) / CONFIG]
    for file in files:
        if not file.is_file():
            raise BadInput(f"{folder} has no {file.name}; give the folder of a run, which has {WEIGHTS} and {CONFIG}")
    return hub.push(files, name, private)


def shipped() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(file.parent.name for file in SHIPPED.glob(f"*/{WEIGHTS}"))


def is_method(path: Path | str) -> bool:
    """Whether this is the name of an experiment without parameters. A file or run of that name takes precedence."""
    if str(path) not in registry.names() or _file(path).is_file():
        return False
    return registry.get(str(path)).training is None


def _file(path: Path | str) -> Path:
    if str(path).startswith(hub.PREFIX):
        return hub.fetch(str(path), WEIGHTS)
    if not Path(path).exists() and str(path) in shipped():
        path = SHIPPED / path
    return Path(path) / WEIGHTS if Path(path).is_dir() else Path(path)
