"""The paper's token decoder on close-ups, through a curriculum that ends in the paper's loss alone.

It begins from the weights of `vonet-closeup`, whose object decoder goes on teaching while the dVAE and the transformer
learn. Then the weights of the object decoder's losses fall to zero, and nearly half of the updates have the
paper's loss: −log P(tokens | slots), the dVAE's error, and β KL (docs/log/tokens.md).
"""

from __future__ import annotations

from dataclasses import replace

from vonet.blocks.autoregressive import CausalTransformerConfig
from vonet.blocks.dvae import DVAEConfig
from vonet.experiments.closeup import REPLAY, SLOT_DIM, closeup_model
from vonet.experiments.experiment import Experiment
from vonet.model.decoder import TokenDecoderConfig
from vonet.model.vonet import VONetConfig
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import GroupConfig, OptimizerConfig
from vonet.variants.object_decoder import ObjectDecoderConfig
from vonet.variants.slot_places import ToldPlacesConfig
from vonet.variants.taught_tokens import TaughtTokensConfig

BETA = 1.25
"""The paper's β of 20 weighs Σ_k KL / D against 1,024 tokens. 64 tokens have the same balance with 1.25."""
TAUGHT, ALONE = 2_500, 3_200
"""The updates between which the help of the curriculum falls to zero."""


def vonet_closeup_tokens() -> Experiment[VONetConfig]:
    """On `vonet generate A --camera-distance 0.6 --objects 2 4 --size 32 --train 3000`."""
    return Experiment(
        name="vonet-closeup-tokens",
        summary="VONet with the paper's token decoder on close-ups, taught by an object decoder at first",
        dataset="closeup-a",
        cost="40 minutes on one CPU core, after vonet-closeup",
        measured={"fg_ari": 79.4, "miou": 55.1},
        start="vonet-closeup",
        model=tokens_model(),
        training=tokens_training(),
    )


def tokens_model() -> VONetConfig:
    """`vonet-closeup` with 64 tokens of 256 kinds, and a transformer of four blocks of width 64 (the paper: 1,024
    tokens of 4,096 kinds, eight blocks of width 192).

    The latents contain the places, because the transformer paints few objects without them. Earlier tokens are hidden
    at first, so that it learns to read the slots (docs/log/tokens.md)."""
    closeup = closeup_model()
    assert isinstance(closeup.decoder, ObjectDecoderConfig)
    tokens = TokenDecoderConfig(
        dvae=DVAEConfig(vocabulary=256, width=64, temperature=Schedule(((0, 1.0), (800, 0.1)))),
        transformer=CausalTransformerConfig(width=64, blocks=4),
        memory_hidden=128,
        even_vocabulary=True,
        hidden_tokens=Schedule(((0, 0.5), (TAUGHT, 0.5), (ALONE, 0.0))),
    )
    return replace(
        closeup,
        signature_dim=8,
        places=ToldPlacesConfig(),
        decoder=TaughtTokensConfig(tokens=tokens, objects=closeup.decoder),
    )


def tokens_training() -> TrainingConfig:
    """The object decoder teaches with full weight until `TAUGHT`, then less; from `ALONE` on the loss is the paper's.

    The dVAE learns first: its kinds of tokens are used evenly until update 700, then freely, which makes them certain,
    and from update 2,200 on they hardly change.
    """
    updates = 6_000

    def fading(weight: float) -> Schedule:
        return Schedule(((0, weight), (TAUGHT, weight), (ALONE, 0.0)))

    def rate(top: float) -> Schedule:
        return Schedule(((0, top / 20), (100, top), (updates // 2, top), (updates, top / 25)))

    rates = {
        "encoder": rate(3e-4),
        "decoder": rate(1e-3),
        "objects": rate(1e-3),
        "dvae": Schedule(((0, 1e-3), (1_800, 1e-3), (2_200, 1e-5))),
    }
    return TrainingConfig(
        updates=updates,
        batch=16,
        segment=3,
        weights={
            "tokens": Schedule(((0, 0.0), (1_200, 0.0), (1_500, 1.0))),
            "pixels": constant(1.0),
            "vocabulary": Schedule(((0, 5.0), (700, 5.0), (1_200, 0.0))),
            "reconstruction": fading(1.0),
            "alignment": fading(0.1),
            "spread": fading(1.0),
            "area": fading(3.0),
            "kl": Schedule(((0, 0.2 / SLOT_DIM), (ALONE, BETA / SLOT_DIM))),
        },
        optimizer=OptimizerConfig(groups={name: GroupConfig(learning_rate=r, clip=10.0) for name, r in rates.items()}),
        replay=REPLAY,
    )
