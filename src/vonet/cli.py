"""The command line: parse and call, nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from vonet.errors import BadInput


def main() -> None:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except BadInput as error:
        sys.exit(f"vonet: {error}")
    except KeyboardInterrupt:
        sys.exit("vonet: stopped")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vonet", description="Objects from videos, without labels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train a small VONet on a toy world and draw what it finds")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures (default: demo)")
    demo.add_argument("--updates", type=int, help="how long to train (default: as the experiment says)")
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=_demo)

    generate = commands.add_parser(
        "generate",
        help="make a world of videos with true ids, on this machine",
        description="Physics, pictures and exact ids, in the spirit of MOVi-A to E. Interrupted and started again it "
        "goes on; a larger number of videos makes a finished world grow.",
    )
    generate.add_argument("level", nargs="?", type=str.upper, metavar="LEVEL", help="A, B, C, D or E")
    generate.add_argument("--out", type=Path, help="folder to make (default: worlds/LEVEL-SIZE)")
    generate.add_argument("--train", type=int, default=1000, help="number of training videos (default: 1000)")
    generate.add_argument("--validation", type=int, default=100, help="number of validation videos (default: 100)")
    generate.add_argument("--test", type=int, default=0, help="number of test videos (default: 0)")
    generate.add_argument("--size", type=int, default=64, help="side of the pictures in pixels, even (default: 64)")
    generate.add_argument("--frames", type=int, default=24, help="frames per video (default: 24)")
    generate.add_argument(
        "--objects",
        type=int,
        nargs=2,
        metavar=("FEWEST", "MOST"),
        help="objects per video (default: the level's)",
    )
    generate.add_argument("--seed", type=int, default=0)
    generate.add_argument("--workers", type=int, help="processes (default: one per core); never changes a video")
    generate.add_argument(
        "--preview",
        nargs="?",
        type=Path,
        const=Path("preview.png"),
        metavar="PNG",
        help="only draw a few videos of the level (without LEVEL: of each) as a contact sheet (default: preview.png)",
    )
    generate.set_defaults(run=_generate)

    inspect = commands.add_parser("inspect", help="say what videos lie under a path, and what is wrong with them")
    inspect.add_argument("path", type=Path, metavar="PATH")
    inspect.add_argument("--full", action="store_true", help="decode every video and check every checksum")
    inspect.add_argument("--json", action="store_true", help="print as JSON (no contact sheet unless --sheet)")
    inspect.add_argument("--sheet", type=Path, metavar="PNG", help="the contact sheet (default: inspect.png)")
    inspect.add_argument("--workers", type=int, help="processes for --full (default: one per core)")
    inspect.set_defaults(run=_inspect)

    prepare = commands.add_parser(
        "prepare",
        help="turn videos of any layout into the store that training reads",
        description="Reads whatever `vonet inspect` recognises. Interrupted and started again it goes on; what cannot "
        "be read is named and left out.",
    )
    prepare.add_argument("path", type=Path, metavar="PATH")
    prepare.add_argument("out", type=Path, metavar="OUT")
    prepare.add_argument(
        "--size", type=int, nargs="+", metavar="PIXELS", help="side, or height and width (default: each video's own)"
    )
    prepare.add_argument("--fit", default="crop", help="crop (default) or stretch what has another shape")
    prepare.add_argument("--every", type=int, default=1, metavar="N", help="keep only every N-th frame (default: 1)")
    prepare.add_argument("--workers", type=int, help="processes (default: one per core)")
    prepare.set_defaults(run=_prepare)

    experiments = commands.add_parser("experiments", help="list the experiments, or show one in full")
    experiments.add_argument("name", nargs="?")
    experiments.set_defaults(run=_experiments)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    from vonet.demo import run

    run(arguments.out, arguments.updates, arguments.seed)


def _generate(arguments: argparse.Namespace) -> None:
    from vonet.data.scenes.generate import generate, preview
    from vonet.data.scenes.video import WorldConfig
    from vonet.data.work import cores
    from vonet.figures.videos import write_video_sheet

    objects = tuple(arguments.objects) if arguments.objects else None
    shared = {"size": arguments.size, "frames": arguments.frames, "seed": arguments.seed, "objects": objects}
    if arguments.preview is not None:
        levels = [arguments.level] if arguments.level else list("ABCDE")
        videos = [video for level in levels for video in preview(WorldConfig(level, **shared), 8 // len(levels) + 1)]
        write_video_sheet(arguments.preview, videos, rows=len(videos))
        print(f"Look at {arguments.preview}: a video in each row, frames on the left, true ids on the right.")
        return
    if arguments.level is None:
        raise BadInput("no level was given; possible are A, B, C, D and E: try vonet generate A")
    config = WorldConfig(arguments.level, **shared)
    out = arguments.out or Path("worlds") / f"{config.level}-{config.size}"
    counts = {split: getattr(arguments, split) for split in ("train", "validation", "test")}
    generate(config, counts, out, cores() if arguments.workers is None else arguments.workers)
    print(f"{out} is ready. Next: vonet inspect {out}")


def _inspect(arguments: argparse.Namespace) -> None:
    from vonet.data.inspection import inspect
    from vonet.data.work import cores
    from vonet.figures.videos import write_video_sheet

    found, videos = inspect(arguments.path, arguments.full, arguments.workers or cores())
    sheet = arguments.sheet or (None if arguments.json else Path("inspect.png"))
    if sheet is not None:
        write_video_sheet(sheet, videos)
    print(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if arguments.json else found)
    if not arguments.json:
        print(f"Look at {sheet}: a video in each row, frames on the left, true ids on the right.")


def _prepare(arguments: argparse.Namespace) -> None:
    from vonet.data.prepare import PrepareConfig, prepare
    from vonet.data.work import cores

    size = arguments.size
    if size is not None and len(size) > 2:
        raise BadInput(f"--size was given {len(size)} numbers; possible are one (the side) or two (height and width)")
    config = PrepareConfig(None if size is None else (size[0], size[-1]), arguments.fit, arguments.every)
    problems = prepare(arguments.path, arguments.out, config, arguments.workers or cores())
    for problem in problems:
        print(f"vonet: problem: {problem}", file=sys.stderr)
    print(f"{arguments.out} is ready. Next: vonet inspect {arguments.out}")


def _experiments(arguments: argparse.Namespace) -> None:
    from vonet import experiments

    if arguments.name is None:
        chosen = [experiments.get(name) for name in experiments.names()]
        width = max(len(e.name) for e in chosen)
        print("\n".join(f"{e.name:{width}}  {e.summary}" for e in chosen))
    else:
        print(json.dumps(_described(experiments.get(arguments.name)), indent=2))


def _described(value: Any) -> Any:
    """As JSON; each part says what it is, for some have no options of their own."""
    if is_dataclass(value):
        options = {option.name: _described(getattr(value, option.name)) for option in fields(value)}
        return {"part": type(value).__name__, **options}
    return {k: _described(v) for k, v in value.items()} if isinstance(value, Mapping) else value
