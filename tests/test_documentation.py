"""Every command and every example of the documentation is run, or checked in a cheaper way that is written down here.

A page is run from top to bottom in a folder of its own, in which lies what its words in capitals name (`prepared`): a
tiny world, a run of two updates, a short video. Python that begins with the name of a file is saved as that file, as
the page tells its reader to do; all other Python is executed.
"""

import argparse
import io
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import jaxtyping
import numpy as np
import pytest
from PIL import Image

import vonet
from tests.data.layouts import movi, write_shards
from tests.own_parts import as_in_a_new_process
from tests.reduced import reduced_experiment
from tests.serving.small import pictures, write_video
from vonet import cli, experiments
from vonet.experiments import Experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT)) for pattern in ("*.md", "docs/**/*.md", "results/*.md") for path in ROOT.glob(pattern)
)

PREPARED = {
    "README.md": ("clip.mp4", "MY_VIDEOS", "movi_a"),
    "docs/data.md": ("PATH",),
    "docs/index.md": ("clip.mp4",),
    "docs/figures.md": (
        "RUN",
        "PATH",
        "DATA",
        "WEIGHTS.safetensors",
        "clip.mp4",
        "runs",
        "results",
        "bench-attention.json",
    ),
    "docs/methods/index.md": ("WORLD",),
    "docs/segment.md": ("clip.mp4", "frames", "runs"),
    "docs/sharing.md": ("RUN",),
    "docs/training.md": ("WORLD",),
    "docs/tutorials/reproduce.md": ("movi",),
    "docs/tutorials/results.md": ("RUN", "DATA"),
    "docs/tutorials/score.md": ("RUN", "DATA"),
    "docs/tutorials/segment.md": ("clip.mp4",),
    "docs/tutorials/train.md": ("clip.mp4", "MY_VIDEOS"),
}
"""What a page takes for granted."""

SHORTER = {
    "generate": "--train 2 --validation 1 --test 1 --workers 1",
    "prepare": "--workers 1",
    "train": "--updates 1 --videos 1 --set training.batch=2",
    "report": "--videos 1 --frames 2 --scored 1",
    "figures": "--videos 1 --frames 2",
}
"""Commands that run with these options besides, so that they take a second and not minutes."""

NOT_RUN = {
    "git clone URL vonet": "it is how the reader came here",
    "git clone URL vonet '&&' cd vonet '&&' make setup": "the same",
    "cd vonet": "the same",
    ".venv/bin/pytest tests/test_model.py": "it is among the tests",
    ".venv/bin/pytest tests/test_model.py -k permut": "the same",
    "git tag --annotate v1.0.0 --message 'VONet learns objects on a laptop; mixture is a method of its own'": "of "
    "a release",
    "make setup": "it installs the program that runs this",
    "source .venv/bin/activate": "the same",
    "make demo": "minutes of training; tests/test_cli.py runs it with two updates",
    "make test": "it runs this file",
    "vonet segment camera:0 --end 10s": "needs a camera; tests/serving has FFmpeg's test picture",
    "torchrun --nproc-per-node 4 -m vonet train vonet-movi-a --data STORE --out runs/a": "needs four processes and the "
    "paper's model; tests/training runs two processes with a small one",
    "mkdir -p movi/movi_a": "MOVi is not fetched; tests/test_reproduce.py has both as the plan's",
    "gcloud storage cp --recursive gs://kubric-public/tfds/movi_a/128x128 movi/movi_a": "the same",
    "torchrun --nproc-per-node 4 -m vonet train vonet-movi-a --data movi-a --out runs/vonet-movi-a": "days",
    "vonet evaluate runs/vonet-movi-a movi-a": "of that run",
    "vonet reproduce paper --level a --seeds 3": "weeks; tests/test_reproduce.py runs sprites with two updates",
    "vonet reproduce paper --level a --seeds 3 --on slurm --slurm partition=gpu account=vision": "needs a Slurm; "
    "tests/test_reproduce.py has one that runs nothing",
    "vonet push RUN someone/small-vonet": "needs the Hub; tests/test_hub.py has one on this machine",
    "vonet segment clip.mp4 --weights hf:someone/small-vonet": "the same",
}
"""Commands that are only parsed, and why."""

