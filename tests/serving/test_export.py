"""What `vonet export` writes computes what the model computes."""

import json
import sys
from dataclasses import replace

import jaxtyping
import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from tests.reduced import reduced_experiment
from vonet import cli, experiments
from vonet.errors import BadInput
from vonet.experiments import weights
from vonet.interface import SlotState
from vonet.model.vonet import VONetConfig
from vonet.serving.export import export


@pytest.fixture(autouse=True)
def _without_checks_of_shapes(monkeypatch):
    """The tests' checks of annotations know numbers, and a graph that is traced has symbols."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def save(folder, name, **model):
    """With few layers of each kind: tracing takes its time for each."""
    experiment = reduced_experiment(experiments.get(name))
    if isinstance(experiment.model, VONetConfig):
        attention, initial = experiment.model.attention, experiment.model.initial_slots
        unet = replace(attention.unet, channels=attention.unet.channels[:3])
        once = replace(attention.transformer, blocks=1)
        model |= {"attention": replace(attention, unet=unet, transformer=once)}
        model |= {"initial_slots": replace(initial, transformer=replace(initial.transformer, blocks=1))}
    experiment = replace(experiment, fit="crop", model=replace(experiment.model, **model))
    made = experiment.build_model(seed=0).eval()
    weights.save(folder, made, experiment)
    return made


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


KINDS = {
    "paper, with maps large enough for torch's norm": ("vonet-movi-a", {"size": (64, 64)}),
    "variants": ("vonet-closeup", {}),
    "masks corrected by colours": ("vonet-closeup-hour", {}),
    "SAVi": ("savi-movi-a", {}),
    "STEVE": ("steve-movi-a", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_finds_the_masks_of_the_model(kind, tmp_path):
    """Over three frames, for other batches and numbers of slots than those that were traced."""
    name, changes = KINDS[kind]
    model = save(tmp_path / "run", name, **changes)
    exported = export(tmp_path / "run", tmp_path / "out")
    assert exported.difference < 1e-4
    initial, step = (session(tmp_path / f"out/{part}.onnx") for part in ("initial", "step"))
    for batch, slots in ((1, 1), (1, 4), (2, 3), (3, 6)):
        noise = torch.randn(batch, slots, model.slot_dim)
        state = model.restart(SlotState(noise, noise), torch.ones(batch, dtype=torch.bool))
        (theirs,) = initial.run(None, {"noise": noise.numpy()})
        for frame in torch.rand(3, batch, 3, *model.size):
            with torch.no_grad():
                output, state = model.step(frame, state)
            masks, theirs = step.run(None, {"frame": frame.numpy(), "slots": theirs})
            np.testing.assert_allclose(masks, output.masks, atol=1e-4)
            np.testing.assert_allclose(theirs, state.slots, atol=1e-4)


def test_torch_finds_the_masks_of_the_model_without_vonet_and_checks_no_values(tmp_path):
    model = save(tmp_path / "run", "vonet-sprites")
    cli.main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--format", "torch"])
    step = torch.export.load(tmp_path / "out/step.pt2").module()
    for batch, slots in ((1, 4), (2, 7)):
        state = model.initial_state(batch, slots)
        frame = torch.rand(batch, 3, *model.size)
        masks, slots_after = step(frame, state.slots)
        with torch.no_grad():
            output, after = model.step(frame, state)
        torch.testing.assert_close(masks, output.masks, atol=1e-4, rtol=0)
        torch.testing.assert_close(slots_after, after.slots, atol=1e-4, rtol=0)
    with pytest.raises(BadInput, match=r"expected \[0, 1\]"):
        model.step(frame + 1, state)
    assert step(frame + 1, state.slots)[0].shape == (2, 7, 32, 32)
    about = json.loads((tmp_path / "out/about.json").read_text())
    assert about["size"] == [32, 32]
    assert about["fit"] == "crop"
    assert about["weights"] == weights.checksum(tmp_path / "run")


def test_parameters_that_the_step_does_not_use_are_not_written(tmp_path):
    experiment = reduced_experiment(experiments.get("steve-movi-a"))
    wide = replace(experiment.model, transformer=replace(experiment.model.transformer, width=256))
    made = replace(experiment, model=wide)
    weights.save(tmp_path / "run", made.build_model(seed=0), made)
    export(tmp_path / "run", tmp_path / "out", "torch")
    whole = (tmp_path / "run/model.safetensors").stat().st_size
    assert (tmp_path / "out/step.pt2").stat().st_size < whole / 2


def test_what_cannot_be_exported_gets_a_sentence(tmp_path, monkeypatch):
    for name in ("mixture", "monet-laptop-a", "simone-laptop-a"):
        method = name
        if name != "mixture":
            save(tmp_path / name, name)
            method = tmp_path / name
        with pytest.raises(BadInput, match=r"^\w+ cannot be exported: use a model that works frame by frame"):
            export(method, tmp_path / "out")
    save(tmp_path / "run", "vonet-sprites")
    with pytest.raises(BadInput, match="format is 'tflite'; expected one of 'onnx', 'torch'"):
        export(tmp_path / "run", tmp_path / "out", "tflite")
    with pytest.raises(BadInput, match="run exists already: choose another folder, or remove it"):
        export(tmp_path / "run", tmp_path / "run")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(BadInput, match=r"--format onnx needs onnx and onnxscript\. Install with: pip install"):
        export(tmp_path / "run", tmp_path / "out")
    left = ["monet-laptop-a", "run", "simone-laptop-a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left  # nothing half-written


class Counting(nn.Module):
    """A user's model whose step looks at a value, so that it cannot be traced."""

    size, slots = (8, 8), 2

    def initial_state(self, batch, slots=None, generator=None):
        noise = torch.zeros(batch, slots or self.slots, 3)
        return SlotState(noise, noise)

    def restart(self, state, is_first):
        return state

    def step(self, frame, state):
        raise RuntimeError("a value was looked at\nand much more")


def test_a_model_that_cannot_be_traced_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "load", lambda path: (Counting(), experiments.get("mixture")))
    for format in ("torch", "onnx"):
        with pytest.raises(BadInput, match=r"^Counting cannot be exported: a value was looked at$"):
            export("mixture", tmp_path / "out", format)
    assert list(tmp_path.iterdir()) == []
