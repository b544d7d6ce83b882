"""Updates: exact resume, parts of a batch, what blows up, many processes; and that it learns."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed

from tests.own_parts import as_in_a_new_process
from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.commands.extensions import use
from vonet.data.generate import generate
from vonet.data.scenes.video import WorldConfig
from vonet.data.sprites import sprite_videos
from vonet.data.video import ArrayVideo
from vonet.errors import BadInput
from vonet.experiments import weights
from vonet.experiments.overrides import overridden
from vonet.schedule import constant
from vonet.training import checkpoint
from vonet.training.distributed import Processes, attempt_name
from vonet.training.log import Log
from vonet.training.loop import TOKENS_EVERY, NotFinite, Training, Update, collapse
from vonet.training.replay import Replay, ReplayConfig
from vonet.training.run import Run, TrainOptions, _begin_with, _check_same
from vonet.training.segments import Footage, Windows
from vonet.writing import DiscRefusal

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""For models so small that a second thread only waits."""


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SMALL_REPLAY = ReplayConfig(videos=2, length=12, frames_per_update=1, frames_before_first_update=8)


def experiment(name="vonet-sprites", **training):
    made = reduced_experiment(experiments.get(name))
    options = {"batch": 2, "segment": 2, "replay": SMALL_REPLAY, **training}
    return replace(made, training=replace(made.training, **options))


def footage(count=4, frames=5):
    pixels, _ = sprite_videos(count, frames=frames)
    return Footage([ArrayVideo(f"{i}", video) for i, video in enumerate(pixels)], (32, 32))


def training(made=None, seed=0, **options):
    made = made or experiment()
    return Training(made.build_model(seed=seed), made.training, footage(), seed, **options)


