"""`vonet generate`: worlds of videos with true ids."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given
from vonet.commands.workers import add_workers, workers
from vonet.errors import BadInput

ABOUT = "generate a world of videos with true ids"
DESCRIPTION = (
    "Worlds A to E are rendered videos with simulated physics, modelled on MOVi-A to E; sprites are coloured shapes "
    "that drift over a plain background; spmot is the benchmark Sprites-MOT. An interrupted command continues when it "
    "is run again. A larger number of videos extends a finished world."
)
LEVELS = tuple("ABCDE")
WORLDS = (*LEVELS, "sprites", "spmot")
COUNTS = {"train": 1000, "validation": 100, "test": 0}
"""Default number of videos per split; Sprites-MOT has the numbers of the original."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("world", nargs="?", metavar="WORLD", help="A, B, C, D, E, sprites or spmot")
    parser.add_argument("--out", type=Path, help="folder to write (default: worlds/WORLD-SIZE)")
    parser.add_argument("--train", type=int, help="number of training videos (default: 1000; spmot: 9600)")
    parser.add_argument("--validation", type=int, help="number of validation videos (default: 100; spmot: 384)")
    parser.add_argument("--test", type=int, help="number of test videos (default: 0; spmot: 1000)")
    parser.add_argument(
        "--size", type=int, help="side of the frames in pixels, even (default: 64; sprites: 32; spmot: 32, 64 or 128)"
    )
    parser.add_argument("--frames", type=int, help="frames per video (default: 24; sprites: 12; spmot: always 10)")
    parser.add_argument(
        "--objects",
        type=int,
        nargs=2,
        metavar=("FEWEST", "MOST"),
        help="objects per video (default: the level's; sprites: 2 3; spmot: always 0 to 3)",
    )
    parser.add_argument(
        "--camera-distance",
        type=float,
        metavar="SHARE",
        help="camera distance relative to the level's; 0.6 is a close-up, with objects thrown from 0.6 of the region "
        "(default: 1)",
    )
    parser.add_argument("--seed", type=int, help="seed of all videos (default: 0)")
    add_workers(parser, "; never changes a video")
    parser.add_argument(
        "--preview",
        nargs="?",
        type=Path,
        const=Path("preview.png"),
        metavar="PNG",
        help="only draw a few videos of the world (without WORLD: of A to E) as a contact sheet (default: preview.png)",
    )


def without_windows() -> None:
    """Keep MuJoCo from looking for a window system, which we do not use: it starts a process for that, which prints a
    traceback on Ctrl-C. Worker processes inherit this setting. Call this before MuJoCo is imported."""
    os.environ.setdefault("MUJOCO_GL", "disable")


def run(arguments: Namespace) -> None:
    without_windows()
    from vonet.data.generate import generate, preview
    from vonet.figures.videos import write_video_sheet

    if arguments.world is None and arguments.preview is not None and _world(str(arguments.preview)) is not None:
        arguments.world, arguments.preview = str(arguments.preview), Path("preview.png")  # generate --preview A
    if arguments.preview is not None:
        worlds = [arguments.world] if arguments.world else LEVELS
        videos = [v for world in worlds for v in preview(_config(world, arguments), 8 // len(worlds) + 1)]
        write_video_sheet(arguments.preview, videos, rows=len(videos))
        print(f"Look at {arguments.preview}: a video in each row, frames on the left, true ids on the right.")
        return
    if arguments.world is None:
        raise BadInput(f"no world was given; expected one of {', '.join(WORLDS)}: try vonet generate A")
    config = _config(arguments.world, arguments)
    out = arguments.out or Path("worlds") / f"{_world(arguments.world)}-{config.size}"
    counts = {**_default_counts(arguments.world), **given(arguments, *COUNTS)}
    generate(config, counts, out, workers(arguments))
    print(f"{out} is ready. Next: vonet inspect {out}")


def _world(text: str) -> str | None:
    return next((world for world in WORLDS if world.lower() == text.lower()), None)


def _default_counts(text: str) -> dict[str, int]:
    from vonet.data import spmot

    return spmot.COUNTS if _world(text) == "spmot" else COUNTS


def _config(text: str, arguments: Namespace):  # type: ignore[no-untyped-def]  # either kind of world
    from vonet.data.scenes.video import WorldConfig
    from vonet.data.spmot import SpritesMotConfig
    from vonet.data.sprites import SpritesConfig

    world = _world(text)
    if world is None:
        raise BadInput(f"there is no world {text!r}; expected one of {', '.join(WORLDS)}")
    chosen = given(arguments, "size", "frames", "objects", "seed", "camera_distance")
    if "objects" in chosen:
        chosen["objects"] = tuple(chosen["objects"])
    if world in LEVELS:
        return WorldConfig(world, **chosen)
    if "camera_distance" in chosen:
        raise BadInput(f"{world} has no camera: omit --camera-distance, or choose a level from A to E.")
    if world == "spmot" and {"frames", "objects"} & chosen.keys():
        raise BadInput("Clips of Sprites-MOT have 10 frames and 0 to 3 objects: omit --frames and --objects.")
    return SpritesMotConfig(**chosen) if world == "spmot" else SpritesConfig(**chosen)
