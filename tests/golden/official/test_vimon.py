"""The losses, masks and gradients of ViMON, by its authors' code and by ours, and the authors' released weights."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.golden.official import filling
from tests.golden.official.comparison import Official
from vonet.baselines import vimon
from vonet.baselines.vimon import ViMON, ViMONConfig
from vonet.blocks.unet import UNetConfig
from vonet.interface import Clip

TIME, SIDE, LEVELS = 4, 64, 5
CONFIG = ViMONConfig(
    size=(SIDE, SIDE),
    slots=3,
    latent_dim=8,
    unet=UNetConfig(channels=(32,) * LEVELS, bottleneck=(128, 128)),
)
RELEASED = os.environ.get("VIMON_RELEASED_WEIGHTS", "")


def our_parameters(theirs: Official | dict[str, Tensor]) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}

    def both(name: str, official: str) -> None:
        ours[f"{name}.weight"], ours[f"{name}.bias"] = theirs[f"{official}.weight"], theirs[f"{official}.bias"]

    attention = "attn_module"
    ours["unet.first.weight"] = theirs[f"{attention}.encoder.blocks.0.conv.weight"]
    for i in range(1, LEVELS):
        ours[f"unet.down.{i - 1}.weight"] = theirs[f"{attention}.encoder.blocks.{i}.conv.weight"]
    for i in range(LEVELS):
        ours[f"unet.up.{i}.weight"] = theirs[f"{attention}.decoder.blocks.{i}.conv.weight"]
    ours["unet.logits.weight"] = theirs[f"{attention}.decoder.conv.weight"]
    both("unet.mlp.0", f"{attention}.mlp.1")
    both("unet.mlp.2", f"{attention}.mlp.3")
    both("unet.expand", f"{attention}.mlp.5")
    for i in (0, 2, 4, 6, 9, 11):
        both(f"encoder.{i}", f"vae_encoder.f.{i}")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        ours[f"gru.{name}"] = theirs[f"gru.{name}_l0"]
    both("posterior", "mlp")
    both("transition", "linear")
    for i in range(4):
        both(f"decoder.layers.{i}", f"vae_decoder.g.{2 * i}")
    both("decoder.output", "vae_decoder.g.8")
    return ours


def test_a_training_step_of_vimon():
    theirs = Official("vimon")
    weights = {"reconstruction": 1, "prediction": 1, "masks": 2, "next_masks": 2, "kl": 1}
    frames = 0.3 + 0.4 * theirs.tensor("frames", "frames", 1, TIME, 3, SIDE, SIDE)
    model = ViMON(CONFIG).double().eval()  # means instead of draws
    output = theirs.run(model, our_parameters(theirs), Clip(frames))
    losses = {name: loss.mean() for name, loss in output.losses.items()}
    loss = sum(weights[name] * value for name, value in losses.items())
    theirs.check(painted=output.log_masks.exp(), **losses, loss=loss)
    theirs.check_gradients(loss)


@torch.no_grad()
def test_the_masks_of_vimon():
    """What the attention finds, what the decoder makes of it, and what it forecasts for the next frame."""
    theirs = Official("vimon")
    frames = 0.3 + 0.4 * theirs.tensor("frames", "frames", 1, TIME, 3, SIDE, SIDE)
    model = ViMON(CONFIG).double().eval()
    model.load_state_dict(our_parameters(theirs))
    outputs, state = [], model.initial_state(1)
    for frame in frames[:, :-1].unbind(1):
        output, state = model.step(frame, state)
        outputs.append((output.attention, output.painted, state.forecast))
    attention, painted, forecast = (torch.stack(masks, dim=1).exp() for masks in zip(*outputs, strict=True))
    theirs.check(attention=attention, painted=painted, next_painted=forecast)


@pytest.mark.skipif(not Path(RELEASED).is_file(), reason="VIMON_RELEASED_WEIGHTS names no file")
@torch.no_grad()
def test_the_released_weights_of_vimon(monkeypatch):
    """The authors' weights for VMDS find three squares that move. Get them from the repository that vimon_released.json
    names, ocrb/vimon/ckpts/pretrained/ckpt_vimon_vmds.pt, and set VIMON_RELEASED_WEIGHTS to the file."""
    monkeypatch.setattr(vimon, "SMALLEST_LOG", -torch.inf)  # late slots have logarithms far below our floor
    fixture = filling.read("vimon_released")
    model = ViMON(replace(CONFIG, slots=6, latent_dim=16)).double().eval()
    weights = torch.load(RELEASED, map_location="cpu", weights_only=True)
    model.load_state_dict(our_parameters({name: x.double() for name, x in weights.items()}))
    theirs = Official("vimon_released")
    outputs, state = [], model.initial_state(1)
    for frame in torch.from_numpy(filling.squares(3)).unbind(1):
        output, state = model.step(frame, state)
        outputs.append((output.attention, output.painted))
    attention, painted = (torch.stack(masks, dim=1).exp() for masks in zip(*outputs, strict=True))
    theirs.check(attention=attention, painted=painted)
    sizes = torch.bincount(painted.argmax(dim=2).flatten(), minlength=6)
    assert sizes.tolist() == fixture["numbers"]["pixels_of_slots"]
