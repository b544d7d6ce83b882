"""Dependencies point one way, and importing is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vonet
from vonet import cli

SOURCE = Path(vonet.__file__).parent

# What each part of the package may import of the package; the order is from the bottom to the top.
ALLOWED = {
    "errors": set(),
    "writing": {"errors"},
    "performance": {"interface"},
    "stopping": set(),
    "completion": {"errors"},
    "extensions": {"errors"},
    "interface": {"errors"},
    "schedule": {"errors"},
    "blocks": {"errors", "interface", "schedule"},
    "data": {"errors", "writing"},
    "model": {"errors", "interface", "schedule", "blocks"},
    "baselines": {"errors", "interface", "schedule", "blocks"},
    "evaluation": {"errors", "writing", "interface", "data"},
    "figures": {"errors", "writing", "interface", "data", "evaluation"},
    "training": {"errors", "writing", "interface", "schedule", "data"},
    "experiments": {"errors", "interface", "schedule", "performance", "blocks", "model", "baselines", "training"},
    "weights": {"errors", "writing", "experiments"},
    "compare": {"errors", "evaluation"},
    "evaluate": {"errors", "interface", "performance", "data", "training", "evaluation", "weights"},
    "train": {
        *("errors", "writing", "stopping", "interface", "performance", "data", "training"),
        *("evaluation", "figures", "experiments", "weights"),
    },
    "serving": {"errors", "writing", "stopping", "interface", "data", "figures", "weights"},
    "report": {
        *("errors", "performance", "data", "training"),
        *("evaluation", "figures", "experiments", "weights", "evaluate"),
    },
    "draw": {"errors", "performance", "data", "training", "evaluation", "figures", "weights", "report"},
    "reproduce": {"errors", "data", "evaluation", "experiments", "evaluate", "train"},
    "demo": {
        *("errors", "data", "evaluation", "experiments", "weights"),
        *("evaluate", "train", "report", "reproduce", "serving"),
    },
    "cli": {
        *("errors", "performance", "completion", "extensions", "data", "figures", "evaluation", "experiments"),
        *("weights", "evaluate", "compare", "train", "report", "draw", "serving", "demo", "reproduce"),
    },
    "__main__": {"cli"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "vonet" else [node.module or ""]
        found |= {name.split(".")[1] for name in names if name.startswith("vonet.")}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part == "__init__":
        assert imports(path) == set()
        return
    assert imports(path) <= ALLOWED[part] | {part}


HELP = """
import contextlib, sys, vonet.cli
for words in (["--help"], ["--version"], ["completion", "bash"], *([c, "--help"] for c in sys.argv[1:])):
    sys.argv[1:] = words
    with contextlib.suppress(SystemExit):
        vonet.cli.main()
sys.exit(3 if "torch" in sys.modules else 4 if "numpy" in sys.modules else 0)
"""


def test_help_does_not_wait_for_torch():
    names = list(cli.commands_of(cli._parser()))
    done = subprocess.run([sys.executable, "-c", HELP, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: vonet") == len(names) + 1
