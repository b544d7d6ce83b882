"""`vonet compare`: methods side by side."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

ABOUT = "print methods side by side, from their recorded scores"
DESCRIPTION = "Compares runs that vonet evaluate has scored on the same videos. The table is Markdown."


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="a run's folder, or an evaluation's .json")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: Namespace) -> None:
    from vonet.evaluation.compare import compare

    found = compare(arguments.paths)
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found.table())