def parameters(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


# Exact resume


@pytest.mark.parametrize("name", ["vonet-sprites", "vonet-movi-a"])
@pytest.mark.parametrize(("replay", "average"), [(SMALL_REPLAY, None), (None, 3)])
def test_stopping_and_going_on_is_not_stopping(tmp_path, name, replay, average):
    made = experiment(name, replay=replay, average=average)
    straight = training(made)
    for _ in range(7):
        straight.step()
    first = training(made)
    for _ in range(4):
        first.step()
    checkpoint.save(tmp_path, first.remember(), {}, Processes())
    torch.rand(7)  # whatever happens meanwhile
    second = training(made, seed=5)
    second.recall(*checkpoint.load(tmp_path, Processes()))
    assert second.update == 4
    for _ in range(3):
        second.step()
    assert torch.equal(parameters(straight), parameters(second))
    memories = straight.remember(), second.remember()
    assert memories[0][1] == memories[1][1]
    for key, tensor in memories[0][0].items():
        assert torch.equal(tensor, memories[1][0][key]), key


def test_the_saved_weights_are_averaged_over_the_last_updates():
    """Evenly over the first three, then each new one counts a third; the training itself does not change."""
    plain = training()
    for _ in range(5):
        plain.step()
    averaged, seen = training(experiment(average=3)), []
    for _ in range(5):
        averaged.step()
        seen.append(parameters(averaged))
    assert torch.equal(parameters(plain), seen[-1])
    expected = sum(seen[:3]) / 3
    for last in seen[3:]:
        expected = expected + (last - expected) / 3
    found = torch.cat([p.flatten() for p in averaged.learned.parameters()])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert not torch.equal(found, seen[-1])
    assert plain.learned is plain.model


def test_half_the_precision_learns_the_same_way():
    """bfloat16, as on GPUs that have it: the losses of the first updates are those of float32 to two digits or so."""
    found = []
    for half in (False, True):
        run = training(half=half)
        found.append([run.step().losses["reconstruction"] for _ in range(5)])
        assert all(p.dtype == torch.float32 for p in run.model.parameters())
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert found[0] != found[1]


def test_seeds_decide_everything():
    found = []
    for seed in (0, 0, 1):
        run = training(seed=seed)
        run.step()
        run.step()
        found.append(parameters(run))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_only_the_last_checkpoints_are_kept_and_the_latest_is_found(tmp_path):
    run = training()
    for _ in range(4):
        run.step()
        checkpoint.save(tmp_path, run.remember(), {"note": run.update}, Processes(), keep=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["00000003-0-of-1.safetensors", "00000004-0-of-1.safetensors", "latest.json"]
    assert checkpoint.latest(tmp_path) == {"update": 4, "processes": 1, "good": None, "note": 4}


def test_abandoned_checkpoints_never_push_out_the_latest(tmp_path):
    """Those of later updates, left by a run that was begun anew."""
    run = training()
    for update in (9000, 10_000):
        run.update = update
        checkpoint.save(tmp_path, run.remember(), {}, Processes())
    (tmp_path / "checkpoints/latest.json").unlink()
    run.update = 10
    checkpoint.save(tmp_path, run.remember(), {}, Processes())
    assert checkpoint.load(tmp_path, Processes())[0][1]["update"] == 10
    assert len(list((tmp_path / "checkpoints").glob("*.safetensors"))) == 1


def test_checkpoints_that_cannot_be_used_are_said(tmp_path):
    with pytest.raises(BadInput, match="holds no checkpoint"):
        checkpoint.load(tmp_path, Processes())
    run = training()
    path = checkpoint.save(tmp_path, run.remember(), {}, Processes())
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match="missing or damaged"):
        checkpoint.load(tmp_path, Processes())
    (tmp_path / "checkpoints/latest.json").write_text("{")
    with pytest.raises(BadInput, match="damaged: delete it"):
        checkpoint.latest(tmp_path)


def test_a_full_disc_keeps_the_last_checkpoint(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    run = training()
    checkpoint.save(tmp_path, run.remember(), {}, Processes())
    run.step()

    memory = run.remember()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # as on a disc that has room for so much
    try:
        with pytest.raises(DiscRefusal, match="cannot be written"):
            checkpoint.save(tmp_path, memory, {}, Processes())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint.latest(tmp_path)["update"] == 0
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    checkpoint.load(tmp_path, Processes())


# One update


def test_the_source_follows_the_experiment():
    assert isinstance(training(experiment(replay=SMALL_REPLAY)).segments, Replay)
    assert isinstance(training(experiment(replay=None)).segments, Windows)


def test_a_batch_in_parts_is_the_batch(monkeypatch):
    """The same segments, in one part or two: the same gradients."""
    gradients = []
    for accumulate in (1, 2):
        run = training(experiment(batch=4, replay=None), accumulate=accumulate)
        run.model.eval().train = lambda mode=True: None  # stays in evaluation mode: nothing is drawn
        clip, state = run.segments.sample(run.model, 4, 2)
        segments = clip, state.detach()
        parts = iter([segments] if accumulate == 1 else [_half(segments, 0), _half(segments, 1)])
        run.segments.sample = lambda model, batch, length, parts=parts: next(parts)
        kept = {}
        monkeypatch.setattr(run.optimizer, "step", lambda update, r=run, k=kept: k.update(_gradients(r.model)) or {})
        found = run.step()
        assert set(found.losses) == {"reconstruction", "kl"}
        gradients.append(kept)
    assert gradients[0].keys() == gradients[1].keys()
    largest = max(gradient.abs().max().item() for gradient in gradients[0].values())
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-6 * largest)


def _half(segments, which):
    clip, state = segments
    rows = slice(2 * which, 2 * which + 2)
    return replace(clip, frames=clip.frames[rows], is_first=clip.is_first[rows]), state.map(lambda x: x[rows])


def _gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(BadInput, match="a batch of 2 does not go into 1 processes of 3 parts"):
        training(accumulate=3)


def test_what_is_not_finite_stops_before_the_step_and_is_named():
    run = training()
    run.step()
    before = parameters(run).clone()
    with torch.no_grad():
        next(run.model.backbone.parameters())[0] = torch.nan
    name = next(name for name, _ in run.model.backbone.named_parameters())
    with pytest.raises(NotFinite, match=rf"at update 1 the loss .* is not finite; .* parameters backbone.{name}"):
        run.step()
    kept = torch.isfinite(parameters(run))
    assert torch.equal(parameters(run)[kept], before[kept])
    assert 0 < (~kept).sum() < 1000
    assert run.update == 1


def test_a_loss_that_explodes_is_named(monkeypatch):
    run = training()
    forward = run.model.forward

    def exploding(*arguments):
        output = forward(*arguments)
        output.losses["kl"][0, 0] *= torch.inf
        return output

    monkeypatch.setattr(run.model, "forward", exploding)
    with pytest.raises(NotFinite, match="the loss 'kl' is not finite; all parameters are finite; the largest are"):
        run.step()


def test_a_gradient_that_explodes_is_named():
    run = training()
    parameter = next(run.model.decoder.parameters())
    parameter.register_hook(lambda gradient: gradient * torch.nan)
    with pytest.raises(NotFinite, match="a gradient is not finite; not finite are the gradients of decoder"):
        run.step()
    assert run.update == 0


def test_collapse_is_said_in_words():
    assert collapse(Update(entropy=0.5, largest_slot=0.6)) is None
    assert "nearly uniform" in collapse(Update(entropy=0.97, largest_slot=0.3))
    assert "one slot" in collapse(Update(entropy=0.02, largest_slot=0.99))
    assert "only 7 of 256 kinds" in collapse(Update(entropy=0.5, largest_slot=0.6, token_kinds=7, vocabulary=256))
    assert collapse(Update(entropy=0.5, largest_slot=0.6, token_kinds=8, vocabulary=256)) is None


def test_token_kinds_in_use_are_counted():
    """Every update tells the last count. A model without tokens has none."""
    assert training().step().token_kinds is None
    run = training(experiment("vonet-movi-a"))
    with torch.no_grad():
        run.model.decoder.dvae.to_logits.bias[3] = 1e3
    found = run.step()
    assert (found.token_kinds, found.vocabulary) == (1, 24)
    assert "only 1 of 24" not in (collapse(found) or "")  # a twenty-fourth is more than one in 32
    with torch.no_grad():
        run.model.decoder.dvae.to_logits.bias.zero_()
        run.model.decoder.dvae.to_logits.weight *= 100
    kinds = [run.step().token_kinds for _ in range(TOKENS_EVERY)]
    assert kinds[:-1] == [1] * (TOKENS_EVERY - 1)
    assert kinds[-1] > 1


def test_three_tiny_clips_are_learned_by_heart():
    """The reconstruction falls to less than a quarter in two hundred updates."""
    made = replace(experiments.get("vonet-sprites"))
    config = replace(made.training, batch=3, segment=2, replay=replace(SMALL_REPLAY, videos=3))
    pixels, _ = sprite_videos(3, frames=4)
    tiny = Footage([ArrayVideo(f"{i}", video) for i, video in enumerate(pixels)], (32, 32))
    run = Training(made.build_model(seed=0), config, tiny, seed=0)
    losses = [run.step().losses["reconstruction"] for _ in range(200)]
    assert np.mean(losses[-10:]) < 0.25 * np.mean(losses[:5])


# The log


def test_the_log_drops_what_was_lost(tmp_path):
    log = Log(tmp_path / "log.jsonl", 0)
    for update in range(5):
        log.write({"update": update, "seconds": 1.0})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"update": 5, "los')
    assert [entry["update"] for entry in Log(tmp_path / "log.jsonl", 3).entries] == [0, 1, 2, 3]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 4


# Overrides


def test_overrides_are_typed():
    made = overridden(
        experiments.get("vonet-movi-a"),
        [
            "model.slots=7",
            "model.size=[64, 64]",
            "training.replay.videos=4",
            "training.optimizer.groups.encoder.clip=1",
            "training.weights.kl.points=[[0, 0.0], [10, 0.5]]",
            "model.enlargement=bilinear",
        ],
    )
    assert (made.model.slots, made.model.size, made.training.replay.videos) == (7, (64, 64), 4)
    assert made.training.optimizer.groups["encoder"].clip == 1.0
    assert isinstance(made.training.optimizer.groups["encoder"].clip, float)
    assert made.training.weights["kl"](5) == 0.25
    assert made.training.weights["tokens"] == constant(1.0)
    assert made.model.enlargement == "bilinear"
    without = overridden(made, ["training.replay=null", "training.optimizer.groups.encoder.clip=null"])
    assert without.training.replay is None
    assert without.training.optimizer.groups["encoder"].clip is None
    again = overridden(without, ["training.optimizer.groups.encoder.clip=0.5"])
    assert again.training.optimizer.groups["encoder"].clip == 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.slots", "the change is 'model.slots'; it must be OPTION=VALUE, such as training.batch=16"),
        ("model.slotz=3", "there is no option 'model.slotz': 'slotz' is not among size, slots"),
        ("model.slots=many", "model.slots is 11 and 'many' was given; it must be of type int"),
        ("model.slots=3.5", "it must be of type int"),
        ("model.size=64", "it must be a list, such as"),
        ("model=3", "model is a part and not a value"),
        ("training.weights.kil.points=[]", "'kil' is not among tokens, pixels, kl"),
        ("model.slots=0", "slots"),
        ("training.batch=0", "each must be 1 or more"),
        ("training.segment=-1", "each must be 1 or more"),
        ("training.replay.videos=0", "must be 1 or more"),
        ("training.optimizer.eps=NaN", "it must be of type float"),
        ("training.optimizer.eps=-1.0", "eps is -1.0; it must be more than 0"),
        ("training.optimizer.groups.encoder.clip=-1", "clip is -1.0; it must be more than 0, or None"),
        ("model.slot_dim=0", "slot_dim is 0; it must be 1 or more"),
        ("model.attention.unet.channels=[]", "they must be whole numbers above 0, at least one"),
    ],
)
def test_overrides_that_cannot_be_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        overridden(experiments.get("vonet-movi-a"), [change])


