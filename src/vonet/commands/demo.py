"""`vonet demo`: the first minutes with vonet. Each step is a command that `vonet --help` lists."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.errors import BadInput

ABOUT = "generate a world, train on it, score, segment and report"
DESCRIPTION = "Finished steps are used again, so after Ctrl-C the same command continues."

EXPERIMENT = "vonet-sprites"
VIDEOS = {"train": 300, "validation": 64}
SCORED_MEANWHILE = 8
"""Validation videos that are scored during the training, at most: fewer than at its end, to save time."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results (default: demo)")
    parser.add_argument("--updates", type=int, help="length of the training (default: the experiment's)")
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: Namespace) -> None:
    if arguments.updates is not None and arguments.updates < 1:
        raise BadInput(f"{arguments.updates} updates were asked for; at least 1 is needed")
    demo(arguments.out, arguments.updates, arguments.seed)


def demo(out: Path, updates: int | None = None, seed: int = 0) -> None:
    from vonet import experiments
    from vonet.data.generate import generate
    from vonet.data.scenes.video import WorldConfig
    from vonet.data.sprites import SpritesConfig
    from vonet.data.work import cores
    from vonet.evaluation.compare import compare
    from vonet.evaluation.evaluate import evaluate
    from vonet.experiments import weights
    from vonet.figures.report import report
    from vonet.serving.segment import segment_to_files
    from vonet.training.run import TrainOptions, train_to_the_end, trainable

    begin = time.monotonic()
    world, trained, untrained = out / "world", out / "trained", out / "untrained"
    experiment = experiments.get(EXPERIMENT)

    print(f"1. A world of {sum(VIDEOS.values())} videos: coloured shapes that drift (vonet generate sprites).")
    generate(SpritesConfig(), VIDEOS, world, cores())

    updates = updates or trainable(experiment).updates
    print(f"2. VONet learns from {VIDEOS['train']} of them, without labels (vonet train {EXPERIMENT}).")
    meanwhile = min(SCORED_MEANWHILE, VIDEOS["validation"])
    print(f"   To save time, scores meanwhile are of {meanwhile} of the {VIDEOS['validation']} videos of step 3.")
    every = max(1, updates // 5)
    options = TrainOptions(seed=seed, updates=updates, evaluate_every=every, videos=SCORED_MEANWHILE)
    if not train_to_the_end(experiment, world, trained, options):
        print(f"   {trained} is trained already.")

    print(f"3. Scores on {VIDEOS['validation']} videos it was not trained on, beside the same model untrained.")
    weights.save(untrained, experiment.build_model(seed=seed), experiment)
    for folder in (trained, untrained):
        scores = evaluate(folder, world)
        assert scores is not None, "the demo is one process"
        scores.write_beside(folder)
    print(compare([trained, untrained]).table())

    print("4. Objects of a rendered video, found and followed by `mixture`, which does not learn (vonet segment).")
    rendered = out / "rendered"
    generate(WorldConfig("A", objects=(3, 6)), {"test": 1}, rendered, cores())
    segment_to_files([rendered], out / "segmented", weights.DEFAULT, split="test", overwrite=True, say=_say)

    page = report(trained, world, videos=4)
    print(f"\nAll of it took {(time.monotonic() - begin) / 60:.1f} minutes. Look at")
    print(f"  {page}  in a browser: play the videos, switch slots on and off")
    print(f"  {trained / 'pictures'}  masks as they were learned, and {trained / 'curves.png'}")
    print(f"  {out / 'segmented'}  overlays and tracks of the video of step 4")
    print("Next: vonet segment YOUR.mp4; and to train on your own videos:")
    print(f"  vonet prepare YOUR_VIDEOS store --size 32 && vonet train {EXPERIMENT} --data store")


def _say(done: object) -> None:
    print(f"   {done}")
