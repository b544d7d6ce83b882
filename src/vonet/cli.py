"""The command line: parse and call, nothing else."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import vonet
from vonet.errors import BadInput
from vonet.extensions import use

MISTAKE, STOPPED, UNREAD = 2, 130, 141
"""How the process ends but for 0: what was given cannot be used; Ctrl-C; nobody reads the output any more."""


def main(words: Sequence[str] | None = None) -> None:
    """Do what the words say; without any, what the process was started with."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows few letters is no reason to stop
    try:
        try:
            parser = _parser()
            if words is None and len(sys.argv) == 1:
                print(parser.format_help(), end="", file=sys.stderr)
                sys.exit(MISTAKE)
            arguments = parser.parse_args(words)
            for file in arguments.files:
                use(file)
            arguments.run(arguments)
        finally:
            sys.stdout.flush()
    except BadInput as error:
        _leave(MISTAKE, str(error))
    except KeyboardInterrupt:
        _leave(STOPPED, "stopped")
    except BrokenPipeError:  # whoever read our output, such as `head`, has seen enough
        _stop_printing()
        sys.exit(UNREAD)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _stop_printing()
        _leave(MISTAKE, f"what is printed cannot be written ({error.strerror}): make room, or print elsewhere")


def _stop_printing() -> None:
    """What is still to be printed goes nowhere, or Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int, sentence: str) -> NoReturn:
    print(f"vonet: {sentence}", file=sys.stderr)
    sys.exit(code)


HELP = """\
usage: vonet [--with YOURS.py] COMMAND [OPTION...]

Objects from videos, without labels. Begin with:
  vonet demo                         see a small model learn, in minutes
  vonet segment clip.mp4             find the objects of your own video
  vonet train laptop-a --data DATA   learn from your own videos

commands:
{commands}