# Many processes


STEP = """
import sys, torch
from dataclasses import replace
from pathlib import Path
from tests.own_parts import as_in_a_new_process
from tests.reduced import random_clip, reduced_experiment
from vonet import experiments
from vonet.commands.extensions import use
from vonet.interface import total
from vonet.training.distributed import average_gradients, joined_processes
from vonet.training.optimizer import Optimizer

made = reduced_experiment(experiments.get("vonet-sprites"))
torch.manual_seed(0)
clip = random_clip(4, 2, dtype=torch.float64)
with joined_processes() as processes:
    model = made.build_model(seed=0).double().eval()
    state = model.initial_state(4, generator=torch.Generator().manual_seed(1)).detach()
    rows = slice(processes.rank, None, processes.count)
    mine = replace(clip, frames=clip.frames[rows], is_first=clip.is_first[rows])
    losses = model(mine, state.map(lambda x: x[rows])).losses
    total(losses, {name: 1.0 for name in losses}).backward()
    average_gradients(list(model.parameters()), processes)
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    Optimizer(made.training.optimizer, model.parameter_groups()).step(300)
    if processes.is_first:
        torch.save((gradients, model.state_dict()), sys.argv[1])
"""


def torchrun(*arguments, processes=2, **options):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), *arguments]
    return subprocess.Popen(
        [sys.executable, *map(str, launcher)],
        **{"text": True, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "env": ONE_THREAD, **options},
    )


