"""The losses, masks and gradients of STEVE, by its authors' code and by ours."""

import torch
from torch import Tensor

from tests.golden.official.comparison import Official, point, rows, token_block
from vonet.baselines.steve import STEVE, STEVEConfig
from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.blocks.frame_vectors import ConvStackConfig
from vonet.blocks.slot_attention import SlotAttentionConfig
from vonet.interface import Clip, SlotState
from vonet.schedule import Schedule

K, D, SIDE, BATCH, TIME = 3, 8, 32, 2, 2
CONFIG = STEVEConfig(
    size=(SIDE, SIDE),
    slots=K,
    slot_dim=D,
    backbone=ConvStackConfig(channels=(6, 6, 6, 12)),
    attention=SlotAttentionConfig(iterations=2, hidden=10),
    predictor_heads=2,
    dvae=DVAEConfig(vocabulary=20, fine_layers=7, temperature=Schedule(((0, 1.0), (30_000, 0.1)), curve="cosine")),
    transformer=CausalTransformerConfig(width=12, blocks=2, heads=2),
)
UPDATE = 15_000
"""Where the authors' schedule has a temperature of 0.55."""


def our_parameters(theirs: Official) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}

    def both(name: str, official: str) -> None:
        ours[f"{name}.weight"], ours[f"{name}.bias"] = theirs[f"{official}.weight"], theirs[f"{official}.bias"]

    def pointwise(name: str, official: str) -> None:
        ours[f"{name}.weight"], ours[f"{name}.bias"] = point(theirs[f"{official}.weight"]), theirs[f"{official}.bias"]

    # Frames to vectors.
    encoder = "steve_encoder"
    for i in range(3):
        both(f"vectors.backbone.{i}", f"{encoder}.cnn.{i}.m")
    both("vectors.backbone.3", f"{encoder}.cnn.3")
    pointwise("vectors.place", f"{encoder}.pos.projection")
    both("vectors.norm", f"{encoder}.layer_norm")
    both("vectors.mlp.0", f"{encoder}.mlp.0")
    both("vectors.mlp.2", f"{encoder}.mlp.2")

    # Slot attention.
    savi = f"{encoder}.savi"
    ours["mean"], ours["log_std"] = theirs[f"{savi}.slot_mu"], theirs[f"{savi}.slot_log_sigma"]
    both("attention.vector_norm", f"{savi}.norm_inputs")
    both("attention.slot_norm", f"{savi}.norm_slots")
    for name in ("query", "key", "value"):
        ours[f"attention.{name}.weight"] = theirs[f"{savi}.project_{name[0]}.weight"]
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        ours[f"attention.gru.{name}"] = theirs[f"{savi}.gru.{name}"]
    both("attention.between.0", f"{savi}.norm_mlp")
    both("attention.between.1.0", f"{savi}.mlp.0")
    both("attention.between.1.2", f"{savi}.mlp.2")

    # Predictor.
    block = f"{savi}.predictor.blocks.0"
    both("predictor.attention_norm", f"{block}.attn_layer_norm")
    ours["predictor.attention.in_proj_weight"] = rows(*(theirs[f"{block}.attn.proj_{x}.weight"] for x in "qkv"))
    ours["predictor.attention.out_proj.weight"] = theirs[f"{block}.attn.proj_o.weight"]
    both("predictor.mlp_norm", f"{block}.ffn_layer_norm")
    both("predictor.mlp.0", f"{block}.ffn.0")
    both("predictor.mlp.2", f"{block}.ffn.2")
    both("predictor.norm", f"{savi}.predictor.layer_norm")

    # Discrete VAE.
    for i in range(7):
        pointwise(f"decoder.dvae.fine.{2 * i}", f"dvae.encoder.{i}.m")
    pointwise("decoder.dvae.to_logits", "dvae.encoder.7")
    pointwise("decoder.dvae.from_tokens", "dvae.decoder.0.m")
    for i, j in zip((0, 2, 4, 6, 9, 11, 13, 15), (1, 2, 3, 4, 6, 7, 8, 9), strict=True):
        both(f"decoder.dvae.decoder.{i}", f"dvae.decoder.{j}.m")
    both("decoder.dvae.decoder.18", "dvae.decoder.11")

    # Token transformer. The authors' table of positions has a row for what follows the last token, never read.
    decoder = "steve_decoder"
    ours["decoder.memory.weight"] = theirs[f"{encoder}.slot_proj.weight"]
    ours["decoder.embedding.weight"] = theirs[f"{decoder}.dict.dictionary.weight"]
    ours["decoder.begin"] = theirs[f"{decoder}.bos"]
    ours["decoder.positions"] = theirs[f"{decoder}.pos.pe"][:, :-1]
    for i in range(2):
        token_block(ours, theirs, f"decoder.transformer.blocks.{i}", f"{decoder}.tf.blocks.{i}")
    both("decoder.transformer.norm", f"{decoder}.tf.layer_norm")
    ours["decoder.head.weight"] = theirs[f"{decoder}.head.weight"]
    return ours


def inputs(theirs: Official) -> tuple[Clip, SlotState]:
    begins = torch.zeros(BATCH, TIME, dtype=torch.bool)
    begins[:, 0] = True
    noise = theirs.tensor("noise", "noise", BATCH, K, D)
    clip = Clip(theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE), begins)
    return clip, SlotState(slots=torch.zeros_like(noise), noise=noise)


def test_a_training_step_of_steve():
    theirs = Official("steve")
    model = STEVE(CONFIG).double().eval()  # no noise on the tokens and no dropout
    output = theirs.run(model, our_parameters(theirs), *inputs(theirs), UPDATE)
    losses = {name: loss.mean() for name, loss in output.losses.items()}
    theirs.check(masks=output.log_masks.exp(), slots=output.slots, **losses, loss=sum(losses.values()))
    theirs.check_gradients(sum(losses.values()))


def test_steve_s_picture_of_its_slots():
    """Token after token: by the authors from the beginning for each, by us with keys and values that are kept."""
    theirs = Official("steve")
    model = STEVE(CONFIG).double().eval()
    model.load_state_dict(our_parameters(theirs))
    with torch.no_grad():
        slots = model.unroll(*inputs(theirs)).slots[:1, 0]
        theirs.check(generated=model.decoder.picture(slots))
