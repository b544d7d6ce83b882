"""The site of the documentation: what tools/documentation.py adds to the Markdown files. `make docs` builds it."""

import argparse
import ast
import re
from pathlib import Path

import pytest
import torch
import yaml

import vonet
from tools import documentation
from vonet import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


class Config(yaml.SafeLoader):
    """mkdocs.yml names a Python function, which nobody needs here."""


Config.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Config)


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    return [page for one in (entry.values() if isinstance(entry, dict) else entry) for page in pages_of(one)]


def test_the_navigation_has_every_page():
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    listed = pages_of(SITE["nav"])
    made = {page for page in listed if page == "commands.md" or page.startswith("repository/")}
    assert len(listed) == len(set(listed))
    assert set(listed) - made == written
    for page in made - {"commands.md"}:
        assert (ROOT / page.removeprefix("repository/")).exists(), page


def test_pages_have_the_titles_of_the_navigation():
    def entries(entry):
        if isinstance(entry, dict):
            for title, below in entry.items():
                yield from [(title, below)] if isinstance(below, str) else entries(below)
        elif isinstance(entry, list):
            for one in entry:
                yield from entries(one)

    for title, page in entries(SITE["nav"]):
        path = DOCS / page
        if title == "Get started" or not path.exists():  # pages of the repository and of the parser are made
            continue
        assert path.read_text(encoding="utf-8").splitlines()[0] == f"# {title}", path


def test_the_commands_are_those_of_the_parser():
    page = documentation.commands_page()
    for name, (_, parser) in cli.commands_of(cli.make_parser()).items():
        section = page.partition(f"\n## vonet {name}\n")[2].partition("\n## ")[0]
        assert f"\nvonet {name} [-h]" in section
        for action in parser._actions:
            assert all(f"`{option}" in section for option in action.option_strings), (name, action.option_strings)
    assert "%(" not in page
    assert "%%" not in page


def test_an_option_is_shown_with_its_value_its_help_and_its_choices():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(parser_class=argparse.ArgumentParser)
    own = commands.add_parser("make", help="make a thing")
    own.add_argument("what", metavar="WHAT", help="a|b")
    own.add_argument("--size", nargs=2, metavar=("H", "W"), default=3, help="of <both> (default: %(default)s)")
    own.add_argument("--how", choices=["so", "thus"], help="100%% sure")
    own.add_argument("--fast", action="store_true", help="hurry")
    page = documentation.commands_page(parser)
    assert "| [`vonet make`](#vonet-make) | make a thing |" in page
    assert "\nMake a thing.\n" in page
    assert "| `WHAT` | a\\|b |" in page
    assert "| `--size H W` | of &lt;both> (default: 3) |" in page
    assert "| `--how HOW` | 100% sure (one of so, thus) |" in page
    assert "| `--fast` | hurry |" in page


@pytest.mark.parametrize(
    ("link", "place"),
    [
        ("../data.md#the-store", "../data.md#the-store"),
        ("../../src/vonet/model/slots.py", "../api/model.md#vonet.model.slots"),
        ("../../src/vonet/cli.py", "../repository/src/vonet/cli.py"),
        ("../../CONTRIBUTING.md", "../repository/CONTRIBUTING.md"),
        ("../../tests/plain.py", "../repository/tests/plain.py"),
        ("https://arxiv.org/abs/2401.11110", "https://arxiv.org/abs/2401.11110"),
        ("#below", "#below"),
        ("nowhere.md", "nowhere.md"),
    ],
)
def test_links_out_of_the_documentation_lead_to_their_place_on_the_site(link, place):
    modules = documentation.api_pages()
    found = documentation.with_links_of_the_site(f"[a]({link})", DOCS / "how/index.md", "how/index.md", modules)
    assert found == f"[a]({place})"


def test_links_in_blocks_stay_as_they_are():
    block = "```text\n[a](../../CONTRIBUTING.md)\n```"
    modules = documentation.api_pages()
    assert documentation.with_links_of_the_site(block, DOCS / "how/index.md", "how/index.md", modules) == block


def test_pages_of_the_repository_lead_back_into_the_documentation():
    modules = documentation.api_pages()
    found = documentation.with_links_of_the_site(
        "[a](docs/data.md)", ROOT / "CONTRIBUTING.md", "repository/CONTRIBUTING.md", modules
    )
    assert found == "[a](../data.md)"


def test_every_public_name_is_in_the_reference():
    table = documentation.surface_table(documentation.api_pages())
    for name in vonet._HOMES:
        assert f"| [`vonet.{name}`](" in table
    assert "|  |" not in table


def test_the_modules_of_the_reference_exist():
    for module in documentation.api_pages():
        path = ROOT / "src" / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module


NOT_IN_THE_API = {
    "vonet.__main__": "starts the program",
    "vonet.cli": "Commands describes it",
    "vonet.commands": "the same",
    "vonet.writing": "crash-safe files, for developers",
}
"""Modules, and packages with all of their modules, that no page of the Python API lists."""

INTERNAL = {
    "vonet.data": "colour files images known npy pickles pictures records resize store_index tars tfds tree work "
    "scenes.physics scenes.render scenes.shapes scenes.textures",
    "vonet.experiments": "hub settings trial",
    "vonet.figures": "names plots sheet strips videos",
    "vonet.serving": "known recording sound span spool",
    "vonet.training": "boards",
}
"""Modules behind the listed ones: readers of single formats, pictures of single kinds, and helpers."""


def defined(path: Path) -> list[str]:
    """The public functions and classes that a module defines itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]


def test_every_public_module_is_in_the_reference():
    listed = documentation.api_pages()
    hidden = {f"{package}.{name}" for package, names in INTERNAL.items() for name in names.split()}
    public = set()
    for path in (ROOT / "src/vonet").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        if defined(path) and not name.startswith(tuple(NOT_IN_THE_API)):
            public.add(name)
    assert public - set(listed) == hidden


def test_equations_become_mathml():
    made = documentation.math(r"r_{t,k} = \mathrm{GRU}(y_{t,k})")
    assert made.startswith('<div class="math"><math')
    assert "<mi>r</mi>" in made
    assert "\\" not in made


def test_drawings_are_part_of_the_page_so_that_their_links_work():
    html = documentation.with_drawings('<p><img alt="a" src="figure.svg" /></p>', DOCS / "how")
    assert html.startswith("<p><svg ")
    linked = re.findall(r'<a href="([\w-]+)\.html"', html)
    assert {f"{name}.md" for name in linked} <= {path.name for path in (DOCS / "how").glob("*.md")}
    assert documentation.with_drawings('<img src="none.svg">', DOCS / "how") == '<img src="none.svg">'


def test_the_pages_of_the_boxes_have_the_numbers_of_parameters():
    with torch.device("meta"):
        model = vonet.experiments.get("vonet-movi-a").model.build()

    def counted(*parts):
        return {f"{sum(p.numel() for p in part.parameters()):,}" for part in parts}

    expected = {
        "index": counted(model),
        "backbone": counted(model.backbone),
        "attention": counted(model.attention),
        "slot-encoder": counted(model.slot_encoder),
        "trajectory": counted(model.initial_slots, model.trajectory, model.context),
        "sequential-vae": counted(model.sequential_vae),
        "decoder": counted(model.decoder, model.decoder.dvae),
    }
    for page, numbers in expected.items():
        text = (DOCS / f"how/{page}.md").read_text(encoding="utf-8")
        assert [number for number in numbers if number not in text] == [], page
