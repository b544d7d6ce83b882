"""The first minutes with vonet: a world is made, a model learns from it without labels, and shows what it found.

Nothing here is special: each step is a command that `vonet --help` lists. The world and
the training are used again where they are done already.
"""

from __future__ import annotations

import time
from pathlib import Path

from vonet import experiments, weights
from vonet.data.scenes.generate import generate
from vonet.data.work import cores
from vonet.errors import BadInput
from vonet.evaluate import evaluate, file_name
from vonet.evaluation.report import EVALUATION
from vonet.report import report
from vonet.reproduce import LAPTOP_WORLD
from vonet.serving.segment import segment_to_files
from vonet.train import TrainOptions, train_to_the_end

EXPERIMENT = "laptop-quick"
VIDEOS = {"train": 300, "validation": 64, "test": 1}


def run(out: Path, updates: int | None = None, seed: int = 0) -> None:
    begin = time.monotonic()
    if updates is not None and updates < 1:
        raise BadInput(f"{updates} updates were asked for; at least 1 is needed")
    world, folder = out / "world", out / "run"
    experiment = experiments.get(EXPERIMENT)

    print(f"1. A world of {sum(VIDEOS.values())} videos: balls, boxes and cylinders that fall (vonet generate A).")
    generate(LAPTOP_WORLD, VIDEOS, world, cores())

    updates = updates or experiment.training.updates
    print(f"2. VONet learns from {VIDEOS['train']} of them, without labels (vonet train {EXPERIMENT}).")
    options = TrainOptions(seed=seed, updates=updates, evaluate_every=max(1, updates // 5), videos=8)
    if not train_to_the_end(experiment, world, folder, options):
        print(f"   {folder} has learned already.")

    print(f"3. Scores on {VIDEOS['validation']} videos it has never seen, beside methods that know nothing of objects.")
    scores = evaluate(folder, world)
    assert scores is not None, "the demo is one process"
    scores.write(folder / EVALUATION, file_name(scores))
    print(f"{scores.table()}\n   {scores.verdict()}.")

    print("4. Objects of another video never seen, found and followed (vonet segment).")
    models = {"just-trained": folder}
    if weights.DEFAULT in weights.shipped():
        models["shipped"] = weights.default()
    for name, path in models.items():
        segment_to_files([world], out / "segmented" / name, path, split="test", overwrite=True, say=_say)

    page = report(folder, world, videos=4)
    print(f"\nAll of it took {(time.monotonic() - begin) / 60:.1f} minutes. Look at")
    print(f"  {page}  in a browser: play the videos, switch slots on and off")
    print(f"  {folder / 'pictures'}  masks as they were learned, and {folder / 'curves.png'}")
    print(f"  {out / 'segmented'}  overlays and tracks of the video of step 4")
    print("Next: vonet segment YOUR.mp4; and to learn from videos of your own:")
    print("  vonet prepare YOUR_VIDEOS store --size 64 && vonet train laptop-a --data store")


def _say(done: object) -> None:
    print(f"   {done}")
