import copy
import shutil
import subprocess
import sys

import pytest
import torch

from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.performance import compile_encoder

COMPILED = """
import torch
from tests.reduced import reduced_experiment
from vonet import experiments
from vonet.performance import compile_encoder

experiment = reduced_experiment(experiments.get("vonet-movi-a"))
plain, compiled = experiment.build_model(seed=0).eval(), experiment.build_model(seed=0).eval()
assert compile_encoder(compiled)
for batch, slots in [(1, 4), (2, 7)]:
    frame, state = torch.rand(batch, 3, 32, 32), plain.initial_state(batch, slots=slots)
    with torch.no_grad():
        ours, theirs = compiled.step(frame, state)[0], plain.step(frame, state)[0]
    torch.testing.assert_close(ours.log_masks, theirs.log_masks, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.slots, theirs.slots, atol=1e-4, rtol=1e-4)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler (g++)")
def test_compiled_model_gives_the_same():
    """In a process of its own: the compiler cannot read functions whose shapes are checked."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


def test_compiling_is_the_model_s_own_affair(monkeypatch):
    """A copy of a compiled model computes with its own weights, and no random number is used up."""
    monkeypatch.setattr(torch, "compile", lambda function: lambda *args: function(*args))
    experiment = reduced_experiment(experiments.get("vonet-movi-a"))
    torch.manual_seed(1)
    model = experiment.build_model(seed=0).eval()
    assert compile_encoder(model)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
    assert "encode_frame" in vars(model)
    frame, state = torch.rand(1, 3, 32, 32), model.initial_state(1)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter *= 1.1
        assert not torch.allclose(other.step(frame, state)[0].slots, model.step(frame, state)[0].slots, atol=1e-3)


def test_without_a_compiler_the_model_works_and_says_so(monkeypatch):
    def broken(_):
        def fail(*_):
            raise RuntimeError("no C++ compiler found\nand a long explanation")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    model = reduced_experiment(experiments.get("vonet-movi-a")).build_model()
    with pytest.warns(UserWarning, match=r"does not work here \(no C\+\+ compiler found\); continuing without it"):
        assert not compile_encoder(model)
    assert "encode_frame" not in vars(model)
    model.step(torch.rand(1, 3, 32, 32), model.initial_state(1))


FAULTS = """
import resource, sys, torch
from vonet.blocks.unet import UNet, UNetConfig
from vonet.performance import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
unet = UNet(UNetConfig(), 16, (64, 64)).to(memory_format=torch.channels_last)
x = torch.rand(11, 16, 64, 64).to(memory_format=torch.channels_last)
with torch.no_grad():
    unet(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        unet(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_kept_memory_is_not_asked_for_again():
    def faults(mode):
        return int(subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, check=True).stdout)

    assert min(faults("keep") for _ in range(2)) < 0.75 * max(faults("plain") for _ in range(2))
