"""`vonet reproduce`: the plan, trainings here and on Slurm, and the table."""

import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from results import __main__ as results
from vonet import cli, experiments
from vonet.commands import jobs, reproduce
from vonet.errors import BadInput
from vonet.experiments import paper_scores
from vonet.experiments.paper_scores import LEVELS, METHODS

SMALL = ("vonet", "generate", "sprites", "--train", "2", "--validation", "1", "--workers", "1")


def planned(capsys, *words):
    capsys.readouterr()
    cli.main(["reproduce", *map(str, words), "--dry-run"])
    return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]


def test_sprites_mot_is_reduced_for_training_and_scored_as_it_is(tmp_path, capsys):
    made, small, run = (str(tmp_path / name) for name in ("world-spmot", "world-spmot-32", "vonet-spmot-seed0"))
    generate, prepare, train, evaluate, _ = planned(
        capsys, "spmot", "--only", "vonet-spmot", "--seed", 0, "--out", tmp_path
    )
    assert generate == ["vonet", "generate", "spmot", "--out", made]
    assert prepare == ["vonet", "prepare", made, small, "--size", "32"]
    assert train == ["vonet", "train", "vonet-spmot", "--data", small, "--out", run, "--seed", "0"]
    assert evaluate == ["vonet", "evaluate", run, made, "--split", "test", "--protocol", "spmot"]


def test_tracking_scores_are_in_percent_already():
    assert reproduce._score({"mota": 91.5, "fg_ari": 0.8, "offline": {"miou": 0.7}}, "mota") == 91.5
    assert reproduce._score({"mota": 91.5, "fg_ari": 0.8, "offline": {"miou": 0.7}}, "offline_miou") == 70


@pytest.fixture
def short(monkeypatch):
    """Sprites, but two updates on two videos; expected scores of our own making."""
    sprites = experiments.get("vonet-sprites")
    monkeypatch.setattr(experiments, "get", lambda name: replace(sprites, measured={"fg_ari": 12.3, "miou": 4.56}))
    small = replace(reproduce.reported()["sprites"][0], make=SMALL, updates=2)
    monkeypatch.setattr(reproduce, "reported", lambda: {"sprites": (small,)})


def test_what_is_reported_is_run_again_with_two_workers_and_compared(short, tmp_path, capsys):
    command = ["sprites", "--seeds", 2, "--out", tmp_path]
    generate, *trainings, table = planned(capsys, *command)
    assert [words[1] for words in trainings] == ["train", "evaluate"] * 2
    assert generate[1:3] == ["generate", "sprites"]
    cli.main(["reproduce", *map(str, command), "--workers", "2"])
    *_, first, second = capsys.readouterr().out.strip().splitlines()
    assert re.fullmatch(r"\| vonet-sprites \| fg_ari \| 12\.3 \| \S+ \(\S+, \S+\) \|", first)
    assert re.fullmatch(r"\| vonet-sprites \| miou \| 4\.6 \| \S+ \(\S+, \S+\) \|", second)
    for seed in range(2):
        said = (tmp_path / f"vonet-sprites-seed{seed}.log").read_text()
        assert said.startswith(f"vonet train vonet-sprites --data {tmp_path}/world-sprites")
        assert "Verdict:" in said
    assert planned(capsys, *command) == [table]  # nothing is left to do
    cli.main(table[1:])
    assert capsys.readouterr().out.strip().splitlines()[-2:] == [first, second]
    unfinished = reproduce.Job("vonet-sprites", 0, tmp_path / "vonet-sprites-seed0", jobs.Data(tmp_path, ()), updates=3)
    (train, _) = unfinished.commands()
    assert train[-3:] == ("--updates", "3", "--resume")  # what was interrupted continues


