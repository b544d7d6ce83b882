import inspect
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from vonet import cli
from vonet.data.sprites import sprite_videos
from vonet.experiments import weights


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vonet", *map(str, arguments)])
    cli.main()


def test_demo_learns_scores_segments_and_reports_and_uses_again_what_there_is(monkeypatch, tmp_path, capsys):
    run(monkeypatch, "demo", "--updates", 2, "--videos", 2, "--out", tmp_path / "demo")
    said = capsys.readouterr().out
    for words in ("FG-ARI", "k-means", "mixture (no learning)", "report.html", "frames per second", "vonet segment"):
        assert words in said
    for row in ("vonet-closeup-quick (trained)", "vonet-closeup-quick (untrained)"):  # a score counts beside the latter
        assert row in said
    assert "To save time, scores meanwhile are of 2 of the 2 videos of step 3." in said
    assert weights.load(tmp_path / "demo/trained")[1].name == "vonet-closeup-quick"
    assert (tmp_path / "demo/trained/report.html").stat().st_size > 10_000
    assert len(list((tmp_path / "demo/segmented").rglob("*.mp4"))) == 1
    learned = (tmp_path / "demo/trained/model.safetensors").read_bytes()
    run(monkeypatch, "demo", "--updates", 2, "--videos", 2, "--out", tmp_path / "demo")
    assert "is trained already" in capsys.readouterr().out
    assert (tmp_path / "demo/trained/model.safetensors").read_bytes() == learned


def listed(monkeypatch, capsys, *arguments):
    """The names that `vonet list` prints."""
    run(monkeypatch, "list", *arguments)
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]


def test_experiments_are_listed_filtered_and_shown(monkeypatch, capsys):
    everything = listed(monkeypatch, capsys)
    assert {"vonet-sprites", "mixture", "vonet-movi-e", "savi-movi-a"} <= set(everything)
    assert not any("wo-replay" in name for name in everything)  # ablations are hidden unless asked for
    assert "vonet-movi-e-wo-replay" in listed(monkeypatch, capsys, "--ablations")
    assert listed(monkeypatch, capsys, "vonet-movi-e-wo-replay") == ["vonet-movi-e-wo-replay"]
    of_savi = ["savi-laptop-a", "savi-spmot", "savi-closeup", *(f"savi-movi-{level}" for level in "abcde")]
    assert listed(monkeypatch, capsys, "savi") == of_savi
    assert listed(monkeypatch, capsys, "savi", "--level", "b") == ["savi-movi-b"]
    on_a = listed(monkeypatch, capsys, "--level", "A")
    assert {"vonet-movi-a", "savi-laptop-a", "vonet-closeup"} <= set(on_a)
    assert not any(name.endswith(("-b", "-c", "-d", "-e")) for name in on_a)
    run(monkeypatch, "list", "vonet-movi-a", "--config")
    assert json.loads(capsys.readouterr().out)["model"]["slot_dim"] == 128
    run(monkeypatch, "list", "vonet-movi-a", "--json")
    (told,) = json.loads(capsys.readouterr().out)
    assert told["paper"] == {"fg_ari": 91.0, "miou": 60.5}


