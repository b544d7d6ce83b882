"""Weights on the Hugging Face Hub: pushed, loaded, and refused, against a Hub on this machine."""

import os
import subprocess
import sys

import pytest

from tests.hub import running_hub
from tests.serving.small import save_weights
from vonet.errors import BadInput
from vonet.experiments import weights

NAME = "someone/small-vonet"

LOAD = """
import sys, torch, vonet
model, experiment = vonet.load(sys.argv[1])
frame = torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32)
state = model.initial_state(1, generator=torch.Generator().manual_seed(0))
print(experiment.name, model.step(frame, state)[0].masks.std().item())
"""


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub


@pytest.fixture
def run(hub, tmp_path):
    """Run a program as a user who is logged in to this Hub."""
    known = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_right"}

    def run(*words, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        return subprocess.run(
            [sys.executable, *map(str, words)],
            env={**clean, **known, "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_weights_are_pushed_and_loaded_elsewhere(hub, run, tmp_path):
    save_weights(tmp_path / "run")
    (tmp_path / "run/log.jsonl").write_text("{}\n")
    done = run("-m", "vonet", "push", tmp_path / "run", NAME, "--private")
    assert done.returncode == 0, done.stderr
    assert f"vonet segment clip.mp4 --weights hf:{NAME}" in done.stdout
    assert hub.made[0]["repository"] == NAME
    assert hub.made[0].get("private") or hub.made[0].get("visibility") == "private"
    kept = hub.files[NAME]
    assert sorted(kept) == ["SHA256SUMS", "config.json", "model.safetensors"]  # and nothing else of the run
    assert kept["model.safetensors"] == (tmp_path / "run/model.safetensors").read_bytes()
    assert f"{weights.checksum(tmp_path / 'run')}  model.safetensors\n" in kept["SHA256SUMS"].decode()

    here, there = run("-c", LOAD, tmp_path / "run"), run("-c", LOAD, f"hf:{NAME}")
    assert there.returncode == 0, there.stderr
    assert here.stdout == there.stdout
    away = run("-c", LOAD, f"hf:{NAME}", HF_HUB_OFFLINE="1")  # the cache has it
    assert away.stdout == here.stdout, away.stderr


def test_changed_weights_are_refused(hub, run, tmp_path):
    save_weights(tmp_path / "run")
    run("-m", "vonet", "push", tmp_path / "run", NAME)
    content = bytearray(hub.files[NAME]["model.safetensors"])
    content[-1] ^= 1
    hub.files[NAME]["model.safetensors"] = bytes(content)
    done = run("-m", "vonet", "segment", "clip.mp4", "--weights", f"hf:{NAME}")
    assert done.returncode == 2
    assert f"vonet: model.safetensors of hf:{NAME} does not have the checksum in SHA256SUMS" in done.stderr


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        ("nobody/nothing", {}, "hf:nobody/nothing is not on the Hub, is private, or was not put there by vonet push"),
        ("no name", {}, "the repository is 'hf:no name'; it must be OWNER/NAME on the Hub"),
        (NAME, {"HF_HUB_OFFLINE": "1"}, f"hf:{NAME} cannot be reached: the Hugging Face Hub does not answer"),
    ],
)
def test_what_cannot_be_loaded_gets_a_sentence(name, environment, said, run):
    done = run("-m", "vonet", "export", f"hf:{name}", "out", **environment)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"vonet: {said}"), done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_pushed_gets_a_sentence(hub, run, tmp_path):
    save_weights(tmp_path / "run")
    for environment, said in (
        ({"HF_TOKEN": "hf_wrong"}, f"vonet: The Hub refuses {NAME}: log in with `hf auth login`"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "the Hugging Face Hub does not answer, and nothing was uploaded."),
    ):
        done = run("-m", "vonet", "push", tmp_path / "run", NAME, **environment)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    hub.requests.clear()
    done = run("-m", "vonet", "push", tmp_path / "run", "small-vonet")
    assert done.stderr == "vonet: the repository is 'small-vonet'; it must be OWNER/NAME on the Hub\n"
    (tmp_path / "run/model.safetensors").write_bytes(b"broken")
    done = run("-m", "vonet", "push", tmp_path / "run", NAME)
    assert "is damaged, or not a file of weights" in done.stderr
    assert hub.requests == []  # nothing was sent


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BadInput, match=f"hf:{NAME} needs huggingface_hub. Install with: pip install huggingface_hub"):
        weights.load(f"hf:{NAME}")
