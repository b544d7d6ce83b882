"""An experiment of one's own for the tests (`vonet --with`): vonet-sprites trained from replay, as the paper trains."""

from dataclasses import replace

import vonet
from vonet.training.replay import ReplayConfig

sprites = vonet.experiments.get("vonet-sprites")
replay = ReplayConfig(videos=8, length=64, frames_per_update=1, frames_before_first_update=64)
vonet.add_experiment(
    replace(sprites, name="sprites-with-replay", training=replace(sprites.training, replay=replay)),
)