@pytest.mark.parametrize("workers", [1, 2])
def test_so_many_trainings_run_at_a_time(workers, tmp_path, monkeypatch):
    """Each says how many run beside it, after a while in which the other can start."""
    script = tmp_path / "work.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "mine = here / f'{sys.argv[1]}.running'\n"
        "mine.touch()\n"
        "end = time.time() + 5\n"
        f"while len(list(here.glob('*.running'))) < {workers} and time.time() < end: time.sleep(0.02)\n"
        "(here / f'{sys.argv[1]}.seen').write_text(str(len(list(here.glob('*.running')))))\n"
        "time.sleep(0.2)\n"
        "mine.unlink()\n"
    )
    monkeypatch.setattr(jobs, "PROGRAMS", {"work": (sys.executable, str(script))})
    monkeypatch.setattr(jobs.Job, "commands", lambda job: [("work", job.name)])
    monkeypatch.setattr(jobs.Job, "is_trained", True)
    monkeypatch.setattr(jobs.Data, "commands", lambda data: [])
    data = jobs.Data(tmp_path / "store", ())
    jobs.run_here([jobs.Job("x", seed, tmp_path / f"run{seed}", data) for seed in range(2)], workers)
    assert [(tmp_path / f"run{seed}.seen").read_text() for seed in range(2)] == [str(workers)] * 2


def test_a_training_that_fails_is_named_and_the_others_run(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "PROGRAMS", {"python": (sys.executable, "-c")})
    monkeypatch.setattr(jobs.Job, "commands", lambda job: [("python", f"import sys; sys.exit({3 * job.seed})")])
    monkeypatch.setattr(jobs.Job, "is_trained", True)
    monkeypatch.setattr(jobs.Data, "commands", lambda data: [])
    two = [jobs.Job("x", seed, tmp_path / f"run{seed}", jobs.Data(tmp_path, ())) for seed in range(2)]
    with pytest.raises(BadInput, match=r"^run1 ended with exit code 3; .*run1.log says why. The same"):
        jobs.run_here(two, workers=2)
    assert (tmp_path / "run0.log").exists()


