"""`vonet evaluate`: scores of a model on videos with true ids."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given
from vonet.commands.limits import add_limits, limits

ABOUT = "score a model on videos with true ids"
DESCRIPTION = (
    "Streams whole videos through the model. With torchrun each process takes a share of the videos: "
    "torchrun --nproc-per-node 2 -m vonet evaluate WEIGHTS DATA."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "weights",
        metavar="WEIGHTS",
        help="a run's folder, a file of weights, shipped weights such as vonet-closeup, hf:OWNER/NAME, or mixture",
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="anything that vonet inspect recognises, with true ids")
    parser.add_argument("--split", help="which videos (default: validation)")
    parser.add_argument("--protocol", help="vonet (default), savi, steve, videosaur or spmot")
    parser.add_argument("--videos", type=int, metavar="N", help="only the first N videos")
    parser.add_argument("--seeds", type=int, help="number of draws of the slots' noise (default: 1)")
    parser.add_argument("--batch", type=int, help="videos at a time; never changes a score (default: 8)")
    parser.add_argument("--slots", type=int, help="number of slots (default: as in training)")
    parser.add_argument("--masks", help="how masks are enlarged, nearest or bilinear (default: the model's)")
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="also score reconstructions: the shares of object and of background pixels with the right colour",
    )
    parser.add_argument("--out", type=Path, help="folder for scores (default: `evaluation` beside the weights)")
    parser.add_argument("--json", action="store_true", help="print the mean scores as JSON")
    add_limits(parser)


def run(arguments: Namespace) -> None:
    from vonet.evaluation.evaluate import evaluate

    names = ("split", "protocol", "videos", "seeds", "batch", "slots", "masks", "pictures")
    report = evaluate(arguments.weights, arguments.data, **given(arguments, *names), limits=limits(arguments))
    if report is None:  # another process of torchrun reports
        return
    written = report.write_beside(arguments.weights, arguments.out)
    for problem in report.about["problems"]:
        print(f"vonet: problem: {problem}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
        return
    print(report.table())
    for source, shares in report.about.get("painted", {}).items():
        print(
            f"Pictures painted from the {source}: {100 * shares['objects']:.1f} % of the object pixels and "
            f"{100 * shares['background']:.1f} % of the background pixels in their colour."
        )
    print(f"Verdict: {report.verdict()}.")
    print(f"Scores of each video: {' and '.join(map(str, written))}")
