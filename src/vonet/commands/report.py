"""`vonet report`: a run as one HTML file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given

ABOUT = "write a run as one HTML file: scores, curves, videos to play"
DESCRIPTION = (
    "The file needs neither server nor network. Scores are those of vonet evaluate, which is run on a few videos if it "
    "was not run yet."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run's folder, a file of weights, or mixture")
    parser.add_argument("--data", type=Path, help="videos to show and score (default: those of the training)")
    parser.add_argument("--split", help="which videos (default: validation, where there is one)")
    parser.add_argument("--videos", type=int, metavar="N", help="videos to show (default: 4)")
    parser.add_argument("--frames", type=int, metavar="N", help="frames of each at most (default: 48)")
    parser.add_argument("--scored", type=int, metavar="N", help="videos to score (default: 16)")
    parser.add_argument("--out", type=Path, metavar="HTML", help="the file (default: RUN/report.html)")


def run(arguments: Namespace) -> None:
    from vonet.figures.report import report

    path = report(arguments.folder, arguments.data, **given(arguments, "split", "videos", "frames", "scored", "out"))
    print(f"Open {path} in a browser ({path.stat().st_size / 1e6:.1f} MB; it needs neither server nor network).")
