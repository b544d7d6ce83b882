"""What `make docs` adds to the Markdown files: a mkdocs hook (see mkdocs.yml).

- `commands.md` is made from the argument parser.
- The names that `vonet` itself offers are listed in the Python API.
- Links from docs/ to other files of the repository get a target on the site. A module of the package leads to its
  entry in the Python API, a page such as CONTRIBUTING.md becomes a page, and any other file is copied.
- Blocks of ```math become MathML, which browsers draw without a script.
- Pictures of type SVG are written into the page, so that the links in them work.
"""

from __future__ import annotations

import argparse
import inspect
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"^```.*?^```$|\]\(([^)\s]+)\)", re.DOTALL | re.MULTILINE)
"""A link, whose address is the group; or a block, in which there are none."""
OUTSIDE = "repository"
"""The folder of the site for files of the repository that do not lie in docs/."""


# ---- the page of commands --------------------------------------------------------------------------------------------


def commands_page(parser: argparse.ArgumentParser | None = None) -> str:
    """The Markdown page of all commands and options.

    Args:
        parser: Of the command line; `vonet.cli.make_parser()` by default.

    Returns:
        A page with a section for each command: what it does, how it is called, and a table of its options.
    """
    from vonet.cli import commands_of, make_parser

    commands = commands_of(parser or make_parser())
    overview = [f"| [`vonet {name}`](#vonet-{name}) | {_cell(about)} |" for name, (about, _) in commands.items()]
    sections = [_section(name, about, own) for name, (about, own) in commands.items()]
    return "\n".join(
        [
            "# Commands",
            "",
            "This page is made from the program itself: it says what `vonet COMMAND --help` says. Exit codes are 0 for "
            "done, 2 for a mistake and 130 for Ctrl-C. `vonet --with YOURS.py COMMAND` runs a Python file of yours "
            "first, which may add [methods](tutorials/method.md), [layouts](tutorials/dataset.md) and "
            "[scores](tutorials/score.md).",
            "",
            "| command | purpose |",
            "| -- | -- |",
            *overview,
            "",
            *sections,
        ]
    )


def _section(name: str, about: str, parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    if " vonet " not in f" {usage}":
        usage = f"vonet {usage}"
    lines = [f"## vonet {name}", "", f"{_sentence(about)} {_expanded(parser.description or '', parser)}".rstrip(), ""]
    lines += ["```text", usage, "```", "", "| option | effect |", "| -- | -- |"]
    lines += [f"| {_name(action)} | {_cell(_help(action, parser))} |" for action in parser._actions]
    return "\n".join([*lines, ""])


def _name(action: argparse.Action) -> str:
    """As it is typed, with the name of its value."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    value = " ".join(value) if isinstance(value, tuple) else value
    names = [f"{name} {value}".rstrip() if action.nargs != 0 else name for name in action.option_strings]
    return ", ".join(f"`{_cell(name)}`" for name in names or [value])


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    if isinstance(action, argparse._HelpAction):
        return "print the help and stop"
    told = _expanded(action.help or "", parser, action)
    chosen = action.choices if action.choices and not action.metavar else ()
    return told + (f" (one of {', '.join(map(str, chosen))})" if chosen else "")


def _expanded(text: str, parser: argparse.ArgumentParser, action: argparse.Action | None = None) -> str:
    """With the values that argparse puts in place of %(...)s."""
    values = {"prog": parser.prog, **(vars(action) if action is not None else {})}
    return text % values if "%" in text else text


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# ---- links to files outside of docs/ ---------------------------------------------------------------------------------


def api_pages(folder: Path = DOCS / "api") -> dict[str, str]:
    """The page of the site that documents each module, by the module's name."""
    found = {}
    for page in sorted(folder.glob("*.md")):
        for module in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            found[module] = f"api/{page.name}"
    return found


def place_on_site(path: Path, modules: Mapping[str, str]) -> str:
    """Where a file of the repository is on the site.

    Args:
        path: Of an existing file or folder, absolute.
        modules: From `api_pages`.

    Returns:
        The address relative to the site's root, with the anchor of a module.
    """
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT)
    if inside.parts[0] == "src" and inside.suffix == ".py":
        module = ".".join(inside.with_suffix("").parts[1:]).removesuffix(".__init__")
        if module in modules:
            return f"{modules[module]}#{module}"
    return f"{OUTSIDE}/{inside.as_posix()}"


