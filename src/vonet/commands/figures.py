"""`vonet figures`: figures and tables for papers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given

ABOUT = "draw figures and tables for papers, from runs and evaluations"
DESCRIPTION = (
    "From runs: masks, foregrounds, reconstructions, KL curves, scores against training time. From evaluations (those "
    "of the runs, and JSON files of vonet evaluate): a table in Markdown and LaTeX, and bars; runs of one experiment "
    "count as its seeds. Each figure is a PDF and a PNG."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="SOURCE",
        help="run folders; JSON files of vonet evaluate or make bench",
    )
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figures (default: figures)")
    parser.add_argument("--data", type=Path, help="videos to show (default: those the first run was trained on)")
    parser.add_argument("--split", help="which videos (default: validation, where there is one)")
    parser.add_argument("--videos", type=int, metavar="N", help="videos to show (default: 2)")
    parser.add_argument("--frames", type=int, metavar="N", help="frames of each (default: 24)")


def run(arguments: Namespace) -> None:
    from vonet.figures.draw import draw

    written = draw(arguments.sources, arguments.out, **given(arguments, "data", "split", "videos", "frames"))
    print("\n".join(map(str, written)))
