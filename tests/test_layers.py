"""Dependencies point one way, and importing is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vonet

SOURCE = Path(vonet.__file__).parent

# What each part of the package may import of the package; the order is from the bottom to the top.
ALLOWED = {
    "errors": set(),
    "writing": {"errors"},
    "performance": {"interface"},
    "interface": {"errors"},
    "schedule": {"errors"},
    "blocks": {"errors", "interface", "schedule"},
    "data": {"errors", "writing"},
    "model": {"errors", "interface", "schedule", "blocks"},
    "baselines": {"errors", "interface", "schedule", "blocks"},
    "evaluation": {"errors", "writing", "interface", "data"},
    "figures": {"errors", "writing", "interface", "data"},
    "training": {"errors", "writing", "interface", "schedule", "data"},
    "experiments": {"errors", "interface", "schedule", "performance", "blocks", "model", "baselines", "training"},
    "weights": {"errors", "writing", "experiments"},
    "compare": {"errors", "evaluation"},
    "evaluate": {"errors", "interface", "performance", "data", "training", "evaluation", "weights"},
    "train": {
        *("errors", "writing", "interface", "performance", "data", "training"),
        *("evaluation", "figures", "experiments", "weights"),
    },
    "demo": {
        *("errors", "interface", "performance", "data", "model", "training"),
        *("figures", "evaluation", "experiments", "weights"),
    },
    "cli": {
        "errors",
        "data",
        "figures",
        "experiments",
        "weights",
        "evaluate",
        "evaluation",
        "compare",
        "train",
        "demo",
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


def test_help_does_not_wait_for_torch():
    code = "import sys, vonet.cli; vonet.cli._parser().format_help(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
