"""The attention of MONet, by the library of VONet's authors and by ours."""

import torch
from torch import Tensor, nn

from tests.golden.official import filling
from tests.golden.official.comparison import Official
from vonet.baselines.monet import MONet, MONetConfig
from vonet.blocks.unet import UNetConfig

K, SIDE, BATCH = 4, 32, 2
CONFIG = MONetConfig(
    size=(SIDE, SIDE), slots=K, latent_dim=6, unet=UNetConfig(channels=(4, 6, 8, 8), bottleneck=(10, 10))
)


class Attention(nn.Module):
    """The part of our model that is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.model = MONet(CONFIG)
        del self.model.encoder, self.model.decoder

    def forward(self, frames: Tensor) -> Tensor:
        return self.model.attend(frames, K)


def our_parameters(theirs: Official) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}
    unet = "model.unet"

    def both(name: str, official: str, sign: str = "") -> None:
        for part in ("weight", "bias"):
            ours[f"{unet}.{name}.{part}"] = theirs[f"{official}.{sign}{part}"]

    ours[f"{unet}.first.weight"] = theirs["_downsampling_path.0.0._conv2d.weight"]
    both("first_norm", "_downsampling_path.0.1")
    for i in range(3):
        ours[f"{unet}.down.{i}.weight"] = theirs[f"_downsampling_path.{i + 1}.0._conv2d.weight"]
        both(f"down_norms.{i}", f"_downsampling_path.{i + 1}.1")
    both("mlp.0", "_nonskip_mlp._nets.0", "_")
    both("mlp.2", "_nonskip_mlp._nets.1", "_")
    both("expand", "_reshape.0", "_")
    for i in range(4):
        ours[f"{unet}.up.{i}.weight"] = theirs[f"_upsampling_path.{i}.0._conv2d.weight"]
        both(f"up_norms.{i}", f"_upsampling_path.{i}.1")
    # The authors' two channels and a log-softmax are our one channel and a log-sigmoid.
    for part in ("weight", "bias"):
        taken, left = theirs[f"_upsampling_path.3.3._conv2d.{part}"].split(1)
        ours[f"{unet}.logits.{part}"] = taken - left
    return ours


def test_the_attention_of_monet():
    theirs = Official("monet")
    frames = theirs.tensor("frames", "frames", BATCH, 3, SIDE, SIDE)
    log_masks = theirs.run(Attention().double().eval(), our_parameters(theirs), frames)
    loss = (log_masks * torch.from_numpy(filling.uniform("direction", (BATCH, K, SIDE, SIDE)))).sum()
    theirs.check(masks=log_masks.exp(), log_masks=log_masks, loss=loss)
    theirs.check_gradients(loss)