SAID = {
    "docs/tutorials/method.md": ("experiment clusters", "Verdict: "),
    "docs/tutorials/dataset.md": ("laboratory: arrays", "Verdict: "),
    "docs/tutorials/score.md": ("centre error",),
    "docs/segment.md": ("\n0 [(", "\n1 [(", "\n2 [(", "\n[Row(id="),
}
"""What the commands of a page print, among other things."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[list[str]]:
    return [words for line in block.splitlines() if (words := shlex.split(line, comments=True))]


# ---- what pages take for granted -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """One of everything that a page may name."""
    place = tmp_path_factory.mktemp("prepared")
    counts = "--train 3 --validation 2 --test 1 --size 32 --frames 8"
    cli.main(f"generate A {counts} --workers 1 --out {place}/WORLD".split())
    training = "--updates 2 --videos 1 --evaluate-every 2"
    cli.main(f"train vonet-sprites --data {place}/WORLD --out {place}/RUN {training}".split())
    for name in ("first", "second"):
        shutil.copytree(place / "RUN", place / "runs" / name)
        cli.main(f"evaluate {place}/runs/{name} {place}/WORLD --videos 1".split())
    shutil.copytree(place / "runs/first/evaluation", place / "results")
    shutil.copy(place / "RUN/model.safetensors", place / "WEIGHTS.safetensors")
    (place / "bench-attention.json").write_text('{"slots": [2, 4], "milliseconds": {"ours": [1.0, 2.5]}}')
    write_video(place / "clip.mp4")
    write_video(place / "MY_VIDEOS/holiday.mp4")
    (place / "frames").mkdir()
    for t, frame in enumerate(pictures(2)):
        Image.fromarray(frame).save(place / f"frames/{t}.png")
    write_shards(place / "movi_a/128x128/1.0.0", [movi(frames=2)[0]], 1, split="validation")
    shutil.copytree(place / "movi_a", place / "movi/movi_a")
    return place


@pytest.fixture
def here(request, prepared, tmp_path, monkeypatch) -> Path:
    """A folder with what the page takes for granted, to which the process has moved. Worlds are only read."""
    for name in PREPARED.get(request.node.callspec.params["page"], ()):
        if name in ("WORLD", "DATA", "PATH"):
            (tmp_path / name).symlink_to(prepared / "WORLD")
        else:
            (shutil.copytree if (prepared / name).is_dir() else shutil.copy)(prepared / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for whoever starts Python there
    return tmp_path


# ---- a page ----------------------------------------------------------------------------------------------------------


def run(words: list[str]) -> None:
    """A command that is not among the exceptions is ours, and works."""
    program, *arguments = words
    assert program == "vonet", f"{shlex.join(words)}: run it here, or say in NOT_RUN why not"
    expanded = [
        found for word in arguments for found in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    given = [word.removesuffix("...") for word in expanded]  # RUN...: one or more
    command = cli.make_parser().parse_args(given).run.__module__.rpartition(".")[2]
    # A command that lacks `--with` fails. Checks of shapes know no symbols, of which a traced model is made.
    with as_in_a_new_process(), patch.object(jaxtyping.config, "jaxtyping_disable", command == "export"):
        cli.main([*given, *shlex.split(SHORTER.get(command, ""))])


def execute(page: str, code: str, names: dict[str, object]) -> None:
    saved = re.match(r"# (\w+\.py)\n", code)
    if saved:
        Path(saved[1]).write_text(code, encoding="utf-8")
    else:
        exec(compile(code, page, "exec"), names)


@pytest.fixture
def affordable(monkeypatch):
    """The paper's model with few channels; frames as a camera or another program sends them."""
    get = experiments.get

    def smaller(name: str) -> Experiment:
        found = get(name)
        if name != "vonet-movi-a":
            return found
        small = reduced_experiment(found)
        return replace(small, model=replace(small.model, size=found.model.size))

    monkeypatch.setattr(experiments, "get", smaller)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(pictures(3).tobytes())))


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_every_example_works(page, here, affordable, capsys):
    ids = np.random.default_rng(0).integers(0, 3, (2, 2, 8, 8))
    names = {"__name__": "__main__", "PATH": "PATH", "true_ids": ids[0], "predicted_ids": ids[1]}
    with as_in_a_new_process():
        for language, block in fences(page):
            if language == "python":
                execute(page, block, names)
            elif language == "bash":
                for words in commands(block):
                    if shlex.join(words) not in NOT_RUN:
                        run(words)
            else:
                assert language in ("", "bibtex", "math"), f"{page} has a block in {language}, which nobody runs"
    said = capsys.readouterr().out
    assert [words for words in SAID.get(page, ()) if words not in said] == []


# ---- what is only parsed ---------------------------------------------------------------------------------------------


