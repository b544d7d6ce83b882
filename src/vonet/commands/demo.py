"""`vonet demo`: the first minutes with vonet. Each step is a command that `vonet --help` lists."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.generate import without_windows
from vonet.errors import BadInput

ABOUT = "generate a world, train on it, score, segment and report"
DESCRIPTION = "Finished steps are reused, so the same command continues after Ctrl-C."

EXPERIMENT, SHIPPED = "vonet-closeup-quick", "vonet-closeup"
TRAINING_VIDEOS, VALIDATION_VIDEOS = 1_000, 64
SCORED_MEANWHILE = 16
"""Largest number of validation videos that are scored during training; fewer than at the end, to save time."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results (default: demo)")
    parser.add_argument("--updates", type=int, help="number of updates (default: the experiment's)")
    parser.add_argument(
        "--videos", type=int, default=TRAINING_VIDEOS, help=f"number of training videos (default: {TRAINING_VIDEOS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and batches (default: 0)")


def run(arguments: Namespace) -> None:
    for option in ("updates", "videos"):
        if (number := getattr(arguments, option)) is not None and number < 1:
            raise BadInput(f"{number} {option} were asked for; at least 1 is needed")
    without_windows()
    demo(arguments.out, arguments.updates, arguments.videos, arguments.seed)


def demo(out: Path, updates: int | None = None, videos: int = TRAINING_VIDEOS, seed: int = 0) -> None:
    """Runs all steps; there are never more validation videos than training videos."""
    from vonet import experiments
    from vonet.data.generate import generate
    from vonet.data.scenes.video import WorldConfig
    from vonet.data.work import cores
    from vonet.evaluation.compare import compare
    from vonet.evaluation.evaluate import evaluate
    from vonet.evaluation.report import EVALUATION
    from vonet.experiments import weights
    from vonet.figures.report import report
    from vonet.serving.segment import segment_to_files
    from vonet.training.run import TrainOptions, train_to_the_end, trainable

    begin = time.monotonic()
    world, trained, untrained, shipped = (out / name for name in ("world", "trained", "untrained", "shipped"))
    experiment = experiments.get(EXPERIMENT)
    counts = {"train": videos, "validation": min(VALIDATION_VIDEOS, videos)}

    print(
        f"1. A world of {sum(counts.values())} videos: rendered objects, thrown and colliding, from close by\n"
        "   (vonet generate A --camera-distance 0.6 --objects 2 4 --size 32)."
    )
    generate(WorldConfig("A", size=32, objects=(2, 4), camera_distance=0.6), counts, world, cores())

    updates = updates or trainable(experiment).updates
    print(f"2. VONet learns from {counts['train']} of them, from scratch, without labels (vonet train {EXPERIMENT}).")
    meanwhile = min(SCORED_MEANWHILE, counts["validation"])
    print(f"   To save time, scores meanwhile are of {meanwhile} of the {counts['validation']} videos of step 3.")
    every = max(1, updates // 5)
    options = TrainOptions(seed=seed, updates=updates, evaluate_every=every, videos=SCORED_MEANWHILE)
    if not train_to_the_end(experiment, world, trained, options):
        print(f"   {trained} is trained already.")

    print(
        f"3. Scores on {counts['validation']} videos it was not trained on. Beside it: the same model untrained, and\n"
        f"   {SHIPPED}, which comes with vonet and was trained for longer ({experiments.get(SHIPPED).cost})."
    )
    weights.save(untrained, experiment.build_model(seed=seed), experiment)
    found = {trained: trained, untrained: untrained}
    if SHIPPED in weights.shipped():
        found[shipped] = weights.SHIPPED / SHIPPED
    for folder, path in found.items():
        scores = evaluate(path, world)
        assert scores is not None, "the demo is one process"
        scores.write_beside(path, folder / EVALUATION)
    print(compare(list(found)).table())

    print("4. Objects of a larger video of this kind, found and followed by what you trained (vonet segment).")
    rendered = out / "rendered"
    generate(WorldConfig("A", size=128, objects=(2, 4), camera_distance=0.6), {"test": 1}, rendered, cores())
    segment_to_files([rendered], out / "segmented", trained, split="test", overwrite=True, say=_say)

    page = report(trained, world, videos=4)
    print(f"\nAll of it took {(time.monotonic() - begin) / 60:.1f} minutes. Look at")
    print(f"  {page}  in a browser: play the videos, switch slots on and off")
    print(f"  {trained / 'pictures'}  masks as they were learned, and {trained / 'curves.png'}")
    print(f"  {out / 'segmented'}  overlays and tracks of the video of step 4")
    print("Next: vonet segment YOUR.mp4; and to train on your own videos:")
    print(f"  vonet prepare YOUR_VIDEOS store --size 32 && vonet train {EXPERIMENT} --data store")


def _say(done: object) -> None:
    print(f"   {done}")
