"""`vonet inspect`: list the videos under a path."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.limits import add_limits, limits
from vonet.commands.workers import add_workers, workers
from vonet.errors import BadInput

ABOUT = "list the videos under a path and what is wrong with them"
DESCRIPTION = "Recognises MOVi (TFDS shards and other layouts), video files, folders of frames, and stores."


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="a video file, a folder of frames, or a set of videos of any layout"
    )
    parser.add_argument("--full", action="store_true", help="decode every video and check every checksum")
    parser.add_argument("--json", action="store_true", help="print as JSON (no contact sheet unless --sheet)")
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="the contact sheet (default: inspect.png)")
    add_workers(parser, ", for --full")
    add_limits(parser)


def run(arguments: Namespace) -> None:
    from vonet.data.inspection import inspect
    from vonet.figures.videos import write_video_sheet

    sheet = arguments.sheet or (None if arguments.json else Path("inspect.png"))
    if sheet is not None and arguments.path.is_dir() and sheet.resolve().is_relative_to(arguments.path.resolve()):
        if arguments.sheet:
            raise BadInput(f"{sheet} would lie among the videos of {arguments.path}: choose a place outside")
        sheet = Path(tempfile.gettempdir()) / sheet
    found, videos = inspect(arguments.path, arguments.full, workers(arguments), limits(arguments))
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found)
    if sheet is not None:
        write_video_sheet(sheet, videos)
        if not arguments.json:
            print(f"Look at {sheet}: a video in each row, frames on the left, true ids on the right.")