def test_importing_vonet_builds_no_experiment():
    code = """
import sys, vonet
assert "torch" not in sys.modules
from vonet.experiments import registry
built = [name for name in sys.modules if name.startswith(("vonet.model.", "vonet.baselines.", "vonet.variants."))]
assert len(registry.names()) > 60 and not built, built
registry.get("savi-movi-a")
assert "vonet.baselines.savi" in sys.modules and "vonet.baselines.simone" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_method_without_parameters_is_not_trained(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "train", "mixture", "--data", tmp_path)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("vonet: mixture has no parameters to train: use it as it is, with vonet")


def test_mistakes_get_a_sentence_not_a_traceback(tmp_path):
    for arguments, words in [
        (["list", "vonet-movi-z", "--config"], "vonet: there is no experiment 'vonet-movi-z'; perhaps you meant"),
        (["list", "nonsense"], "vonet: no experiment matches 'nonsense'"),
        (["demo", "--updates", "0", "--out", str(tmp_path)], "vonet: 0 updates were asked for"),
    ]:
        done = subprocess.run([sys.executable, "-m", "vonet", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["segment", "clip.mp4", "--sure-above", "0.5"], "--sure-above is now --min-probability"),
        (["experiments"], "the command experiments is now list: use vonet list"),
        (["experimentz"], "invalid choice: 'experimentz'"),
        (["segment", "clip.mp4", "--sure"], "unrecognized arguments: --sure"),
    ],
)
def test_former_names_are_refused_with_the_present_ones(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_every_option_has_a_help():
    for command, (_, parser) in cli.commands_of(cli.make_parser()).items():
        assert [action.dest for action in parser._actions if not (action.help or "").strip()] == [], command


def library_of(command):
    """The call whose defaults serve where an option of the command is not given."""
    from vonet.data.prepare import PrepareConfig
    from vonet.data.scenes.video import WorldConfig
    from vonet.evaluation.evaluate import evaluate
    from vonet.figures.draw import draw
    from vonet.figures.report import report
    from vonet.serving.segment import SegmentOptions
    from vonet.training.run import TrainOptions

    calls = {"generate": WorldConfig, "prepare": PrepareConfig, "train": TrainOptions, "evaluate": evaluate}
    return (calls | {"segment": SegmentOptions, "report": report, "figures": draw}).get(command)


def test_the_help_says_the_defaults_of_the_library():
    """Each default is typed once in code: in the library. The help, which must not wait for it, tells the same."""
    compared = []
    for command, (_, parser) in cli.commands_of(cli.make_parser()).items():
        library = library_of(command)
        parameters = inspect.signature(library).parameters if library else {}
        for action in parser._actions:
            told = re.search(r"default: ([\w.]+)|(\w+) \(default\)", action.help or "")
            known = parameters.get(action.dest)
            if told and known and known.default not in (None, inspect.Parameter.empty):
                assert action.default is None, (command, action.dest)
                assert str(known.default).removesuffix(".0") == (told[1] or told[2]), (command, action.dest)
                compared.append((command, action.dest))
    assert len(compared) >= 20, compared


# The shell


def test_help_fits_on_a_screen_and_begins_with_what_a_newcomer_needs():
    lines = cli.make_parser().format_help().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    first = [line.split()[:2] for line in lines if line.startswith("  vonet ")]
    assert first == [["vonet", "demo"], ["vonet", "segment"], ["vonet", "train"]]
    for name in cli.commands_of(cli.make_parser()):
        assert any(line.startswith(f"  {name} ") for line in lines), name


def completed(shell_script, *words):
    """What bash offers for the last word."""
    typed = " ".join(map(shlex.quote, words))
    code = f'{shell_script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _vonet; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_and_options(monkeypatch, capsys):
    run(monkeypatch, "completion", "bash")
    script = capsys.readouterr().out
    assert completed(script, "vonet", "se") == ["segment"]
    assert set(completed(script, "vonet", "")) == set(cli.commands_of(cli.make_parser()))
    assert completed(script, "vonet", "segment", "--ov") == ["--overwrite"]
    assert completed(script, "vonet", "segment", "a.mp4", "--s") == [
        *("--slots", "--start", "--seed", "--split"),
    ]
    assert completed(script, "vonet", "segment", "clip") == []  # names of files are bash's own to complete


def test_commands_and_options_are_completed_behind_own_files(monkeypatch, capsys):
    run(monkeypatch, "completion", "bash")
    script = capsys.readouterr().out
    assert completed(script, "vonet", "--with", "se") == []  # the name of a file
    assert completed(script, "vonet", "--with", "mine.py", "se") == ["segment"]
    assert completed(script, "vonet", "--with", "a.py", "--with", "b.py", "segment", "--ov") == ["--overwrite"]
    run(monkeypatch, "completion", "fish")
    lines = capsys.readouterr().out.splitlines()
    before = f"complete -c vonet -n 'not __fish_seen_subcommand_from {' '.join(cli.commands_of(cli.make_parser()))}'"
    assert lines[0].startswith(f"{before} -l with -r -F ")
    assert sum(line.startswith(f"{before} -f -a segment ") for line in lines) == 1


def test_other_shells_and_shells_that_are_not(monkeypatch, capsys):
    run(monkeypatch, "completion", "zsh")
    assert "bashcompinit\n_vonet()" in capsys.readouterr().out
    run(monkeypatch, "completion", "fish")
    lines = capsys.readouterr().out.splitlines()
    option = "complete -c vonet -n '__fish_seen_subcommand_from segment' -l overwrite -d 'replace existing results'"
    assert sum(line.startswith(option) for line in lines) == 1
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "completion", "cmd")
    assert end.value.code == 2
    assert capsys.readouterr().err == "vonet: there is no completion for 'cmd'; there is for bash, zsh, fish\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    """As in `vonet list | head -1`."""
    command = [sys.executable, "-m", "vonet", "completion", "bash"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


def test_a_full_disc_under_what_is_printed_gets_a_sentence():
    if not os.path.exists("/dev/full"):
        pytest.skip("only Linux has a disc that is always full")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "vonet", "completion", "bash"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "vonet: the output cannot be written (No space left on device): make room, or print elsewhere\n"
    )


def test_nothing_asked_for_is_answered_with_the_help(monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        run(monkeypatch)
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert said.err == cli.make_parser().format_help()


def test_ctrl_c_ends_without_a_traceback(monkeypatch, capsys):
    def stopped(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("vonet.commands.list.run", stopped)
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, "list")
    assert (end.value.code, capsys.readouterr().err) == (130, "vonet: stopped\n")


def test_sprites_are_decided_by_seed_and_number():
    pixels, ids = sprite_videos(3, seed=5)
    again, _ = sprite_videos(2, seed=5)
    assert np.array_equal(pixels[:2], again)
    assert not np.array_equal(pixels[0], sprite_videos(1, seed=6)[0][0])
    assert pixels.shape == (3, 12, 32, 32, 3)
    for video in ids:
        assert 2 <= video.max() <= 3
        assert 0.02 < (video > 0).mean() < 0.5


@pytest.mark.parametrize("number", range(5))
def test_sprites_move_and_keep_their_colour(number):
    pixels, ids = sprite_videos(number + 1, seed=5)
    pixels, ids = pixels[number], ids[number]
    assert not np.array_equal(ids[0], ids[-1])
    for i in range(1, ids.max() + 1):
        assert len(np.unique(pixels[ids == i], axis=0)) == 1
