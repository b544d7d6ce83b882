"""A small world, and a run that has hardly learned: enough to report on and to draw."""

import pytest

from vonet import experiments
from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.training.run import TrainOptions, train


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("world") / "A-32"
    generate(WorldConfig("A", size=32, frames=4), {"train": 3, "validation": 3}, out, 1)
    return out


@pytest.fixture(scope="package")
def trained(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(experiments.get("vonet-sprites"), world, out, TrainOptions(updates=2, log_every=1))
    return out
