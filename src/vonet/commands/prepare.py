"""`vonet prepare`: videos of any layout as the store that training reads."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given
from vonet.commands.limits import add_limits, limits
from vonet.commands.workers import add_workers, workers
from vonet.errors import BadInput

ABOUT = "convert videos of any layout to the store that training reads"
DESCRIPTION = (
    "Reads whatever `vonet inspect` recognises. An interrupted command continues when it is run again. Videos that "
    "cannot be read are reported and skipped."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="a video file, a folder of frames, or a set of videos of any layout"
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the store; it must not lie inside PATH")
    parser.add_argument(
        "--size", type=int, nargs="+", metavar="PIXELS", help="side, or height and width (default: each video's own)"
    )
    parser.add_argument(
        "--fit", help="how frames of another shape are resized: stretch (default), crop or letterbox (grey bars)"
    )
    parser.add_argument("--every", type=int, metavar="N", help="keep only every N-th frame (default: 1)")
    add_workers(parser)
    add_limits(parser)


def run(arguments: Namespace) -> None:
    from vonet.data.prepare import PrepareConfig, prepare

    size = arguments.size
    if size is not None and len(size) > 2:
        raise BadInput(f"--size has {len(size)} numbers; give one (the side) or two (height and width)")
    config = PrepareConfig(None if size is None else (size[0], size[-1]), **given(arguments, "fit", "every"))
    made = prepare(arguments.path, arguments.out, config, workers(arguments), limits(arguments))
    for kind, sentences in (("problem", made.problems), ("note", made.notes)):
        for sentence in sentences:
            print(f"vonet: {kind}: {sentence}", file=sys.stderr)
    print(f"{arguments.out} is ready. Next: vonet inspect {arguments.out}")
