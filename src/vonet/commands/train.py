"""`vonet train`: trains an experiment on videos and writes a run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given

ABOUT = "train an experiment on videos"
DESCRIPTION = (
    "Weights, log, curves, pictures and checkpoints are written to RUN. Ctrl-C and SIGTERM save before they stop; "
    "--resume continues exactly. Several processes: torchrun --nproc-per-node 2 -m vonet train EXPERIMENT ..."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "experiment", metavar="EXPERIMENT", help="a name from vonet list, or an experiment of your own (--with)"
    )
    parser.add_argument("--data", type=Path, required=True, help="videos; a store is best (vonet prepare)")
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run's folder (default: runs/EXPERIMENT)")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WEIGHTS",
        help="start from these weights, or from scratch (default: as the experiment says)",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in RUN")
    parser.add_argument(
        "--back-to",
        choices=("good",),
        help="with --resume: go back to the last checkpoint before the loss left its usual range (band); "
        "--set may change learning rates and clipping",
    )
    parser.add_argument("--updates", type=int, help="stop at this update (default: the experiment's number)")
    parser.add_argument(
        "--minutes", type=float, help="stop after this many minutes of training, resumed parts included"
    )
    parser.add_argument("--seed", type=int, help="seed of weights and batches (default: 0)")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="OPTION=VALUE",
        help="change options of the experiment, such as model.slots=7",
    )
    parser.add_argument(
        "--accumulate",
        type=int,
        metavar="N",
        help="compute each batch in N parts, which takes less memory (default: 1)",
    )
    parser.add_argument(
        "--precision",
        choices=("auto", "float32", "bfloat16"),
        help="precision of convolutions and matrix products; auto takes bfloat16 if it is faster in a short test "
        "(default: float32)",
    )
    parser.add_argument(
        "--evaluate-every", type=int, metavar="N", help="updates between evaluations (default: a tenth of the updates)"
    )
    parser.add_argument("--videos", type=int, help="validation videos to score (default: 16)")
    parser.add_argument("--save-minutes", type=float, help="minutes between checkpoints (default: 5)")
    parser.add_argument("--tensorboard", action="store_true", help="also write logs for TensorBoard")
    parser.add_argument(
        "--wandb", action="store_true", help="also log to Weights & Biases (WANDB_MODE=offline: to disk)"
    )


def run(arguments: Namespace) -> None:
    from vonet import experiments
    from vonet.experiments.overrides import overridden
    from vonet.training.run import TrainOptions, train, trainable

    experiment = experiments.get(arguments.experiment)
    trainable(experiment)
    experiment = overridden(experiment, arguments.set)
    names = ("seed", "updates", "minutes", "accumulate", "precision", "evaluate_every", "videos", "save_minutes")
    options = TrainOptions(**given(arguments, *names, "tensorboard", "wandb", "start"))
    out = arguments.out or Path("runs") / experiment.name
    train(experiment, arguments.data, out, options, arguments.resume, arguments.back_to)
