"""The band of the loss, and the way back from a divergence; resuming with another number of processes."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.test_loop import experiment, footage, in_this_process, parameters, training, world  # noqa: F401
from vonet.errors import BadInput
from vonet.training import checkpoint
from vonet.training.band import LossBand
from vonet.training.distributed import Processes
from vonet.training.loop import Training
from vonet.training.run import MAY_CHANGE, Run, TrainOptions, _check_same, train
from vonet.writing import only_writer


def noted(losses):
    band = LossBand()
    for update, loss in enumerate(losses):
        band.note(update, loss)
    return band


def ordinary(count, seed=0):
    """Falls from 1,000 to about 1, with noise and a spike here and there."""
    dice = random.Random(seed)
    return [
        (1 + 1000 * math.exp(-t / 30)) * dice.lognormvariate(0, 0.3) * (3 if t % 50 == 49 else 1) for t in range(count)
    ]


@pytest.mark.parametrize("losses", [ordinary(500), [-x for x in ordinary(500)], [x - 3 for x in ordinary(500)]])
def test_ordinary_losses_stay_inside(losses):
    band = noted(losses)
    assert (band.calm_since, band.left_at) == (0, None)


@pytest.mark.parametrize("ruined", [1e12, math.inf, math.nan])
@pytest.mark.parametrize("before", [1, 5, 300])
def test_a_divergence_is_seen_and_never_becomes_the_rule(before, ruined):
    band = noted([*ordinary(before), *[ruined] * 1000])
    assert band.left_at == before
    assert band.confirms(before - 1)
    assert not band.confirms(before)
    assert not band.confirms(before + 500)


def test_after_a_spike_only_later_updates_are_confirmed():
    band = noted([*ordinary(300), 1e6, *ordinary(400)[300:]])
    assert (band.calm_since, band.left_at) == (301, None)
    assert not band.confirms(299)
    assert band.confirms(301)


def test_nothing_is_confirmed_before_its_own_loss_is_seen():
    band = noted(ordinary(10))
    assert band.confirms(9)
    band.note(10, math.nan)
    assert not band.confirms(10)


def test_a_band_is_remembered_exactly():
    band, again = noted(ordinary(150)), LossBand()
    again.recall(json.loads(json.dumps(band.remember())))
    assert again.remember() == band.remember()
    assert again.end == band.end


# One writer


def test_a_run_has_one_writer(world, tmp_path):  # noqa: F811
    with only_writer(tmp_path / "run"), pytest.raises(BadInput, match=r"another process is writing to .*run"):
        train(experiment(), world, tmp_path / "run", TrainOptions())
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match="--back-to good is for a run that is resumed: add --resume"):
        train(experiment(), world, tmp_path / "run", TrainOptions(), back_to="good")


# The way back


def test_a_diverged_run_names_a_checkpoint_that_learns_on(world, tmp_path):  # noqa: F811
    """Parameters blow up but stay finite, checkpoints are written of them, and the loss ends as not finite."""
    out = tmp_path / "run"
    running = in_this_process(world, out, save_minutes=1e-6)
    step = running.training.step

    def step_that_ruins():
        found = step()
        if running.training.update >= 12:
            with torch.no_grad():
                for parameter in running.training.model.parameters():
                    parameter.mul_(30)
        return found

    running.training.step = step_that_ruins
    with pytest.raises(BadInput, match=r"the last checkpoint from before is of update 11\. Continue .*--back-to good"):
        running.learn({"asked": False})
    found = checkpoint.latest(out)
    assert found["update"] >= 12
    assert found["good"] == {"update": 11, "processes": 1}
    lower = _with_learning_rate(running.experiment, 1e-5)
    options = (lower, world, out, running.options, Processes())
    with pytest.raises(BadInput, match=r"was started with other settings: experiment\.training\.optimizer\.groups"):
        Run(*options, True)
    again = Run(*options, True, "good")
    assert again.training.update == 11
    assert checkpoint.latest(out)["update"] == 11
    assert all(torch.isfinite(p).all() for p in again.training.model.parameters())
    assert not [path for path in (out / "checkpoints").glob("*.safetensors") if int(path.name[:8]) > 11]
    again.learn({"asked": False})
    assert checkpoint.latest(out)["update"] == 20
    Run(*options, True)  # the new learning rates are the run's now


def _with_learning_rate(made, rate):
    groups = made.training.optimizer.groups
    lower = {
        name: replace(g, learning_rate=replace(g.learning_rate, points=((0, rate),))) for name, g in groups.items()
    }
    return replace(made, training=replace(made.training, optimizer=replace(made.training.optimizer, groups=lower)))


def test_parameters_that_an_update_ruins_are_not_saved(world, tmp_path):  # noqa: F811
    """The first update at a learning rate of 1e38 leaves no finite parameter, and no checkpoint."""
    running = in_this_process(world, tmp_path / "run", save_minutes=1e-6)
    running.training.optimizer.groups = _with_learning_rate(running.experiment, 1e38).training.optimizer.groups
    with pytest.raises(
        BadInput, match=r"at update 1 a parameter is not finite; .*there is no checkpoint from before\. Start"
    ):
        running.learn({"asked": False})
    assert checkpoint.latest(tmp_path / "run") is None
    with pytest.raises(BadInput, match="has no checkpoint from before the loss left its band"):
        checkpoint.go_back(tmp_path / "run", {}, Processes())


def test_going_back_changes_learning_rates_and_clipping_only():
    about = {"experiment": {"training": {"batch": 2, "optimizer": {"part": "Adam", "eps": 1, "groups": {"a": 1}}}}}
    other = json.loads(json.dumps(about))
    other["experiment"]["training"]["optimizer"]["groups"]["a"] = 2
    _check_same(other, about, Path("run"), MAY_CHANGE)
    for option, value in (("part", "RMSprop"), ("eps", 2)):
        wrong = json.loads(json.dumps(other))
        wrong["experiment"]["training"]["optimizer"][option] = value
        with pytest.raises(BadInput, match=f"optimizer.{option} was"):
            _check_same(wrong, about, Path("run"), MAY_CHANGE)


# Another number of processes


def dealt(memories, rank, count, made):
    run = Training(made.build_model(seed=1), made.training, footage(), 0, Processes(rank, count))
    run.recall_of_others(memories)
    return run


def test_another_number_of_processes_deals_out_the_replay(tmp_path):
    made = experiment()
    one = training(made)
    for _ in range(3):
        one.step()
    memory = one.remember()
    stored = []
    for rank in (0, 1):
        half = dealt([memory], rank, 2, made)
        stored.append(half.remember())  # now: here both share torch's random numbers
        assert half.update == 3
        assert torch.equal(parameters(half), parameters(one))
        assert half.segments.config.videos == 1
    for name, tensor in memory[0].items():
        if name.startswith("segments/"):
            assert torch.equal(torch.cat([tensors[name] for tensors, _ in stored]), tensor), name
    assert stored[0][1]["segments"]["random"] != stored[1][1]["segments"]["random"]
    assert not torch.equal(stored[0][0]["random/cpu"], stored[1][0]["random/cpu"])
    whole = dealt(stored, 0, 1, made)
    for name, tensor in memory[0].items():
        if not name.startswith("random/"):
            assert torch.equal(whole.remember()[0][name], tensor), name
    whole.step()
    assert whole.update == 4


def test_checkpoints_of_another_number_are_all_read(tmp_path):
    made = experiment()
    memory = training(made).remember()
    checkpoint.save(tmp_path, memory, {}, Processes())
    assert len(checkpoint.load(tmp_path, Processes())) == 1
    assert len(checkpoint.load(tmp_path, Processes(1, 2))) == 1  # of the one process that wrote it
    assert checkpoint.load(tmp_path, Processes(1, 2))[0][1] == memory[1]
