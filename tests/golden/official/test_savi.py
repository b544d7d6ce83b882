"""The loss, masks, slots and gradients of SAVi, by its authors' code and by ours.

Ours differs from theirs by its padding, by the ε of its norms and by how a division by zero is prevented. Here the ε is
theirs and nothing is added to the attention. Flax pads a transposed convolution of stride two on the other side than
torch, so our model gets frames and kernels that are mirrored in both directions, and its masks are mirrored back.
"""

import pytest
import torch
from torch import Tensor, nn

from tests.golden.official.comparison import Official, rows
from vonet.baselines.savi import SAVi, SAViConfig
from vonet.blocks import slot_attention
from vonet.blocks.broadcast import SpatialBroadcastConfig
from vonet.blocks.frame_vectors import ResNetConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.interface import Clip, SlotState

BATCH, TIME, SIDE, K, D = 2, 2, 16, 3, 8
CONFIG = SAViConfig(
    size=(SIDE, SIDE),
    slots=K,
    slot_dim=D,
    backbone=ResNetConfig(channels=(64, 128), strides=(1, 1), groups=32),
    vector_hidden=10,
    attention=SlotAttentionConfig(iterations=2),
    predictor_heads=2,
    predictor_hidden=12,
    decoder=SpatialBroadcastConfig(grid=4, channels=(12, 12), kernel=5),
)


def mirrored(x: Tensor) -> Tensor:
    """Upside down and left to right; the last two dimensions are space."""
    return x.flip(-2, -1)


def our_parameters(theirs: Official) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}

    def kernel(official: str) -> Tensor:
        """Theirs is `k k inputs outputs`."""
        return theirs[f"{official}/kernel"].permute(3, 2, 0, 1)

    def norm(name: str, official: str) -> None:
        ours[f"{name}.weight"], ours[f"{name}.bias"] = theirs[f"{official}/scale"], theirs[f"{official}/bias"]

    def dense(name: str, official: str, sign: int = 1) -> None:
        ours[f"{name}.weight"], ours[f"{name}.bias"] = sign * theirs[f"{official}/kernel"].T, theirs[f"{official}/bias"]

    # Encoder. In a mirrored picture coordinates have the other sign.
    backbone, resnet = "vectors.backbone", "FrameEncoder_0/ResNet_0"
    ours[f"{backbone}.0.weight"] = mirrored(kernel(f"{resnet}/init_conv"))
    norm(f"{backbone}.1", f"{resnet}/init_bn")
    for i in (1, 2):
        block, official = f"{backbone}.{i + 1}", f"{resnet}/stage{i}/block1"
        for j in (1, 2):
            ours[f"{block}.conv{j}.weight"] = mirrored(kernel(f"{official}/conv{j}"))
            norm(f"{block}.norm{j}", f"{official}/bn{j}")
    ours[f"{backbone}.3.shortcut.0.weight"] = kernel(f"{resnet}/stage2/block1/proj_conv")
    norm(f"{backbone}.3.shortcut.1", f"{resnet}/stage2/block1/proj_bn")
    position = "FrameEncoder_0/PositionEmbedding_0"
    dense("vectors.place", f"{position}/dense_pe_0", sign=-1)
    norm("vectors.norm", f"{position}/MLP_0/LayerNorm_0")
    dense("vectors.mlp.0", f"{position}/MLP_0/dense_mlp_0")
    dense("vectors.mlp.2", f"{position}/MLP_0/dense_mlp_1")

    # Corrector. Flax's GRU has one bias for each gate.
    attention, cell = "SlotAttention_0", "SlotAttention_0/GRU_0/GRUCell_0/cell"
    norm("attention.slot_norm", f"{attention}/LayerNorm_0")
    norm("attention.vector_norm", f"{attention}/LayerNorm_1")
    for name in ("query", "key", "value"):
        ours[f"attention.{name}.weight"] = theirs[f"{attention}/general_dense_{name[0]}_0/kernel"].squeeze(1).T
    ours["attention.gru.weight_ih"] = rows(*(theirs[f"{cell}/i{gate}/kernel"].T for gate in "rzn"))
    ours["attention.gru.weight_hh"] = rows(*(theirs[f"{cell}/h{gate}/kernel"].T for gate in "rzn"))
    ours["attention.gru.bias_ih"] = rows(*(theirs[f"{cell}/i{gate}/bias"] for gate in "rzn"))
    ours["attention.gru.bias_hh"] = torch.cat([torch.zeros(2 * D), theirs[f"{cell}/hn/bias"]])

    # Predictor.
    block, heads = "TransformerBlock_0", "TransformerBlock_0/MultiHeadDotProductAttention_0"
    projections = [f"{heads}/{name}" for name in ("query", "key", "value")]
    ours["predictor.self_attn.in_proj_weight"] = rows(*(theirs[f"{p}/kernel"].flatten(1).T for p in projections))
    ours["predictor.self_attn.in_proj_bias"] = rows(*(theirs[f"{p}/bias"].flatten() for p in projections))
    ours["predictor.self_attn.out_proj.weight"] = theirs[f"{heads}/out/kernel"].flatten(0, 1).T
    ours["predictor.self_attn.out_proj.bias"] = theirs[f"{heads}/out/bias"]
    norm("predictor.norm1", f"{block}/LayerNorm_0")
    norm("predictor.norm2", f"{block}/LayerNorm_1")
    dense("predictor.linear1", f"{block}/MLP_0/dense_mlp_0")
    dense("predictor.linear2", f"{block}/MLP_0/dense_mlp_1")

    # Decoder. A transposed convolution mirrors its kernel in torch and not in Flax, so theirs is mirrored already.
    decoder = "SpatialBroadcastDecoder_0"
    dense("decoder.position", f"{decoder}/PositionEmbedding_0/dense_pe_0", sign=-1)
    for i in range(2):
        ours[f"decoder.layers.{i}.weight"] = kernel(f"{decoder}/CNN_0/conv_{i}")
        ours[f"decoder.layers.{i}.bias"] = theirs[f"{decoder}/CNN_0/conv_{i}/bias"]
    readouts = [f"{decoder}/Readout_0/Dense_0/Dense_0", f"{decoder}/alpha_logits"]
    ours["decoder.output.weight"] = rows(*(theirs[f"{r}/kernel"].T for r in readouts))[..., None, None]
    ours["decoder.output.bias"] = rows(*(theirs[f"{r}/bias"] for r in readouts))
    return ours


def test_a_training_step_of_savi(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slot_attention, "TINY", 0.0)
    theirs = Official("savi", outputs_last=True)
    model = SAVi(CONFIG).double()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm):
            module.eps = 1e-6
    noise = theirs.tensor("noise", "noise", BATCH, K, D)
    clip = Clip(mirrored(theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE)))
    output = theirs.run(model, our_parameters(theirs), clip, SlotState(slots=noise, noise=noise))
    predicted = torch.cat([output.previous_slots[:, 1:], output.state.slots[:, None]], dim=1)
    loss = output.losses["reconstruction"].sum(dim=1).mean()
    theirs.check(alphas=mirrored(output.log_masks.exp()), slots=output.slots, predicted=predicted, loss=loss)
    theirs.check_gradients(loss)
