"""Dependencies point one way, and importing is light."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import vonet
from vonet import cli

SOURCE = Path(vonet.__file__).parent

# What each room may import of the package, from the bottom to the top. `training.run` is the top of training: the run
# and its callbacks score and draw, and so stand above evaluation and figures; the rest of training stands below them.
SHARED = {"errors", "writing"}
ALLOWED = {
    "errors": set(),
    "writing": {"errors"},
    "schedule": {"errors"},
    "interface": {"errors"},
    "performance": {"interface"},
    "blocks": {"errors", "interface", "schedule"},
    "data": SHARED | {"interface"},
    "model": {"errors", "interface", "schedule", "blocks"},
    "variants": {"errors", "interface", "schedule", "blocks", "model"},
    "baselines": {"errors", "interface", "schedule", "blocks"},
    "training": SHARED | {"interface", "schedule", "data"},
    "experiments": SHARED | {"interface", "schedule", "data", "blocks", "model", "variants", "baselines", "training"},
    "evaluation": SHARED | {"interface", "performance", "data", "training", "experiments"},
    "figures": SHARED | {"interface", "performance", "data", "training", "experiments", "evaluation"},
    "training.run": SHARED | {"interface", "performance", "data", "training", "experiments", "evaluation", "figures"},
    "serving": SHARED | {"interface", "data", "experiments", "figures"},
    "commands": SHARED
    | {"performance", "data", "experiments", "evaluation", "figures", "training.run", "serving", "cli"},
    "cli": {"errors", "commands"},
    "__main__": {"cli"},
}
TOP_OF_TRAINING = ("run", "callbacks")
CONCRETE = {"model", "variants", "baselines"}


def room(names: Sequence[str]) -> str:
    """Of a module, given the parts of its name below the package."""
    return "training.run" if names[0] == "training" and names[1:2] and names[1] in TOP_OF_TRAINING else names[0]


def imports(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {room(name.split(".")[1:]) for name in names if name.startswith("vonet.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = room([part.removesuffix(".py") for part in path.relative_to(SOURCE).parts])
    if here == "__init__":
        assert imports(path) == set()
        return
    assert imports(path) <= ALLOWED[here] | {here}


def test_the_order_of_the_rooms_has_no_circle():
    order = list(ALLOWED)
    upwards = {
        (one, other) for one, others in ALLOWED.items() for other in others if order.index(other) > order.index(one)
    }
    assert upwards == {("commands", "cli")}  # the completion script is made from the parser


def test_only_experiments_name_concrete_models():
    assert {name for name, others in ALLOWED.items() if others & CONCRETE} == {"variants", "experiments"}


def test_the_top_level_holds_the_rooms_and_few_files():
    files = [path.name for path in SOURCE.iterdir() if path.is_file()]
    assert len(files) <= 8, files


HELP = """
import contextlib, sys, vonet.cli
for words in (["--help"], ["--version"], ["completion", "bash"], *([c, "--help"] for c in sys.argv[1:])):
    sys.argv[1:] = words
    with contextlib.suppress(SystemExit):
        vonet.cli.main()
sys.exit(3 if "torch" in sys.modules else 4 if "numpy" in sys.modules else 0)
"""


def test_help_does_not_wait_for_torch():
    names = list(cli.commands_of(cli.make_parser()))
    done = subprocess.run([sys.executable, "-c", HELP, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: vonet") == len(names) + 1
