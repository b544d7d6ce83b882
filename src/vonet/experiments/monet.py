"""MONet as the VONet paper ran it, and on a laptop. docs/deviations.md says which settings are the paper's."""

from __future__ import annotations

from vonet.baselines.monet import MONetConfig
from vonet.blocks.component import ComponentDecoderConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import NOT_RUN, SMALL_WORLDS, laptop_rate, movi_slots, one_group
from vonet.experiments.vonet import SIX_LEVELS
from vonet.schedule import constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import OptimizerConfig


def monet_movi(level: str) -> Experiment[MONetConfig]:
    """MONet on single frames of MOVi (paper, "Single-frame", which has levels C to E): β = 1, γ = 2, VONet's U-Net."""
    scores = paper_scores.of_single_frames("MONet", level)
    return Experiment(
        name=f"monet-movi-{level}",
        summary=f"MONet on single frames of MOVi-{level.upper()}, {'as in' if scores else 'set as in'} the paper",
        dataset=f"movi-{level}",
        model=MONetConfig(slots=movi_slots(level), unet=UNetConfig(channels=SIX_LEVELS)),
        training=TrainingConfig(
            updates=150_000,
            batch=32,
            segment=1,
            weights={"reconstruction": constant(1.0), "kl": constant(1.0), "masks": constant(2.0)},
            optimizer=OptimizerConfig(groups=one_group(constant(1e-4), clip=10.0)),
            replay=None,
        ),
        cost=NOT_RUN,
        paper=scores,
    )


def monet_laptop_a() -> Experiment[MONetConfig]:
    """MONet on `vonet generate A --objects 3 6`: half a second per update on one core. A small σ makes the model use
    more slots, a small γ lets the masks differ from the decoder's, and with little initial noise the decoder uses the
    latents from the start (docs/log/methods.md)."""
    updates = 3_800
    return Experiment(
        name="monet-laptop-a",
        summary="MONet on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="31 minutes on one CPU core",
        model=MONetConfig(
            size=(64, 64),
            slots=7,
            latent_dim=16,
            unet=UNetConfig(channels=(16, 32, 32, 64, 64), bottleneck=(128, 128)),
            decoder=ComponentDecoderConfig(reduction=2),
            sigma_first=0.05,
            sigma=0.06,
            initial_log_std=-2.0,
        ),
        training=TrainingConfig(
            updates=updates,
            batch=4,
            segment=1,
            weights={"reconstruction": constant(1.0), "kl": constant(0.5), "masks": constant(0.05)},
            optimizer=OptimizerConfig(groups=one_group(laptop_rate(5e-4, updates), clip=10.0)),
            replay=None,
        ),
    )


def monet_small(world: str) -> Experiment[MONetConfig]:
    """MONet on single frames of 32x32 pixels: β and γ are MONet's own, latents begin with little noise. On rendered
    videos σ is smaller, so that the model uses more slots."""
    where, updates = SMALL_WORLDS[world], {"spmot": 12_000, "closeup": 9_500}[world]
    sigmas = {"spmot": (0.09, 0.11), "closeup": (0.05, 0.06)}[world]
    return Experiment(
        name=f"monet-{world}",
        summary=f"MONet on {where.title} at 32 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=MONetConfig(
            size=(32, 32),
            slots=where.slots,
            latent_dim=16,
            unet=UNetConfig(channels=(16, 32, 32, 64), bottleneck=(128, 128)),
            sigma_first=sigmas[0],
            sigma=sigmas[1],
            initial_log_std=-2.0,
        ),
        training=TrainingConfig(
            updates=updates,
            batch=32,
            segment=1,
            weights={"reconstruction": constant(1.0), "kl": constant(0.5), "masks": constant(0.5)},
            optimizer=OptimizerConfig(groups=one_group(laptop_rate(5e-4, updates), clip=10.0)),
            replay=None,
        ),
    )
