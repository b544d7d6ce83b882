"""The options `--max-megapixels` and `--max-gigabytes` of the commands that read files of any origin."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from vonet.commands.given import given

if TYPE_CHECKING:
    from vonet.data.limits import Limits


def add_limits(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max-megapixels",
        dest="megapixels",
        type=float,
        metavar="N",
        help="refuse pictures and frames with more million pixels; a million takes up to 10 MB of memory (default: 36)",
    )
    parser.add_argument(
        "--max-gigabytes",
        dest="gigabytes",
        type=float,
        metavar="N",
        help="refuse videos that cannot be read in pieces, such as pickles, if they take more memory (default: 2)",
    )


def limits(arguments: Namespace) -> Limits:
    from vonet.data.limits import Limits

    return Limits(**given(arguments, "megapixels", "gigabytes"))