def test_two_processes_take_the_step_of_one_with_the_joint_batch(tmp_path):
    script = tmp_path / "step.py"
    script.write_text(STEP)
    root = Path(__file__).parents[2]
    found = []
    for processes in (1, 2):
        out = tmp_path / f"{processes}.pt"
        done = torchrun(script, out, processes=processes, env={**ONE_THREAD, "PYTHONPATH": str(root)})
        _, errors = done.communicate(timeout=120)
        assert done.returncode == 0, errors
        found.append(torch.load(out, weights_only=True))
    (alone, alone_after), (together, together_after) = found
    start = reduced_experiment(experiments.get("vonet-sprites")).build_model(seed=0).state_dict()
    assert alone.keys() == together.keys()
    largest = max(gradient.abs().max().item() for gradient in alone.values())
    for name, gradient in alone.items():
        torch.testing.assert_close(together[name], gradient, rtol=1e-6, atol=1e-6 * largest)
    moved = [name for name in alone_after if not torch.equal(alone_after[name], start[name].double())]
    assert len(moved) > 20
    for name in moved:  # Adam's first step has the size of the learning rate wherever the gradient is not nearly zero
        clear = alone[name].abs() > 1e-4 * largest
        torch.testing.assert_close(together_after[name][clear], alone_after[name][clear], rtol=1e-4, atol=1e-6)


# The command


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "world"
    generate(WorldConfig("A", size=32, frames=6), {"train": 6, "validation": 2}, folder, 1)
    return folder


EXPERIMENT = "sprites-with-replay"
"""As the paper trains; tests/training/with_replay.py adds it."""
WITH_REPLAY = ["-m", "vonet", "--with", str(Path(__file__).parent / "with_replay.py")]
REDUCED = [
    *("--set", "training.batch=2", "training.segment=2", "model.slots=3", "model.size=[32, 32]"),
    *("training.replay.videos=2", "training.replay.length=12", "training.replay.frames_before_first_update=8"),
]
SMALL = [
    *REDUCED,
    *("--updates", "12", "--evaluate-every", "6", "--videos", "2"),
]


def command(world, out, *more):
    return [*WITH_REPLAY, "train", EXPERIMENT, "--data", str(world), "--out", str(out), *SMALL, *map(str, more)]


def run(arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=ONE_THREAD)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    done = run(command(world, out))
    assert done.returncode == 0, done.stderr
    return out, done


def same_weights(a, b):
    first, second = (load_file(folder / "model.safetensors") for folder in (a, b))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_has_all_that_one_wants_to_see(finished):
    out, done = finished
    assert "is at update 12 of 12" in done.stdout
    assert "update 6: fg_ari" in done.stdout
    model, experiment = weights.load(out)
    assert (experiment.name, model.slots, experiment.training.batch) == (EXPERIMENT, 3, 2)
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [e["update"] for e in entries if "scores" in e] == [6, 12]
    assert [e["update"] for e in entries if "losses" in e] == [10, 12]
    assert all(e["waiting"] < 0.05 for e in entries if "waiting" in e)
    assert {path.name for path in (out / "pictures").iterdir()} == {"00000006.png", "00000012.png"}
    assert (out / "curves.png").stat().st_size > 5000


