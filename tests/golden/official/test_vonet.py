"""One training step of VONet, by its authors' code and by ours."""

from types import MethodType

import torch
from torch import Tensor, nn

from tests.golden.official.comparison import Official, point, rows, token_block
from tests.plain import PlainVONet
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.transformer import SlotTransformerConfig
from vonet.blocks.unet import UNetConfig
from vonet.interface import Clip, SlotState
from vonet.model.attention import UNetAttentionConfig
from vonet.model.backbone import BackboneConfig
from vonet.model.decoder import TokenDecoderConfig
from vonet.model.sequential_vae import PriorConfig, SequentialVAEConfig
from vonet.model.slots import InitialSlotsConfig
from vonet.model.vonet import VONet, VONetConfig

K, D, SIDE, BATCH, TIME = 3, 8, 32, 2, 2
ONE_BLOCK = SlotTransformerConfig(blocks=1, heads=2)
CONFIG = VONetConfig(
    size=(SIDE, SIDE),
    slots=K,
    slot_dim=D,
    backbone=BackboneConfig(channels=(8, 8), strides=(2, 1), feature_dim=8),
    attention=UNetAttentionConfig(unet=UNetConfig(channels=(4, 6, 8), bottleneck=(10, 10)), transformer=ONE_BLOCK),
    initial_slots=InitialSlotsConfig(transformer=ONE_BLOCK),
    sequential_vae=SequentialVAEConfig(prior=PriorConfig(transformer=ONE_BLOCK)),
    decoder=TokenDecoderConfig(
        dvae=DVAEConfig(vocabulary=20),
        transformer=CausalTransformerConfig(width=12, blocks=2, heads=2),
        memory_hidden=16,
    ),
)


def build() -> VONet:
    """The model with batch norm in its backbone, where the authors have it and we have group norm."""
    model = VONet(CONFIG)
    for block in model.backbone.blocks:
        block.norm1, block.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        if isinstance(block.shortcut, nn.Sequential):
            block.shortcut[1] = nn.BatchNorm2d(8)
    model.double().eval()  # means instead of draws, no dropout
    model.backbone.train()
    # Batch norm depends on what is normalised together: frames one by one, as the authors do.
    model.unroll = MethodType(PlainVONet.unroll, model)
    return model