STOPPED = """
import pathlib, sys
from vonet.commands import jobs
here = pathlib.Path(sys.argv[1])
slow = "import pathlib, signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler);" + chr(10)
slow += f"pathlib.Path({str(here)!r}, sys.argv[1] + '.begun').touch()" + chr(10)
slow += "try: time.sleep(30)" + chr(10)
slow += "except KeyboardInterrupt: time.sleep(1)" + chr(10)
slow += f"pathlib.Path({str(here)!r}, sys.argv[1] + '.saved').touch()"
jobs.PROGRAMS = {"slow": (sys.executable, "-c", slow)}
jobs.Job.commands = lambda job: [("slow", job.name)]
jobs.Data.commands = lambda data: []
three = [jobs.Job("x", seed, here / f"run{seed}", jobs.Data(here, ())) for seed in range(3)]
jobs.run_here(three, int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_after_ctrl_c_trainings_save_and_no_other_begins(workers, tmp_path):
    words = [sys.executable, "-c", STOPPED, str(tmp_path), str(workers)]
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while len(list(tmp_path.glob("*.begun"))) < workers and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=20)
    assert process.returncode != 0
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert sorted(path.name for path in tmp_path.glob("*.saved")) == [f"run{k}.saved" for k in range(workers)]
    assert len(list(tmp_path.glob("*.begun"))) == workers


def test_a_training_that_was_stopped_is_not_evaluated(tmp_path, monkeypatch):
    """`vonet train` ends well after Ctrl-C, with a checkpoint and not at its last update."""
    monkeypatch.setattr(jobs, "PROGRAMS", {"python": (sys.executable, "-c")})
    monkeypatch.setattr(jobs.Job, "commands", lambda job: [("python", ""), ("python", "print(1 / 0)")])
    monkeypatch.setattr(jobs.Data, "commands", lambda data: [])
    job = jobs.Job("vonet-sprites", 0, tmp_path / "run", jobs.Data(tmp_path, ()))
    with pytest.raises(BadInput, match=r"^run was stopped before its end\. The same command continues$"):
        jobs.run_here([job], workers=1)


def test_all_that_is_reported_of_other_methods_can_be_run_again():
    reported = {one.experiment: one.seeds for one in reproduce.reported()["methods"]}
    recorded = {folder.name: len(results.seeds_of(folder)) for folder in results.folders(results.HERE)}
    assert {name: len(seeds) for name, seeds in reported.items()} == {name: recorded[name] for name in results.OTHERS}


# ---- ablations -------------------------------------------------------------------------------------------------------


def test_the_ablation_without_u_net_starts_from_its_own_kind(tmp_path, capsys):
    commands = planned(capsys, "ablations", "--out", tmp_path)
    trained = [words for words in commands if words[1] == "train"]
    assert trained[0][2] == "vonet-closeup-wo-unet"
    started = {words[2]: words[words.index("--from") + 1] for words in trained if "--from" in words}
    assert started == {"vonet-closeup-tokens-wo-unet": f"{tmp_path}/vonet-closeup-wo-unet-seed0"}
    assert len(trained) == 7
    only = ("ablations", "--only", "vonet-closeup-tokens-wo-unet", "--seed", 1, "--out", tmp_path)
    trained = [words for words in planned(capsys, *only) if words[1] == "train"]
    assert [words[-1] for words in trained] == ["0", f"{tmp_path}/vonet-closeup-wo-unet-seed0"]  # its start, then it


def test_a_training_waits_for_the_one_that_it_starts_from(tmp_path, monkeypatch, slurm):
    data = jobs.Data(tmp_path / "store", ())
    first = jobs.Job("x", 0, tmp_path / "first", data)
    others = [jobs.Job("y", seed, tmp_path / f"other{seed}", data, start=first.out) for seed in range(2)]
    order = []
    monkeypatch.setattr(jobs.Job, "commands", lambda job: [("vonet", "train", job.name)])
    monkeypatch.setattr(jobs.Data, "commands", lambda data: [])
    monkeypatch.setattr(jobs, "_run", lambda work, log, environment=None: order.append(work.name))
    jobs.run_here([first, *others], workers=2)
    assert order[:2] == ["store", "first"]
    assert sorted(order[2:]) == ["other0", "other1"]
    numbers = jobs.submit([first, *others], tmp_path / "slurm", [])
    script = sorted(slurm.iterdir())[-1].read_text()
    assert f"#SBATCH --dependency=afterok:{numbers['first']}\n" in script

    def fails(work, log, environment=None):
        if work.name == "first":
            raise BadInput("first ended with exit code 1")

    monkeypatch.setattr(jobs, "_run", fails)
    told = r"^first ended .*; other0 was not begun, because it starts from first; other1 was"
    with pytest.raises(BadInput, match=told):
        jobs.run_here([first, *others], workers=2)


def test_a_store_waits_for_the_one_that_it_is_made_from(tmp_path, monkeypatch, slurm):
    large = jobs.Data(tmp_path / "large", ("vonet", "generate", "A"))
    small = jobs.Data(tmp_path / "small", ("vonet", "prepare", "large", "small"), source=large)
    monkeypatch.setattr(jobs.Job, "commands", lambda job: [("vonet", "train", job.name)])
    both = [jobs.Job("x", 0, tmp_path / "x", large), jobs.Job("y", 0, tmp_path / "y", small)]
    numbers = jobs.submit(both, tmp_path / "slurm", [])
    script = (slurm / f"{numbers['small']}.sh").read_text()
    assert f"#SBATCH --dependency=afterok:{numbers['large']}\n" in script


# ---- a small version of Table 1 --------------------------------------------------------------------------------------


def test_the_small_table_1_trains_seven_methods_on_three_levels(tmp_path, capsys):
    *commands, table = planned(capsys, "table1", "--out", tmp_path)
    worlds = [words[2] for words in commands if words[1] == "generate"]
    assert worlds == ["A", "B", "C"]
    trained = [(words[2], words[words.index("--out") + 1]) for words in commands if words[1] == "train"]
    assert len(trained) == len(set(trained)) == 21
    assert trained[0] == ("vonet-closeup-hour", f"{tmp_path}/vonet-closeup-hour-a-seed0")
    assert [
        "vonet",
        "prepare",
        f"{tmp_path}/world-closeup-c",
        f"{tmp_path}/world-closeup-c-64",
        "--size",
        "64",
    ] in commands
    assert ["vonet", "evaluate", f"{tmp_path}/scalor-closeup-c-seed0", f"{tmp_path}/world-closeup-c"] in commands
    assert table == shlex.split(f"vonet reproduce table1 --table --out {tmp_path}")
    only = planned(capsys, "table1", "--level", "B", "--only", "savi-closeup", "--out", tmp_path)
    assert [words[1] for words in only] == ["generate", "train", "evaluate", "reproduce"]


def test_the_small_table_1_has_the_layout_and_the_numbers_of_the_paper(tmp_path, monkeypatch, capsys):
    trivial = {method: {"fg_ari": 0.5, "miou": 0.25} for method in reproduce.REFERENCES}
    more_slots = {method: {"fg_ari": 0.1, "miou": 0.1} for method in reproduce.REFERENCES}

    def evaluation(job):
        done = job.experiment in ("vonet-closeup-hour", "simone-closeup") and job.level != "c"
        others = trivial if job.experiment == "vonet-closeup-hour" else more_slots
        return {"fg_ari": 0.8 if job.level == "a" else 0.705, "miou": 0.7, "trivial": others} if done else None

    monkeypatch.setattr(jobs.Job, "evaluation", evaluation)
    cli.main(["reproduce", "table1", "--table", "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert "| close-ups | A | B | C |" in lines
    assert "| vonet-closeup-hour | 80.0 / 70.0 | 70.5 / 70.0 | – |" in lines
    assert "| monet-closeup | – | – | – |" in lines
    assert "| k-means | 50.0 / 25.0 | 50.0 / 25.0 | – |" in lines
    assert lines.index("| the paper | MOVi-A | MOVi-B | MOVi-C |") > lines.index(
        "| blocks | 50.0 / 25.0 | 50.0 / 25.0 | – |"
    )
    assert "| VONet | 91.0 / 60.5 | 60.6 / 59.7 | 45.3 / 42.8 |" in lines


# ---- Table 1 of the paper --------------------------------------------------------------------------------------------


def test_the_plan_of_table_1_is_a_list_of_commands(tmp_path, capsys):
    out, movi = tmp_path / "out", tmp_path / "movi"
    folder, fetch, prepare, *trainings, table = planned(
        capsys, "paper", "--level", "a", "--seeds", 3, "--out", out, "--data", movi
    )
    assert folder == ["mkdir", "-p", f"{movi}/movi_a"]
    assert fetch[-2:] == ["gs://kubric-public/tfds/movi_a/128x128", f"{movi}/movi_a"]
    assert prepare[2:] == [f"{movi}/movi_a/128x128/1.0.0", f"{out}/movi-a", "--size", "128"]
    assert table == shlex.split(f"vonet reproduce paper --table --out {out} --level a --seeds 3")
    train, evaluate = trainings[::2], trainings[1::2]
    assert len(train) == len(evaluate) == 3 * len(METHODS)
    assert train[-1] == shlex.split(
        f"torchrun --standalone --nproc-per-node 4 -m vonet train vonet-movi-a --data {out}/movi-a "
        f"--out {out}/vonet-movi-a-seed2 --seed 2"
    )
    assert evaluate[-1] == ["vonet", "evaluate", f"{out}/vonet-movi-a-seed2", f"{out}/movi-a"]
    parser = cli.make_parser()
    for words in (prepare, *trainings):  # every one of them can be typed
        parser.parse_args(words[words.index("vonet") + 1 :])
    (movi / "movi_a/128x128/1.0.0").mkdir(parents=True)
    assert planned(capsys, "paper", "--level", "a", "--out", out, "--data", movi)[0] == prepare  # it is there already


def test_the_documentation_has_the_table_and_the_plan(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs/tutorials/reproduce.md").read_text(encoding="utf-8")
    for method in METHODS:
        of_levels = [paper_scores.of_videos(method, level) for level in LEVELS]
        cells = [f"{scores['fg_ari']:.1f} / {scores['miou']:.1f}" for scores in of_levels]
        assert f"| {method} | {' | '.join(cells)} |\n" in page
    monkeypatch.chdir(tmp_path)
    folder, fetch, *_ = planned(capsys, "paper", "--level", "a")
    for words in (folder, fetch):
        assert f"\n{shlex.join(words)}\n" in page


def test_every_training_of_table_1_goes_into_four_processes():
    paper = reproduce.reported()["paper"]
    assert len(paper) == len(METHODS) * len(LEVELS)
    for one in paper:
        assert experiments.get(one.experiment).training.batch % reproduce.GPUS == 0, one.experiment
        assert set(reproduce._expected(experiments.get(one.experiment))) == {"fg_ari", "miou"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("paper --level a", r"MOVi is not at movi/movi_a/128x128/1.0.0: fetch it first, with gcloud storage cp"),
        ("paper --level z", r"--level is 'z'; expected one of a, b, c, d, e"),
        ("paper --level a --only vonet-movi-b", r"'vonet-movi-b' is not among the experiments: savi-movi-a"),
        ("table1 --level e", r"--level is 'e'; expected one of a, b, c"),
        ("sprites --level a", r"--level is for paper and table1, such as vonet reproduce paper --level a"),
        ("sprites --gpus 2", r"--gpus is for the paper's trainings: vonet reproduce paper --gpus 2"),
        ("sprites --on moon", r"--on is 'moon'; expected one of local, slurm"),
        ("sprites --seeds 0", r"Give --seeds a number of seeds above 0, or --seed the seeds themselves\."),
        ("sprites --workers 0", r"0 workers were asked for; at least 1 is needed"),
        ("sprites --on slurm", r"--on slurm needs sbatch and srun: run it where jobs are submitted"),
        (
            "everything",
            r"there are no results 'everything'; expected one of closeup, corrected, tokens, ablations, laptop, spmot",
        ),
    ],
)
def test_mistakes_get_a_sentence(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as end:
        cli.main(["reproduce", *words.split()])
    assert end.value.code == 2
    assert re.match(f"vonet: {said}", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


# ---- Slurm -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm that keeps what is submitted and runs nothing."""
    programs = tmp_path / "bin"
    programs.mkdir()
    submitted = tmp_path / "submitted"
    submitted.mkdir()
    (programs / "srun").write_text("#!/bin/sh\nexit 1\n")
    (programs / "sbatch").write_text(
        f'#!/bin/sh\nnumber=$((100 + $(ls {submitted} | wc -l)))\ncp "$1" {submitted}/$number.sh\n'
        'echo "Submitted batch job $number"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return submitted


def test_slurm_gets_one_job_of_four_gpus_for_each_training(slurm, tmp_path, capsys):
    out, movi = tmp_path / "out", tmp_path / "movi"
    (movi / "movi_c/128x128/1.0.0").mkdir(parents=True)
    words = f"reproduce paper --level c --seeds 2 --only vonet-movi-c --out {out} --data {movi} --on slurm"
    cli.main([*words.split(), "--slurm", "partition=gpu", "time=60"])
    assert capsys.readouterr().out.splitlines()[:3] == [
        "100  movi-c",
        "101  vonet-movi-c-seed0",
        "102  vonet-movi-c-seed1",
    ]
    scripts = [path.read_text() for path in sorted(slurm.iterdir())]
    assert len(scripts) == 3
    for script in scripts:
        assert "#SBATCH --partition=gpu\n" in script
        assert "#SBATCH --time=60\n" in script
    for script in scripts[1:]:
        for line in ("gpus-per-node=4", "ntasks-per-node=1", "nodes=1", "cpus-per-task=16", "dependency=afterok:100"):
            assert f"#SBATCH --{line}\n" in script
    assert "gpus" not in scripts[0]
    kept = pickle.loads((out / "slurm/102_submitted.pkl").read_bytes())
    (job,) = kept.args
    train, evaluate = job.commands()
    assert train[:6] == ("torchrun", "--standalone", "--nproc-per-node", "4", "-m", "vonet")
    assert train[-2:] == ("--seed", "1")
    assert evaluate[:2] == ("vonet", "evaluate")
    again = kept.function.checkpoint(job)  # when the time is up, the same job is queued again, and resumes
    assert (again.function.__class__, again.args) == (jobs.Resumable, (job,))


def test_what_slurm_refuses_gets_a_sentence(slurm, tmp_path, capsys):
    program = slurm.parent / "bin/sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: moon' >&2\nexit 1\n")
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "sprites", "--out", str(tmp_path / "out"), "--on", "slurm", "--slurm", "partition=moon"])
    assert "vonet: Slurm refuses world-sprites: " in (said := capsys.readouterr().err)
    assert "invalid partition specified: moon" in said


def test_a_wrong_option_of_slurm_gets_a_sentence(slurm, tmp_path, capsys):
    for option, said in (
        ("partition", "--slurm is 'partition'; it must be NAME=VALUE"),
        ("moon=1", "--slurm: Unavailable param"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["reproduce", "sprites", "--out", str(tmp_path / "out"), "--on", "slurm", "--slurm", option])
        assert said in capsys.readouterr().err
    assert list(slurm.iterdir()) == []