def check(words: list[str]) -> None:
    """That a command, or the beginning of one, is made of what exists: commands, options, experiments, make's targets,
    modules."""
    if words[0] == "make":
        done = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif words[:2] == ["python", "-m"]:
        module = ROOT / words[2].replace(".", "/")
        assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()
    elif words[:2] == ["git", "tag"]:
        assert words[3].startswith("v")
    elif words[0] in ("git", "cd"):
        assert "vonet" in words
        assert words[-1] == "vonet" or words[-4:] == ["vonet", "&&", "make", "setup"]
    elif words[0] == ".venv/bin/pytest":
        tests = (ROOT / words[1]).read_text(encoding="utf-8")
        assert not words[2:] or re.search(rf"def test_\w*{words[3]}", tests), words
    elif words[0] in ("mkdir", "gcloud"):
        assert words[-1] == "movi/movi_a"
    elif words[0] == "source":
        assert f"-m venv {words[1].partition('/')[0]}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    else:
        _check_ours(words[words.index("vonet") + 1 :])


def _check_ours(words: list[str]) -> None:
    words = words[2:] if words[0] == "--with" else words
    if words in ([], ["COMMAND"], ["--help"], ["--version"]):
        return
    known = cli.commands_of(cli.make_parser())
    assert words[0] in known, words
    _, parser = known[words[0]]
    options = {name for action in parser._actions for name in action.option_strings}
    assert {word for word in words if word.startswith("--")} <= options, words
    if words[0] == "train" and len(words) > 1 and not words[1].startswith("--"):
        assert words[1] in [*experiments.names(), "…"], words
    assert (complaint(parser, [re.sub(r"\bN$", "0", word) for word in words[1:]]) or UNFINISHED[0]).startswith(
        UNFINISHED
    )


UNFINISHED = ("the following arguments are required", "argument --seeds: expected one argument")
"""What a parser says of commands that are only mentioned, as in "`vonet evaluate` writes"."""


def complaint(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    def refuse(message: str) -> None:
        raise ValueError(message)

    parser.error = refuse  # type: ignore[assignment]
    try:
        parser.parse_args([word for word in words if word != "--help"])
    except ValueError as error:
        return str(error)
    return None


def inline(page: str) -> list[list[str]]:
    """The commands between backticks in the running text."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    ours = re.compile(r"(torchrun \S.* -m )?vonet [a-z-]|make [a-z]|python -m ")
    return [shlex.split(span) for span in spans if ours.match(span)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page):
    for words in inline(page):
        check(words)


@pytest.mark.parametrize("command", NOT_RUN)
def test_what_is_not_run_exists_and_is_still_in_the_documentation(command):
    check(shlex.split(command))
    lines = [
        shlex.join(words)
        for page in PAGES
        for kind, block in fences(page)
        if kind == "bash"
        for words in commands(block)
    ]
    assert command in lines


@pytest.mark.parametrize(
    "command", ["make nonsense", "vonet nonsense", "vonet train laptop-z --data WORLD", "vonet list --nonsense"]
)
def test_what_does_not_exist_is_found(command):
    with pytest.raises(AssertionError):
        check(shlex.split(command))
    with pytest.raises(AssertionError):
        run(shlex.split(f"nonsense {command}"))


# ---- pages among themselves ------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_citation_and_changelog_are_of_this_version():
    assert f"\nversion: {vonet.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert versions[0][0] == vonet.__version__
    assert len(versions) == len(re.findall(r"^## ", text_of("CHANGELOG.md"), re.MULTILINE))


def test_a_reader_of_the_readme_finds_every_page():
    """From link to link, without the navigation of the site."""
    found, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        for link in re.findall(r"\]\(([^)\s#]+)", text_of(page)):
            target = (ROOT / page).parent.joinpath(link).resolve()
            if target.suffix == ".md" and str(target.relative_to(ROOT)) not in {*found, *todo}:
                todo.append(str(target.relative_to(ROOT)))
    assert set(PAGES) - found == set()


def test_pages_that_the_code_names_exist():
    files = [
        path
        for folder in ("src", "tests", "results", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    for path in files:
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), (path, page)


def sentences(page: str) -> list[str]:
    """The running text. Blocks, tables, headings and the addresses of links are left out; code counts as one word."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|^\|.*?$|^#+ .*?$", "\n\n", text_of(page), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "Code", re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text))
    return [one for part in re.split(r"\n\s*\n", text) for one in re.split(r"(?<=[.!?])[*_)\"]*\s+(?=\W*[A-Z])", part)]


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/log/")])
def test_sentences_have_at_most_thirty_words(page):
    """Except in the log, which is not rewritten, and in lists of links."""
    for sentence in sentences(page):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        assert len(words) <= 30, " ".join(words)


def test_the_readme_is_short():
    lines = text_of("README.md").splitlines()
    assert len(lines) <= 160
    assert [line for line in lines if len(line) > 100] == []


def test_tables_of_the_readme_have_at_most_ten_rows():
    for table in re.findall(r"(?:^\|.*\n)+", text_of("README.md"), re.MULTILINE):
        assert len(table.splitlines()) - 2 <= 10, table