def our_parameters(theirs: Official) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}

    def both(name: str, official: str, sign: str = "") -> None:
        ours[f"{name}.weight"] = theirs[f"{official}.{sign}weight"]
        ours[f"{name}.bias"] = theirs[f"{official}.{sign}bias"]

    def mlp(name: str, official: str) -> None:
        both(f"{name}.0", f"{official}.0", "_")
        both(f"{name}.2", f"{official}.1", "_")

    def slot_transformer(name: str, official: str) -> None:
        both(f"{name}.attention_norm", f"{official}._norm1")
        ours[f"{name}.query.weight"] = theirs[f"{official}._q_proj"].T
        ours[f"{name}.query.bias"] = theirs[f"{official}._qk_bias"].flatten()
        ours[f"{name}.key_value.weight"] = rows(theirs[f"{official}._k_proj"].T, theirs[f"{official}._v_proj"].T)
        ours[f"{name}.output.weight"] = theirs[f"{official}._o_proj"].T
        both(f"{name}.mlp_norm", f"{official}._norm2")
        mlp(f"{name}.mlp", f"{official}._mlp")

    def pointwise(name: str, official: str) -> None:
        ours[f"{name}.weight"] = point(theirs[f"{official}._conv2d.weight"])
        ours[f"{name}.bias"] = theirs[f"{official}._conv2d.bias"]

    # Backbone.
    for i in range(2):
        block, official = f"backbone.blocks.{i}", f"_encoder._nets.0._nets.{i}"
        ours[f"{block}.conv1.weight"] = theirs[f"{official}._core_layers.0.weight"]
        both(f"{block}.norm1", f"{official}._core_layers.1")
        ours[f"{block}.conv2.weight"] = theirs[f"{official}._core_layers.3.weight"]
        both(f"{block}.norm2", f"{official}._core_layers.4")
    ours["backbone.blocks.0.shortcut.0.weight"] = theirs["_encoder._nets.0._nets.0._shortcut_layers.0.weight"]
    both("backbone.blocks.0.shortcut.1", "_encoder._nets.0._nets.0._shortcut_layers.1")
    both("backbone.features", "_encoder._nets.0._nets.2._conv2d")
    pointwise("backbone.position.0", "_encoder._nets.1._proj.0")
    pointwise("backbone.position.2", "_encoder._nets.1._proj.1")

    # Attention. The authors add features, conv(mask, log-mask) and conv(context map), then convolve. With kernels of
    # one tap that is a convolution of the concatenation.
    pointwise("attention.estimate.key", "_img_key_proj")
    unet, official = "attention.unet", "_attention_net"
    first = theirs[f"{official}._downsampling_path.0.0._conv2d.weight"]
    prepared = [theirs[f"_attention_preproc_net._nets.0._nets.{i}._module._conv2d.weight"][:, :, 1, 1] for i in (1, 2)]
    ours[f"{unet}.first.weight"] = torch.cat(
        [first, *(torch.einsum("ocyx,ci->oiyx", first, kernel) for kernel in prepared)], dim=1
    )
    both(f"{unet}.first_norm", f"{official}._downsampling_path.0.1")
    for i in range(2):
        ours[f"{unet}.down.{i}.weight"] = theirs[f"{official}._downsampling_path.{i + 1}.0._conv2d.weight"]
        both(f"{unet}.down_norms.{i}", f"{official}._downsampling_path.{i + 1}.1")
    for i in range(3):
        ours[f"{unet}.up.{i}.weight"] = theirs[f"{official}._upsampling_path.{i}.0._conv2d.weight"]
        both(f"{unet}.up_norms.{i}", f"{official}._upsampling_path.{i}.1")
    both(f"{unet}.mlp.0", f"{official}._nonskip_mlp._nets.0", "_")
    both(f"{unet}.mlp.2", f"{official}._nonskip_mlp._nets.1", "_")
    both(f"{unet}.expand", f"{official}._reshape.0", "_")
    both(f"{unet}.logits", f"{official}._upsampling_path.2.3._conv2d")
    slot_transformer("attention.transformer.0", "_mask_encoding_transformer.0")

    # Slots.
    slot_transformer("initial_slots.transformer.0", "_init_slots_transformer.0")
    mlp("context.mlp", "_context_layer")
    pointwise("slot_encoder.value", "_img_val_proj")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        ours[f"trajectory.gru.{name}"] = theirs[f"_slot_gru_layer.{name}"]
    mlp("trajectory.mlp", "_slot_mlp")
    both("trajectory.norm", "_slot_ln")

    # Sequential VAE.
    mlp("sequential_vae.posterior.mlp", "_slot_vae._slot_posterior")
    both("sequential_vae.prior.entry", "_slot_vae._predictor.0", "_")
    slot_transformer("sequential_vae.prior.transformer.0", "_slot_vae._predictor.1.0")
    both("sequential_vae.prior.head.mlp.0", "_slot_vae._predictor.2", "_")
    both("sequential_vae.prior.head.mlp.2", "_slot_vae._predictor.3", "_")

    # Decoder.
    for i in range(6):
        pointwise(f"decoder.dvae.fine.{2 * i}", f"_decoder._patch_encoder._nets.0._nets.{i}")
    pointwise("decoder.dvae.to_logits", "_decoder._patch_encoder._nets.1")
    pointwise("decoder.dvae.from_tokens", "_decoder._patch_decoder.0")
    for i, j in zip((0, 2, 4, 6, 9, 11, 13, 15, 18), (1, 2, 3, 4, 6, 7, 8, 9, 11), strict=True):
        both(f"decoder.dvae.decoder.{i}", f"_decoder._patch_decoder.{j}._conv2d")
    mlp("decoder.memory", "_decoder._slots_d_model_layer")
    ours["decoder.embedding.weight"] = theirs["_decoder._token_embedding.weight"]
    ours["decoder.begin"] = theirs["_decoder._bos"]
    ours["decoder.positions"] = theirs["_decoder._token_pos_embedding._pos_embedding"]
    both("decoder.input_norm", "_decoder._token_pos_embedding._ln")
    for i in range(2):
        token_block(ours, theirs, f"decoder.transformer.blocks.{i}", f"_decoder._trans_dec.blocks.{i}")
    both("decoder.transformer.norm", "_decoder._trans_dec.layer_norm")
    both("decoder.output_norm", "_decoder._logits_layer.0")
    ours["decoder.head.weight"] = theirs["_decoder._logits_layer.1._weight"]
    return ours


def test_a_training_step_of_vonet():
    theirs = Official("vonet")
    model = build()
    begins = torch.zeros(BATCH, TIME, dtype=torch.bool)
    begins[:, 0] = True  # fresh slots are grown from the noise
    clip = Clip(theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE), begins)
    noise = theirs.tensor("noise", "noise", BATCH, K, D)
    state = SlotState(slots=torch.zeros_like(noise), noise=noise)
    output = theirs.run(model, our_parameters(theirs), clip, state)
    theirs.check(mask=output.log_masks, slots=output.slots, **output.losses)
    losses = output.losses
    loss = (losses["pixels"] + losses["tokens"] + 20 / D * losses["kl"]).mean()
    theirs.check(loss=loss)
    theirs.check_gradients(loss)


def test_the_estimated_masks_of_vonet():
    """What the ablation without a U-Net takes as its masks, in the first frame."""
    theirs = Official("vonet")
    ours = our_parameters(theirs)
    model = build()
    model.load_state_dict(ours, strict=False)
    with torch.no_grad():
        frame = theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE)[:, 0]
        slots = model.initial_slots(theirs.tensor("noise", "noise", BATCH, K, D))
        estimated = model.attention.estimate(model.backbone(frame), model.context(slots))
    theirs.check(estimate=estimated)