vonet COMMAND --help says more. Exit codes: 0 done, 2 a mistake, 130 stopped.
"""


class _Parser(argparse.ArgumentParser):
    """Its help fits on a screen, and begins with what a newcomer needs."""

    def format_help(self) -> str:
        listed = commands_of(self)
        width = max(map(len, listed)) + 2
        return HELP.format(commands="\n".join(f"  {name:{width}}{about}" for name, (about, _) in listed.items()))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="vonet")
    parser.add_argument("--version", action="version", version=f"vonet {vonet.__version__}")
    parser.add_argument("--with", dest="files", type=Path, action="append", default=[], metavar="YOURS.py")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=argparse.ArgumentParser)

    demo = commands.add_parser(
        "demo",
        help="make a world, learn from it, score, segment and report",
        description="What is done already is used again; Ctrl-C and start again goes on.",
    )
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

    train = commands.add_parser(
        "train",
        help="train an experiment on videos",
        description="Weights, log, curves, pictures and checkpoints lie in RUN. Ctrl-C and SIGTERM save first; "
        "--resume goes on exactly. Several processes: torchrun --nproc-per-node 2 -m vonet train EXPERIMENT ...",
    )
    train.add_argument(
        "experiment", metavar="EXPERIMENT", help="a name that vonet list shows, or of your own (vonet --with)"
    )
    train.add_argument("--data", type=Path, required=True, help="videos; a store is best (vonet prepare)")
    train.add_argument("--out", type=Path, metavar="RUN", help="the run's folder (default: runs/EXPERIMENT)")
    train.add_argument("--from", dest="start", type=Path, metavar="WEIGHTS", help="begin with these weights")
    train.add_argument("--resume", action="store_true", help="go on with the run in RUN")
    train.add_argument("--updates", type=int, help="stop at this update (default: as the experiment says)")
    train.add_argument("--minutes", type=float, help="stop after so much training, resumed parts included")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="OPTION=VALUE",
        help="such as model.slots=7",
    )
    train.add_argument("--accumulate", type=int, default=1, help="compute a batch in so many parts (default: 1)")
    train.add_argument("--compile", action="store_true", help="torch.compile, where the machine can")
    train.add_argument("--evaluate-every", type=int, metavar="N", help="updates between scores (default: a tenth)")
    train.add_argument("--videos", type=int, default=16, help="validation videos to score (default: 16)")
    train.add_argument("--save-minutes", type=float, default=5.0, help="between checkpoints (default: 5)")
    train.add_argument("--tensorboard", action="store_true", help="also write for TensorBoard")
    train.set_defaults(run=_train)

    listing = commands.add_parser("list", help="list the experiments with what they cost and should give")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=_list)

    evaluate = commands.add_parser(
        "evaluate",
        help="score a model on videos with true ids, beside trivial methods",
        description="Streams whole videos through the model. With torchrun each process takes a share of the videos: "
        "torchrun --nproc-per-node 2 -m vonet evaluate WEIGHTS DATA.",
    )
    evaluate.add_argument("weights", type=Path, metavar="WEIGHTS", help="a run's folder, or a file of weights")
    evaluate.add_argument(
        "data", type=Path, metavar="DATA", help="anything that vonet inspect recognises, with true ids"
    )
    evaluate.add_argument("--split", default="validation", help="which videos (default: validation)")
    evaluate.add_argument("--protocol", default="vonet", help="vonet (default), savi, steve or videosaur")
    evaluate.add_argument("--videos", type=int, metavar="N", help="only the first N videos")
    evaluate.add_argument("--seeds", type=int, default=1, help="how many draws of the slots' noise (default: 1)")
    evaluate.add_argument("--batch", type=int, default=8, help="videos at a time; never changes a score (default: 8)")
    evaluate.add_argument("--slots", type=int, help="another number of slots than the model was trained with")
    evaluate.add_argument("--masks", help="how masks are enlarged, nearest or bilinear (default: the model's)")
    evaluate.add_argument("--out", type=Path, help="folder for scores (default: `evaluation` beside the weights)")
    evaluate.add_argument("--json", action="store_true", help="print the mean scores as JSON")
    evaluate.set_defaults(run=_evaluate)

    segment = commands.add_parser(
        "segment",
        help="find and follow the objects of any video",
        description="Each video gets a folder of its own in OUT, which appears when it is whole. Ctrl-C ends early and "
        "leaves what was found so far. Frames are taken one by one: a video may be of any length and size.",
    )
    segment.add_argument(
        "inputs", nargs="+", type=Path, metavar="INPUT", help="video files, folders of frames, or sets of videos"
    )
    segment.add_argument("--out", type=Path, default=Path("segmented"), help="where results go (default: segmented)")
    segment.add_argument("--overwrite", action="store_true", help="replace results that are there already")
    segment.add_argument("--weights", help="a run's folder, or a file of weights (default: those of the package)")
    segment.add_argument(
        "--write",
        type=lambda names: names.split(","),
        default=["overlay", "tracks"],
        metavar="OUTPUTS",
        help="of overlay,tracks (the default),masks,coco,ytvis,mot,npz those that are wanted, or all",
    )
    segment.add_argument("--slots", type=int, help="how many objects can be told apart (default: as trained)")
    segment.add_argument("--every", type=int, default=1, metavar="N", help="take only every N-th frame (default: 1)")
    segment.add_argument("--start", default="0", help="first frame (250), second (4.5s) or clock (1:30); default: 0")
    segment.add_argument("--end", help="the same, of the first frame that is not taken (default: to the end)")
    segment.add_argument(
        "--fps", type=float, default=12.0, help="frames per second of what does not say it itself (default: 12)"
    )
    segment.add_argument(
        "--fit",
        default="stretch",
        help="stretch (default) or letterbox what has another shape than the model's",
    )
    segment.add_argument(
        "--sure-above", type=float, default=0.3, metavar="P", help="pixels of less probability get no id (default: 0.3)"
    )
    segment.add_argument("--seed", type=int, default=0)
    segment.add_argument("--split", help="of a set, only these videos")
    segment.add_argument("--json", action="store_true", help="print what was found as JSON")
    segment.set_defaults(run=_segment)

    report = commands.add_parser(
        "report",
        help="a run as one HTML file: scores, curves, and its videos to play",
        description="The file needs neither server nor network. Scores are those of vonet evaluate, which is run on a "
        "few videos if it was not yet.",
    )
    report.add_argument("folder", type=Path, metavar="RUN", help="a run's folder, or a file of weights")
    report.add_argument("--data", type=Path, help="videos to show and score (default: those of the training)")
    report.add_argument("--split", help="which videos (default: validation, where there is one)")
    report.add_argument("--videos", type=int, default=4, metavar="N", help="videos to show (default: 4)")
    report.add_argument(
        "--frames", type=int, default=48, metavar="N", help="show at most so many of each (default: 48)"
    )
    report.add_argument("--scored", type=int, default=16, metavar="N", help="videos to score (default: 16)")
    report.add_argument("--out", type=Path, metavar="HTML", help="the file (default: RUN/report.html)")
    report.set_defaults(run=_report)

    figures = commands.add_parser(
        "figures",
        help="figures and tables for papers, from runs and evaluations",
        description="Of runs: masks, foregrounds, reconstructions, KLD curves, scores against training time. Of "
        "evaluations (those of the runs, and JSON files of vonet evaluate): a table in Markdown and LaTeX, and bars; "
        "runs of one experiment are seeds of it. Each figure is a PDF and a PNG.",
    )
    figures.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="SOURCE",
        help="run folders; JSON of vonet evaluate or make bench",
    )
    figures.add_argument("--out", type=Path, default=Path("figures"), help="folder for them (default: figures)")
    figures.add_argument("--data", type=Path, help="videos to show (default: those the first run was trained on)")
    figures.add_argument("--split", help="which videos (default: validation, where there is one)")
    figures.add_argument("--videos", type=int, default=2, metavar="N", help="videos to show (default: 2)")
    figures.add_argument("--frames", type=int, default=24, metavar="N", help="frames of each (default: 24)")
    figures.set_defaults(run=_figures)

    compare = commands.add_parser(
        "compare",
        help="print methods side by side, from their recorded scores",
        description="Of runs that vonet evaluate has scored on the same videos. The table is Markdown.",
    )
    compare.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="a run's folder, or an evaluation's .json")
    compare.add_argument("--json", action="store_true", help="print as JSON")
    compare.set_defaults(run=_compare)

    reproduce = commands.add_parser(
        "reproduce",
        help="rerun what we report, and compare",
        description="Makes the world, trains, scores, and prints what was expected beside what was found. Interrupted "
        "and started again it goes on.",
    )
    reproduce.add_argument("what", metavar="WHAT", help="laptop (half an hour on two cores), ablations or methods")
    reproduce.add_argument("--only", metavar="EXPERIMENT", help="just this experiment")
    reproduce.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="just these seeds")
    reproduce.add_argument("--out", type=Path, default=Path("reproduced"), help="where runs go (default: reproduced)")
    reproduce.set_defaults(run=_reproduce)

    experiments = commands.add_parser("experiments", help="list the experiments, or show one in full")
    experiments.add_argument("name", nargs="?")
    experiments.set_defaults(run=_experiments)

    completion = commands.add_parser(
        "completion",
        help="make your shell complete commands and options",
        description="Prints a script for your shell. bash: add `source <(vonet completion bash)` to ~/.bashrc; zsh: "
        "the same with zsh, in ~/.zshrc; fish: vonet completion fish > ~/.config/fish/completions/vonet.fish",
    )
    completion.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    completion.set_defaults(run=_completion)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Each command with what it is for and its own parser."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    return {name: (about[name], own) for name, own in commands.choices.items()}


def _demo(arguments: argparse.Namespace) -> None:
    from vonet.demo import run

    run(arguments.out, arguments.updates, arguments.seed)


def _workers(arguments: argparse.Namespace) -> int:
    from vonet.data.work import cores

    return cores() if arguments.workers is None else arguments.workers


def _generate(arguments: argparse.Namespace) -> None:
    from vonet.data.scenes.generate import generate, preview
    from vonet.data.scenes.video import WorldConfig
    from vonet.figures.videos import write_video_sheet

    if arguments.level is None and str(arguments.preview).upper() in tuple("ABCDE"):  # generate --preview A
        arguments.level, arguments.preview = str(arguments.preview).upper(), Path("preview.png")
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
    generate(config, counts, out, _workers(arguments))
    print(f"{out} is ready. Next: vonet inspect {out}")


def _inspect(arguments: argparse.Namespace) -> None:
    from vonet.data.inspection import inspect
    from vonet.figures.videos import write_video_sheet

    sheet = arguments.sheet or (None if arguments.json else Path("inspect.png"))
    if sheet is not None and arguments.path.is_dir() and sheet.resolve().is_relative_to(arguments.path.resolve()):
        if arguments.sheet:
            raise BadInput(f"{sheet} would lie among the videos of {arguments.path}: choose a place outside")
        sheet = Path(tempfile.gettempdir()) / sheet
    found, videos = inspect(arguments.path, arguments.full, _workers(arguments))
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found)
    if sheet is not None:
        write_video_sheet(sheet, videos)
        if not arguments.json:
            print(f"Look at {sheet}: a video in each row, frames on the left, true ids on the right.")


def _prepare(arguments: argparse.Namespace) -> None:
    from vonet.data.prepare import PrepareConfig, prepare

    size = arguments.size
    if size is not None and len(size) > 2:
        raise BadInput(f"--size was given {len(size)} numbers; possible are one (the side) or two (height and width)")
    config = PrepareConfig(None if size is None else (size[0], size[-1]), arguments.fit, arguments.every)
    problems = prepare(arguments.path, arguments.out, config, _workers(arguments))
    for problem in problems:
        print(f"vonet: problem: {problem}", file=sys.stderr)
    print(f"{arguments.out} is ready. Next: vonet inspect {arguments.out}")


def _train(arguments: argparse.Namespace) -> None:
    from vonet import experiments
    from vonet.experiments.overrides import overridden
    from vonet.train import TrainOptions, train

    experiment = overridden(experiments.get(arguments.experiment), arguments.set)
    options = TrainOptions(
        seed=arguments.seed,
        updates=arguments.updates,
        minutes=arguments.minutes,
        accumulate=arguments.accumulate,
        compile=arguments.compile,
        evaluate_every=arguments.evaluate_every,
        videos=arguments.videos,
        save_minutes=arguments.save_minutes,
        tensorboard=arguments.tensorboard,
        start=arguments.start,
    )
    out = arguments.out or Path("runs") / experiment.name
    train(experiment, arguments.data, out, options, arguments.resume)


def _list(arguments: argparse.Namespace) -> None:
    from vonet import experiments

    chosen = [experiments.get(name) for name in experiments.names()]
    if arguments.json:
        facts = ("name", "summary", "dataset", "cost", "measured", "paper")
        print(json.dumps([{fact: getattr(e, fact) for fact in facts} for e in chosen], indent=1))
        return
    for e in chosen:
        said = [f"{e.name}\n    {e.summary}; cost: {e.cost}"]
        for who, scores in (("we have", e.measured), ("the paper has", e.paper)):
            if scores:
                said.append(f"{who} " + ", ".join(f"{name} {value}" for name, value in scores.items()))
        print("; ".join(said))


def _evaluate(arguments: argparse.Namespace) -> None:
    from vonet.evaluate import evaluate, file_name
    from vonet.evaluation.report import EVALUATION

    report = evaluate(
        arguments.weights,
        arguments.data,
        split=arguments.split,
        protocol=arguments.protocol,
        videos=arguments.videos,
        seeds=arguments.seeds,
        batch=arguments.batch,
        slots=arguments.slots,
        masks=arguments.masks,
    )
    if report is None:  # another process of torchrun reports
        return
    beside = arguments.weights if arguments.weights.is_dir() else arguments.weights.parent
    written = report.write(arguments.out or beside / EVALUATION, file_name(report))
    for problem in report.about["problems"]:
        print(f"vonet: problem: {problem}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
        return
    print(report.table())
    print(f"Verdict: {report.verdict()}.")
    print(f"Scores of each video: {' and '.join(map(str, written))}")


def _segment(arguments: argparse.Namespace) -> None:
    from vonet.performance import keep_freed_memory
    from vonet.serving.segment import Segmented, SegmentOptions, segment_to_files

    def say(done: Segmented) -> None:
        if done.frames and not arguments.json:
            print(done, flush=True)
        if done.problem is not None:
            print(f"vonet: {done.problem}", file=sys.stderr)

    names = ("slots", "every", "start", "end", "fps", "fit", "sure_above", "seed")
    options = SegmentOptions(**{name: getattr(arguments, name) for name in names})
    keep_freed_memory()
    results = segment_to_files(
        arguments.inputs,
        arguments.out,
        arguments.weights,
        split=arguments.split,
        write=arguments.write,
        overwrite=arguments.overwrite,
        options=options,
        say=say,
    )
    made = [done for done in results if done.frames]
    if arguments.json:
        print(json.dumps([done.as_json() for done in results], indent=1))
    elif len(made) == 1:
        print(made[0].table())
    if any(done.stopped for done in results):
        _leave(STOPPED, "stopped; what is written is whole, up to where it was stopped")
    if any(done.problem for done in results):
        sys.exit(MISTAKE)


def _completion(arguments: argparse.Namespace) -> None:
    from vonet.completion import script

    print(script(arguments.shell, commands_of(_parser())))


def _report(arguments: argparse.Namespace) -> None:
    from vonet.report import report

    path = report(
        arguments.folder,
        arguments.data,
        split=arguments.split,
        videos=arguments.videos,
        frames=arguments.frames,
        scored=arguments.scored,
        out=arguments.out,
    )
    print(f"Open {path} in a browser ({path.stat().st_size / 1e6:.1f} MB; it needs neither server nor network).")


def _figures(arguments: argparse.Namespace) -> None:
    from vonet.draw import draw

    written = draw(
        arguments.sources,
        arguments.out,
        data=arguments.data,
        split=arguments.split,
        videos=arguments.videos,
        frames=arguments.frames,
    )
    print("\n".join(map(str, written)))


def _compare(arguments: argparse.Namespace) -> None:
    from vonet.compare import compare

    found = compare(arguments.paths)
    print(json.dumps(found.as_json(), indent=2) if arguments.json else found.table())


def _reproduce(arguments: argparse.Namespace) -> None:
    from vonet.reproduce import reproduce

    print(reproduce(arguments.what, arguments.out, arguments.only, arguments.seeds))


def _experiments(arguments: argparse.Namespace) -> None:
    from vonet import experiments
    from vonet.weights import described

    if arguments.name is None:
        chosen = [experiments.get(name) for name in experiments.names()]
        width = max(len(e.name) for e in chosen)
        print("\n".join(f"{e.name:{width}}  {e.summary}" for e in chosen))
    else:
        print(json.dumps(described(experiments.get(arguments.name)), indent=2))
