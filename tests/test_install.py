"""Installing as a user does: a wheel in an environment of its own, and the Dockerfile."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import vonet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left behind; by this environment, so that nothing is fetched."""
    place = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        options = {"ignore": shutil.ignore_patterns("__pycache__", "*.egg-info")} if copy is shutil.copytree else {}
        copy(ROOT / name, place / name, **options)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*pip, "--wheel-dir", place / "dist", place)
    (built,) = (place / "dist").glob("vonet-*.whl")
    return built


def test_the_wheel_holds_the_package_and_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    ours = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/vonet").rglob("*") if path.is_file()}
    wanted = {name for name in ours if "__pycache__" not in name}
    assert wanted <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "results", "examples"))]
    assert f"\nVersion: {vonet.__version__}\n" in metadata
    for line in ("Author: The vonet contributors", "License-Expression: Apache-2.0", "Project-URL: Paper, https://"):
        assert f"\n{line}" in metadata, line
    assert metadata.count("\nClassifier: ") >= 5


def test_the_wheel_runs_the_demo_in_an_environment_of_its_own(wheel, tmp_path):
    """A fresh environment, into which only the wheel is installed. What it depends on is found where it is already
    installed, because torch takes minutes; a path in a .pth file brings no editable packages along."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh")
    python = tmp_path / "fresh/bin/python"
    (site,) = (tmp_path / "fresh/lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}}
    with pytest.raises(AssertionError, match="No module named 'vonet'"):
        run(python, "-c", "import vonet", **where)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--ignore-installed", wheel, **where)
    assert run(python, "-c", "import vonet; print(vonet.__file__)", **where).startswith(str(site))
    program = tmp_path / "fresh/bin/vonet"
    assert run(program, "--version", **where) == f"vonet {vonet.__version__}\n"
    assert "report.html" in run(program, "demo", "--updates", 2, "--videos", 2, **where)
    assert (tmp_path / "demo/trained/report.html").stat().st_size > 10_000


OPTIONAL = ["wandb", "huggingface_hub", "submitit", "onnx", "onnxruntime", "onnxscript", "tensorboard", "motmetrics"]


def test_optional_packages_are_not_imported_before_they_are_needed():
    modules = "vonet.cli, vonet.training.run, vonet.serving.segment, vonet.serving.export, vonet.commands.jobs"
    code = f"import sys, {modules}; print(*(name for name in {OPTIONAL} if name in sys.modules))"
    assert run(sys.executable, "-c", code) == "\n"
    assert not [name for name in OPTIONAL if name in " ".join(PROJECT["dependencies"])]


def test_every_dependency_is_pinned_for_the_tests():
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("-", "_")
    groups = PROJECT["optional-dependencies"]
    for requirement in [*PROJECT["dependencies"], *(one for group in groups.values() for one in group)]:
        name = re.match(r"[\w-]+", requirement)[0].lower().replace("-", "_")
        assert name == "vonet" or f"\n{name}==" in pinned, name


def test_no_text_tells_users_to_install_from_an_index():
    """vonet is not on one."""
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/*")]
    for path in texts:
        assert not re.search(r"pip install (-\S+ )*['\"]?vonet\b", path.read_text(encoding="utf-8")), path


# ---- Docker ----------------------------------------------------------------------------------------------------------

INSTRUCTIONS = {"FROM", "ARG", "COPY", "RUN", "WORKDIR", "ENTRYPOINT", "CMD"}


def instructions():
    """The Dockerfile without comments, continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", "")
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_copies_what_exists_and_runs_the_demo():
    found = instructions()
    assert found[0][0] == "FROM"
    assert {word for word, _ in found} <= INSTRUCTIONS
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for word, rest in found:
        if word == "COPY":
            *sources, target = rest.split()
            assert target.startswith("/vonet")
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source
    copied = {source for word, rest in found if word == "COPY" for source in rest.split()[:-1]}
    assert {*SOURCES, "constraints.txt"} == copied
    commands = dict(found)
    assert json.loads(commands["ENTRYPOINT"]) + json.loads(commands["CMD"]) == ["vonet", "demo"]
    assert commands["RUN"].endswith("--constraint /vonet/constraints.txt /vonet")
    minimum = re.search(r"python:(\d+)\.(\d+)", commands["FROM"])
    assert (int(minimum[1]), int(minimum[2])) >= (3, 11)