def linked(text: str, source: Path) -> Iterable[Path]:
    """The files of the repository that a page links to."""
    for link in LINK.findall(text):
        path = link.partition("#")[0]
        if path and "://" not in link:
            yield (source.parent / path).resolve()


def with_links_of_the_site(text: str, source: Path, uri: str, modules: Mapping[str, str]) -> str:
    """The page with every link to a file of the repository changed to that file's place on the site.

    Args:
        text: Markdown.
        source: The page's file in the repository, absolute.
        uri: The page's place on the site.
        modules: From `api_pages`.
    """

    def changed(match: re.Match[str]) -> str:
        link = match[1] or ""
        path, _, anchor = link.partition("#")
        if not path or "://" in link or not (target := (source.parent / path).resolve()).exists():
            return match[0]
        place, _, of_module = place_on_site(target, modules).partition("#")
        anchor = anchor or of_module
        relative = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(changed, text)


# ---- the names of the package ----------------------------------------------------------------------------------------


def surface_table(modules: Mapping[str, str]) -> str:
    """The names that `vonet` offers, with the first sentence of each and a link to its entry.

    Args:
        modules: From `api_pages`.
    """
    import vonet

    rows = []
    for name in sorted(vonet._HOMES, key=str.lower):
        thing = getattr(vonet, name)
        entry = f"{thing.__module__}.{thing.__qualname__}"
        page = posixpath.relpath(modules[thing.__module__], "api")
        first = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
        rows.append(f"| [`vonet.{name}`]({page}#{entry}) | {_cell(first.partition('. ')[0].removesuffix('.'))} |")
    return "\n".join(["| name | purpose |", "| -- | -- |", *rows])


# ---- equations and drawings ------------------------------------------------------------------------------------------


def math(source: str, *_: Any, **__: Any) -> str:
    """A ```math block as MathML."""
    from latex2mathml.converter import convert

    return f'<div class="math">{convert(source.strip(), display="block")}</div>'


def with_drawings(html: str, folder: Path) -> str:
    """The page with each SVG picture written out."""

    def drawn(match: re.Match[str]) -> str:
        file = folder / match[1]
        if not file.is_file():
            return match[0]
        drawing = file.read_text(encoding="utf-8")
        return drawing[drawing.index("<svg") :].strip()

    return re.sub(r'<img [^>]*src="([^"]+\.svg)"[^>]*>', drawn, html)


# ---- what mkdocs calls -----------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    fences = [{"name": "math", "class": "math", "format": math}]
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "commands.md", content=commands_page()))
    modules = api_pages()
    todo, done = list(DOCS.rglob("*.md")), set()
    while todo:
        source = todo.pop()
        for path in linked(source.read_text(encoding="utf-8"), source):
            place = place_on_site(path, modules).partition("#")[0]
            if path.is_file() and place.startswith(OUTSIDE) and path not in done:
                done.add(path)
                files.append(File.generated(config, place, abs_src_path=str(path)))
                todo += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    inside = uri.removeprefix(f"{OUTSIDE}/")
    source = ROOT / inside if inside != uri else DOCS / uri
    modules = api_pages()
    if "<!-- surface -->" in text:
        text = text.replace("<!-- surface -->", surface_table(modules))
    return with_links_of_the_site(text, source, uri, modules)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    return with_drawings(html, (DOCS / page.file.src_uri).parent)
