"""`vonet segment`: find and follow the objects of any video."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.exit_codes import MISTAKE, STOPPED, leave
from vonet.commands.given import given
from vonet.commands.limits import add_limits, limits

ABOUT = "find and follow the objects of any video"
DESCRIPTION = (
    "Each video gets its own folder in OUT, which appears when it is complete. Ctrl-C ends early and keeps what was "
    "found so far. Frames are read one by one, so a video may have any length and size."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="video files, pictures, folders of frames, sets of videos, camera:0, or a URL that FFmpeg opens",
    )
    parser.add_argument("--out", type=Path, default=Path("segmented"), help="where results go (default: segmented)")
    parser.add_argument("--overwrite", action="store_true", help="replace existing results")
    parser.add_argument(
        "--weights",
        help="a run's folder, a file of weights, shipped weights such as vonet-closeup, hf:OWNER/NAME, or mixture "
        "(default: mixture)",
    )
    parser.add_argument(
        "--write",
        type=lambda names: names.split(","),
        metavar="OUTPUTS",
        help="outputs, separated by commas: overlay,tracks (default), masks, coco, ytvis, mot, npz, or all",
    )
    parser.add_argument(
        "--background", help="drop (default) leaves out background and thin rims, keep counts them as objects"
    )
    parser.add_argument(
        "--min-area",
        metavar="AREA",
        help="smallest mean area of an object, in pixels (200) or as a share of the frame (default: 0.1%%)",
    )
    parser.add_argument(
        "--min-frames", type=int, metavar="N", help="frames in which an object must be seen (default: 2)"
    )
    parser.add_argument(
        "--slots", type=int, help="largest number of objects; fewer slots merge objects (default: as in training)"
    )
    parser.add_argument("--every", type=int, metavar="N", help="use only every N-th frame (default: 1)")
    parser.add_argument("--start", help="first frame (250), second (4.5s) or clock (1:30); default: 0")
    parser.add_argument("--end", help="the first frame that is not used, in the same forms (default: to the end)")
    parser.add_argument("--fps", type=float, help="frames per second of inputs without timestamps (default: 12)")
    parser.add_argument(
        "--fit",
        help="how frames of another shape are resized: stretch, crop or letterbox (default: as in training)",
    )
    parser.add_argument(
        "--min-probability",
        type=float,
        metavar="P",
        help="pixels whose best slot has at most this probability get no id (default: 0.3)",
    )
    parser.add_argument("--seed", type=int, help="seed of the slots' noise (default: 0)")
    parser.add_argument("--split", help="use only this split of a set of videos")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    add_limits(parser)


def run(arguments: Namespace) -> None:
    from vonet.experiments import weights
    from vonet.performance import keep_freed_memory
    from vonet.serving.objects import ObjectRule, joined
    from vonet.serving.segment import Segmented, SegmentOptions, segment_to_files

    def say(done: Segmented) -> None:
        if done.frames and not arguments.json:
            print(done, flush=True)
        for note in done.notes:
            print(f"vonet: note: {note}", file=sys.stderr)
        if done.problem is not None:
            print(f"vonet: {done.problem}", file=sys.stderr)

    if arguments.weights is None:
        print(f"vonet: no --weights given, using {weights.DEFAULT} (no learning)", file=sys.stderr)
    names = ("slots", "every", "start", "end", "fps", "fit", "min_probability", "seed")
    options = SegmentOptions(**given(arguments, *names))
    keep_freed_memory()
    results = segment_to_files(
        arguments.inputs,
        arguments.out,
        arguments.weights,
        **given(arguments, "split", "write"),
        overwrite=arguments.overwrite,
        options=options,
        objects=ObjectRule(**given(arguments, "background", "min_area", "min_frames")),
        limits=limits(arguments),
        say=say,
    )
    made = [done for done in results if done.frames]
    if arguments.json:
        print(json.dumps([done.as_json() for done in results], indent=1))
    elif len(made) == 1:
        print(made[0].table())
    if not arguments.json and (scores := [done.rule for done in made if done.rule is not None]):
        print(f"By the true ids, {joined(scores)}.")
    if any(done.stopped for done in results):
        leave(STOPPED, "stopped; results are complete up to the frame where it was stopped")
    if any(done.problem for done in results):
        sys.exit(MISTAKE)