def test_a_run_in_two_parts_is_the_run(world, tmp_path, finished):
    done = run(command(world, tmp_path / "run", "--updates", 5))
    assert "is at update 5 of 5" in done.stdout, done.stderr
    done = run(command(world, tmp_path / "run", "--resume"))
    assert done.returncode == 0, done.stderr
    assert same_weights(tmp_path / "run", finished[0])
    entries = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    straight = [json.loads(line) for line in (finished[0] / "log.jsonl").read_text().splitlines()]
    assert [e["scores"] for e in entries if "scores" in e][-1] == [e["scores"] for e in straight if "scores" in e][-1]


def test_killed_at_random_moments_it_ends_the_same(world, tmp_path, finished):
    out = tmp_path / "run"
    dice, kills, resumed = np.random.default_rng(0), 0, 0

    def saved():
        return (checkpoint.latest(out) or {"update": 0})["update"]

    while True:
        more = ["--resume"] if checkpoint.latest(out) else []
        resumed += len(more)
        enough = saved() + dice.integers(1, 4)  # by what it has done: machines are fast and slow
        process = subprocess.Popen(
            [sys.executable, *command(world, out, "--save-minutes", 0.0001, *more)],
            stderr=subprocess.DEVNULL,
            env=ONE_THREAD,
        )
        while process.poll() is None and saved() < enough:
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.2))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
    done = run(command(world, out, *(["--resume"] if checkpoint.latest(out) else [])))
    assert done.returncode == 0, done.stderr
    assert kills
    assert resumed
    assert same_weights(out, finished[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first(world, tmp_path, number):
    out = tmp_path / "run"
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ONE_THREAD}
    process = subprocess.Popen([sys.executable, *command(world, out, "--updates", 100_000)], **pipes)
    while not (out / "log.jsonl").exists() or not (out / "log.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Go on with --resume" in said
    found = checkpoint.latest(out)
    assert 0 < found["update"] < 100_000
    assert weights.load(out)[1].name == EXPERIMENT


def test_a_signal_while_the_first_frames_are_watched_leaves_nothing(world, tmp_path):
    out = tmp_path / "run"
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ONE_THREAD}
    long = ["--set", "training.replay.frames_before_first_update=1000000"]
    process = subprocess.Popen([sys.executable, *command(world, out, *long)], **pipes)
    while not (out / "log.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "is at update 0 of 12. Nothing was learned yet, and nothing is saved." in said
    assert "replay rollout" in errors
    assert checkpoint.latest(out) is None


def test_time_is_up_while_the_first_frames_are_watched(world, tmp_path):
    long = ["--set", "training.replay.frames_before_first_update=1000000", "--minutes", 0.02]
    done = run(command(world, tmp_path / "run", *long))
    assert done.returncode == 0, done.stderr
    assert "Nothing was learned yet" in done.stdout


def in_this_process(world, out, **options):
    """A run whose parts a test can reach."""
    with as_in_a_new_process():
        use(Path(WITH_REPLAY[-1]))
        made = overridden(experiments.get(EXPERIMENT), REDUCED[1:])
    return Run(made, world, out, TrainOptions(updates=20, evaluate_every=10, videos=1, **options), Processes(), False)


def test_a_disc_that_is_full_for_a_while_is_said_and_learning_goes_on(world, tmp_path, monkeypatch, capsys):
    running = in_this_process(world, tmp_path / "run", save_minutes=0.0001)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    step = running.training.step

    def step_with_little_room():
        found = step()
        room = 20_000 if 5 < running.training.update < 15 else soft
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        return found

    monkeypatch.setattr(running.training, "step", step_with_little_room)
    try:
        running.learn({"asked": False})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr()
    assert "not saved: " in said.out + said.err
    assert "not written: " in said.out + said.err
    assert checkpoint.latest(tmp_path / "run")["update"] == 20
    assert (tmp_path / "run/pictures/00000020.png").exists()


def test_tensorboard_gets_losses_scores_and_pictures(world, tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as events

    in_this_process(world, tmp_path / "run", tensorboard=True).learn({"asked": False})
    (folder,) = {path.parent for path in (tmp_path / "run").rglob("events.out.tfevents.*")}
    board = events.EventAccumulator(str(folder)).Reload()
    assert [event.step for event in board.Scalars("losses/reconstruction")] == [10, 20]
    assert [event.step for event in board.Scalars("scores/fg_ari")] == [10, 20]
    assert [event.step for event in board.Images("masks")] == [10, 20]


def wandb_records(file):
    """What an offline run of wandb keeps: a log in the format of LevelDB, of records in protobuf."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole, block = file.read_bytes(), 7, b"", 2**15
    while at + 7 <= len(data):
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(whole)
            whole = b""
        if block - at % block < 7:  # too little room for another header
            at += block - at % block


def test_wandb_gets_losses_scores_and_pictures_offline(world, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    in_this_process(world, tmp_path / "run", wandb=True).learn({"asked": False})
    (folder,) = (tmp_path / "run/wandb").glob("offline-run-*")
    (file,) = folder.glob("run-*.wandb")
    assert file.stem == f"run-{(tmp_path / 'run/wandb-id.txt').read_text().strip()}"
    found, end = {}, time.monotonic() + 20
    while not any(record.HasField("exit") for record in wandb_records(file)):  # another process writes it
        assert time.monotonic() < end
        time.sleep(0.1)
    for record in wandb_records(file):
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        for name in items:
            found.setdefault(name, []).append((json.loads(items["update"]), json.loads(items[name])))
    logged = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    for group, name in (("losses", "reconstruction"), ("scores", "fg_ari")):
        expected = [(entry["update"], entry[group][name]) for entry in logged if group in entry]
        assert [update for update, _ in expected] == [10, 20]
        assert found[f"{group}/{name}"] == expected
    drawn = {(tmp_path / f"run/pictures/000000{update}.png").read_bytes() for update in (10, 20)}
    assert {path.read_bytes() for path in (folder / "files/media/images").glob("masks_*.png")} == drawn


def test_wandb_without_an_account_says_what_to_do(tmp_path):
    """In a process of its own, because wandb remembers its first answer."""
    code = "import pathlib; from vonet.training.boards import WeightsAndBiases; WeightsAndBiases(pathlib.Path('.'), {})"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment = {**clean, "HOME": str(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "BadInput: wandb cannot start (" in done.stderr
    assert done.stderr.strip().endswith("run `wandb login`, or set WANDB_MODE=offline")


def test_what_is_not_finite_says_what_to_do(world, tmp_path):
    running = in_this_process(world, tmp_path / "run", save_minutes=0.0001)
    running.updates = 3
    running.learn({"asked": False})
    running.updates = 6
    with torch.no_grad():
        next(running.training.model.backbone.parameters())[0] = torch.nan
    words = r"at update 3 the loss .*; the last checkpoint from before is of update 2. Continue .* --back-to good, with"
    with pytest.raises(BadInput, match=words):
        running.learn({"asked": False})


def test_a_run_killed_before_its_last_scores_has_them_after_resuming(world, tmp_path, finished):
    import shutil

    shutil.copytree(finished[0], tmp_path / "run")
    log = tmp_path / "run/log.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join(line for line in lines if '"scores"' not in line or '"update": 12' not in line) + "\n")
    done = run(command(world, tmp_path / "run", "--resume"))
    assert done.returncode == 0, done.stderr
    again = [json.loads(line) for line in log.read_text().splitlines()]
    straight = [json.loads(line) for line in lines]
    assert [e["scores"] for e in again if "scores" in e][-1] == [e["scores"] for e in straight if "scores" in e][-1]


def test_a_crash_before_the_weights_is_mended(world, tmp_path, finished):
    import shutil

    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    done = run(command(world, tmp_path / "run", "--resume"))
    assert done.returncode == 0, done.stderr
    assert same_weights(tmp_path / "run", finished[0])


def test_a_run_may_begin_with_weights(world, tmp_path, finished):
    done = run(command(world, tmp_path / "run", "--updates", 1, "--from", finished[0]))
    assert done.returncode == 0, done.stderr
    first, second = (load_file(folder / "model.safetensors") for folder in (finished[0], tmp_path / "run"))
    fresh = weights.load(tmp_path / "run")[1].build_model(seed=0).state_dict()
    away = {name: (second[name] - tensor).abs().mean() for name, tensor in first.items()}
    from_fresh = {name: (second[name] - tensor).abs().mean() for name, tensor in fresh.items()}
    assert sum(away.values()) < 0.5 * sum(from_fresh.values())


def test_parts_that_the_first_weights_lack_start_as_in_a_new_model(tmp_path):
    """A finer model goes on from the weights of a coarse one; the other way round they are refused."""
    finer, coarse = (experiments.get(name).build_model(seed=0) for name in ("vonet-spmot", "vonet-closeup"))
    lacking = ["backbone.detail", "places.norm", "places.weights"]
    first = finer.state_dict().items()
    new = {name: tensor.clone() for name, tensor in first if name.startswith(tuple(lacking))}
    assert _begin_with(finer, "vonet-closeup") == lacking
    expected = {**weights.load("vonet-closeup")[0].state_dict(), **new}
    assert all(torch.equal(expected[name], tensor) for name, tensor in finer.state_dict().items())
    weights.save(tmp_path, finer, experiments.get("vonet-spmot"))
    with pytest.raises(BadInput, match="are of another model than the experiment's"):
        _begin_with(coarse, tmp_path)


@pytest.mark.parametrize(("given", "starts_from_them"), [(None, True), ("scratch", False)])
def test_an_experiment_may_name_its_first_weights(world, tmp_path, finished, given, starts_from_them):
    experiment = replace(weights.load(finished[0])[1], start=str(finished[0]))
    run = Run(experiment, world, tmp_path / "run", TrainOptions(start=given), Processes(), resume=False)
    first = load_file(finished[0] / "model.safetensors")
    same = all(torch.equal(first[name], tensor) for name, tensor in run.training.model.state_dict().items())
    assert same == starts_from_them


def test_masks_are_drawn_where_nothing_is_labelled(world, tmp_path):
    """Videos of one's own: no validation split, no true ids, and still one sees it learn."""
    from PIL import Image

    from vonet import data

    for video in data.open(world, split="train")[:3]:
        for i, frame in enumerate(video.frames):
            path = tmp_path / f"own/{video.name}/{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(frame).save(path)
    done = run(["-m", "vonet", "prepare", str(tmp_path / "own"), str(tmp_path / "store"), "--size", "32"])
    assert done.returncode == 0, done.stderr
    done = run(command(tmp_path / "store", tmp_path / "run", "--updates", 2, "--evaluate-every", 2))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/pictures/00000002.png").stat().st_size > 1000


def test_time_is_up(world, tmp_path):
    done = run(command(world, tmp_path / "run", "--updates", 100_000, "--minutes", 0.03))
    assert done.returncode == 0, done.stderr
    assert 0 < checkpoint.latest(tmp_path / "run")["update"] < 100_000
    assert "Go on with --resume" in done.stdout


def test_what_cannot_be_trained_or_resumed_is_said(world, tmp_path, finished):
    for arguments, words in [
        (command(world, finished[0]), "holds a run already, at update 12: add --resume"),
        (command(world, tmp_path / "x", "--resume"), "holds no checkpoint. Omit --resume to start a new run."),
        (command(world, finished[0], "--resume", "--seed", 3), "was started with other settings: seed was 0 and is 3"),
        (
            command(world, finished[0], "--resume", "--set", "training.batch=4"),
            "was started with other settings: experiment.training.batch was 2 and is 4. Use the same",
        ),
        (command(world, tmp_path / "x", "--updates", 0), "updates is 0; it must be more than 0"),
        (command(world, tmp_path / "x", "--minutes", "nan"), "minutes is nan; it must be more than 0"),
        (command(world, tmp_path / "x", "--seed", -1), "the seed is -1"),
        (command(world, tmp_path / "x", "--set", "model.size=[64]"), "two positive integers"),
        (
            command(world, tmp_path / "x", "--set", "training.weights.kl.points=[1,2]"),
            "points of an update and a value",
        ),
        (
            command(world, tmp_path / "x", "--set", 'training.weights.kl.points=[[0, "a"]]'),
            "points of an update and a value",
        ),
        (command(world, tmp_path / "x", "--set", 'model.attention.unet.channels=["a"]'), "whole numbers above 0"),
        (command(world, tmp_path / "x", "--from", tmp_path / "y"), "there are no weights at"),
        (command(tmp_path / "nowhere", tmp_path / "x"), "there is nothing at"),
        (["-m", "vonet", "train", "vonet-movi-a", "--data", str(world), "--out", str(tmp_path / "x")], "takes 128x128"),
    ]:
        done = run(arguments)
        assert done.returncode == 2, words
        assert words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "x").exists()


def test_a_process_that_dies_is_started_again_and_all_ends_the_same(world, tmp_path):
    """torchrun starts both processes again, and they go on from the last checkpoint."""
    arguments = [*REDUCED, "--updates", "30", "--save-minutes", "0.0001"]
    base = [*WITH_REPLAY, "train", EXPERIMENT, "--data", str(world), "--videos", "1", "--evaluate-every", "30"]
    straight = torchrun(*base, "--out", tmp_path / "straight", *arguments)
    _, errors = straight.communicate(timeout=200)
    assert straight.returncode == 0, errors
    out = tmp_path / "run"
    process = torchrun("--max-restarts", "2", *base, "--out", out, *arguments)
    while not (out / "checkpoints/latest.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    workers = _children(process.pid)
    assert len(workers) == 2
    os.kill(workers[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert same_weights(out, tmp_path / "straight")
    shards = [load_file(path) for path in sorted((out / "checkpoints").glob("00000030-*.safetensors"))]
    assert len(shards) == 2
    for name, tensor in shards[0].items():
        if name.startswith(("model/", "optimizer/")):
            assert torch.equal(tensor, shards[1][name]), name  # the processes learn one model
    assert not torch.equal(shards[0]["random/cpu"], shards[1]["random/cpu"])  # from different segments


def test_a_process_that_is_killed_is_said_and_one_process_may_continue(world, tmp_path):
    out, arguments = tmp_path / "run", [*REDUCED, "--save-minutes", "0.0001", "--videos", "1"]
    base = [*WITH_REPLAY, "train", EXPERIMENT, "--data", str(world), "--out", out, *arguments]
    process = torchrun(*base, "--updates", "100000")
    while not (out / "checkpoints/latest.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(_children(process.pid)[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "vonet: another process ended or cannot be reached, so this one stops too" in errors
    assert "gloo" not in errors
    reached = checkpoint.latest(out)["update"]
    done = run([*map(str, base), "--resume", "--updates", str(reached + 2), "--evaluate-every", "100000"])
    assert done.returncode == 0, done.stderr
    assert "was trained by 2 processes and continues with 1: parameters and optimiser are the same" in done.stdout
    assert checkpoint.latest(out)["update"] == reached + 2


def test_a_process_that_dies_on_one_of_two_machines_is_started_again(world, tmp_path):
    """Two agents, as on two machines: only one of them counts the restart, and all go on together."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        endpoint = f"localhost:{free.getsockname()[1]}"
    out = tmp_path / "run"
    agent = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    agent += ["--rdzv-endpoint", endpoint, "--rdzv-id", "two", "--max-restarts", "2"]
    training = command(world, out, "--updates", 40, "--save-minutes", 0.0001, "--evaluate-every", 40, "--videos", 1)
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ONE_THREAD}
    agents = [subprocess.Popen([sys.executable, *agent, *training], **pipes) for _ in range(2)]
    while not (out / "checkpoints/latest.json").exists():
        assert all(process.poll() is None for process in agents)
        time.sleep(0.05)
    first = checkpoint.latest(out)["update"]
    os.kill(_children(agents[1].pid)[0], signal.SIGKILL)
    for process in agents:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    assert first < 40
    shards = [load_file(path) for path in sorted((out / "checkpoints").glob("00000040-*.safetensors"))]
    assert len(shards) == 2
    for name, tensor in shards[0].items():
        if name.startswith("model/"):
            assert torch.equal(tensor, shards[1][name]), name


def test_attempts_have_names_of_their_own():
    """Whatever the processes of an earlier attempt left in the store."""
    store = distributed.HashStore()
    names = []
    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:
            said = list(pool.map(lambda rank: attempt_name(store, rank, 3), (0, 1, 2)))
        assert len(set(said)) == 1
        names += said[:1]
    assert len(set(names)) == 3


def _children(pid):
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid=,args="], capture_output=True, text=True, check=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "vonet" in line]


def test_a_resumed_run_is_compared_by_what_decides_its_training():
    """What an experiment tells of itself, such as its cost, may change between two sessions; its options may not."""
    experiment = experiments.get("vonet-sprites")
    about = {"experiment": weights.described(experiment), "seed": 0}
    retold = {**about, "experiment": weights.described(replace(experiment, cost="an hour", summary="the same"))}
    _check_same(retold, about, Path("run"))
    other = replace(experiment, model=replace(experiment.model, slots=9))
    with pytest.raises(BadInput, match=r"experiment.model.slots was 9 and is 5"):
        _check_same({**about, "experiment": weights.described(other)}, about, Path("run"))
    with pytest.raises(BadInput, match="seed was 1 and is 0"):
        _check_same({**about, "seed": 1}, about, Path("run"))


def test_the_list_has_costs_and_scores():
    done = run(["-m", "vonet", "list", "--ablations", "--json"])
    listed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert set(listed) == set(experiments.names())
    assert listed["vonet-movi-a"]["paper"] == {"fg_ari": 91.0, "miou": 60.5}
    assert listed["vonet-sprites"]["measured"].keys() == {"fg_ari", "miou"}
    assert listed["vonet-movi-a"]["measured"] == {}
    assert all(entry["cost"] for entry in listed.values())
