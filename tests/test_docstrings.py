"""What is public is documented: arguments with shapes and units, results, errors. ruff's D rules check the rest."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import griffe
import pytest

import vonet
from vonet import interface

SOURCE = Path(vonet.__file__).parent
PROTOCOLS = (interface.VideoModel, interface.StreamingModel, interface.ExplainingModel, interface.ModelConfig)
DOCUMENTED_ONCE = {name for protocol in PROTOCOLS for name in vars(protocol) if not name.startswith("_")} | {"forward"}
"""Members of every model. `forward` is the protocol's call; its shapes are in the annotations."""

ROOMS = (
    *("interface", "model", "variants", "blocks", "training", "evaluation", "experiments"),
    *("data/video.py", "data/find.py", "data/clips.py"),
    *("serving/segment.py", "serving/segmenter.py", "serving/objects.py", "serving/outputs.py", "serving/export.py"),
)
"""Where every public method is documented, too."""

IN_FULL = [
    *(f"vonet.{name}" for name in vonet._HOMES if not inspect.isclass(getattr(vonet, name))),
    *(f"vonet.data.{name}" for name in ("open", "segments")),
    "vonet.experiments.get",
    "vonet.evaluation.protocol.score",
    "vonet.serving.segment.segment_to_files",
    "vonet.training.run.train",
    *(f"vonet.data.{name}" for name in ("generate.generate", "prepare.prepare", "inspection.inspect")),
    "vonet.data.sprites.sprite_videos",
    *(f"vonet.figures.{name}" for name in ("report.report", "draw.draw")),
    *(f"vonet.evaluation.{name}" for name in ("compare.compare", "run.evaluate_model", "spmot.tracking_scores")),
    *(f"vonet.evaluation.metrics.{name}" for name in ("ari", "fg_ari", "miou", "mbo", "boundary_f", "stability")),
    *(f"vonet.evaluation.metrics.image_{name}" for name in ("ari", "fg_ari", "miou", "mbo")),
    *(f"vonet.model.vonet.VONet.{name}" for name in ("step", "unroll", "forward", "initial_state", "pictures")),
]
"""Functions that users call: every argument is described, and so is the result."""


def found(path: str):
    module, parts = path, []
    while True:
        try:
            value = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            parts.insert(0, last)
    for part in parts:
        value = getattr(value, part)
    return value


def section(text: str, name: str) -> str:
    return (re.search(rf"^{name}:\n((?: .*\n|\n)+)", text + "\n", re.MULTILINE) or ["", ""])[1]


@pytest.mark.parametrize("path", IN_FULL)
def test_functions_for_users_are_documented_in_full(path):
    function = found(path)
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    described = re.findall(r"^    (\w+): \S", section(text, "Args"), re.MULTILINE)
    assert described == [name for name in signature.parameters if name != "self"]
    if signature.return_annotation not in (None, "None") and path != "vonet.experiments.get":
        assert section(text, "Returns").strip()
    if "raise " in inspect.getsource(function):
        assert section(text, "Raises").strip()


@pytest.mark.parametrize("name", vonet._HOMES)
def test_everything_in_vonet_has_a_docstring_of_its_own(name):
    """A dataclass without one has its signature instead, and a module of torch that of its base."""
    thing = getattr(vonet, name)
    text = thing.__doc__ if not inspect.isclass(thing) else vars(thing).get("__doc__")
    assert text
    assert not text.startswith(f"{name}(")


def objects(parent):
    """A module, its classes and functions, and all below it."""
    yield parent
    if parent.is_module or parent.is_class:
        for member in parent.members.values():
            if not member.is_alias:
                yield from objects(member)


def test_sections_of_docstrings_are_known():
    """griffe, which makes the Python API, shows a paragraph such as "name: text" with an indented line as a box."""
    box = griffe.DocstringSectionKind.admonition
    package = griffe.load("vonet", search_paths=[SOURCE.parent])
    documented = [one for one in objects(package) if one.docstring]
    boxes = {one.path for one in documented for part in one.docstring.parse("google") if part.kind is box}
    assert boxes == set()


def undocumented(path: Path):
    """Public methods without a docstring, own or inherited from the class above."""

    def documented(name: str, bases: list[ast.expr]) -> bool:
        for base in bases:
            kind = classes.get(getattr(base, "id", getattr(getattr(base, "value", None), "id", "")))
            if kind is not None:
                own = [one for one in kind.body if getattr(one, "name", "") == name]
                if (own and ast.get_docstring(own[0])) or documented(name, kind.bases):
                    return True
        return False

    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for kind in classes.values():
        for method in kind.body:
            if not isinstance(method, ast.FunctionDef) or method.name.startswith("_") or kind.name.startswith("_"):
                continue
            if any(getattr(decorator, "id", "") == "overload" for decorator in method.decorator_list):
                continue
            if not ast.get_docstring(method) and not documented(method.name, kind.bases):
                yield f"{kind.name}.{method.name}"


@pytest.mark.parametrize("room", ROOMS)
def test_methods_are_documented(room):
    place = SOURCE / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    missing = {f"{file.name}: {name}" for file in files for name in undocumented(file)}
    assert {name for name in missing if name.rpartition(".")[2] not in DOCUMENTED_ONCE} == set()
