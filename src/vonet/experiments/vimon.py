"""ViMON as the VONet paper ran it, and on a laptop. docs/deviations.md says which settings are the paper's."""

from __future__ import annotations

from vonet.baselines.vimon import ViMONConfig
from vonet.blocks.component import ComponentDecoderConfig
from vonet.blocks.unet import UNetConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import NOT_RUN, SMALL_WORLDS, laptop_rate, movi_slots, one_group
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import OptimizerConfig


def _weights(beta: float, gamma: Schedule) -> dict[str, Schedule]:
    """Weights of the losses: β of the KL divergence, γ of the masks."""
    return {
        "reconstruction": constant(1.0),
        "prediction": constant(1.0),
        "kl": constant(beta),
        "masks": gamma,
        "next_masks": gamma,
    }


def vimon_movi(level: str) -> Experiment[ViMONConfig]:
    """ViMON on MOVi: latents of width 64, segments of six frames and the attention's masks as in VONet's paper,
    everything else as in the code of ViMON's authors."""
    return Experiment(
        name=f"vimon-movi-{level}",
        summary=f"ViMON on MOVi-{level.upper()}, as in the paper",
        dataset=f"movi-{level}",
        model=ViMONConfig(slots=movi_slots(level), segments="found"),
        training=TrainingConfig(
            updates=150_000,
            batch=16,
            segment=6,
            weights=_weights(beta=1.0, gamma=constant(2.0)),
            optimizer=OptimizerConfig(groups=one_group(constant(1e-4), clip=10.0), eps=1e-8),
            replay=None,
        ),
        cost=NOT_RUN,
        paper=paper_scores.of_videos("ViMON", level),
    )


def vimon_laptop_a() -> Experiment[ViMONConfig]:
    """ViMON on `vonet generate A --objects 3 6`: two thirds of a second per update on one core. Training starts as
    MONet, with little noise in the latents and small σ, because the decoder's masks are uniform at first and would stay
    so. γ grows later. The decoder's masks still do not learn, so the attention's masks are scored
    (docs/log/methods.md)."""
    updates = 2_200
    gamma = Schedule(((0, 0.05), (300, 0.05), (800, 0.5)))
    return Experiment(
        name="vimon-laptop-a",
        summary="ViMON on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="27 minutes on one CPU core",
        measured={"fg_ari": 9.5, "miou": 25.8, "offline_fg_ari": 9.5, "offline_miou": 25.9},
        model=ViMONConfig(
            size=(64, 64),
            slots=7,
            latent_dim=16,
            unet=UNetConfig(channels=(16,) * 5, bottleneck=(128, 128)),
            decoder=ComponentDecoderConfig(reduction=2),
            sigma_first=0.05,
            sigma=0.06,
            segments="found",
            initial_log_std=-2.0,
            as_monet=1_400,
        ),
        training=TrainingConfig(
            updates=updates,
            batch=2,
            segment=4,
            weights=_weights(beta=0.5, gamma=gamma),
            optimizer=OptimizerConfig(groups=one_group(laptop_rate(5e-4, updates), clip=10.0)),
            replay=None,
        ),
    )


def vimon_small(world: str) -> Experiment[ViMONConfig]:
    """ViMON on videos of 32x32 pixels: latents, weights of the losses and masks as its authors have them. It starts as
    MONet, with latents of little noise; σ as in `monet_small`."""
    where, updates = SMALL_WORLDS[world], {"spmot": 12_000, "closeup": 9_500}[world]
    sigmas = {"spmot": (0.09, 0.11), "closeup": (0.05, 0.06)}[world]
    return Experiment(
        name=f"vimon-{world}",
        summary=f"ViMON on {where.title} at 32 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=ViMONConfig(
            size=(32, 32),
            slots=where.slots,
            latent_dim=16,
            unet=UNetConfig(channels=(32,) * 4, bottleneck=(128, 128)),
            sigma_first=sigmas[0],
            sigma=sigmas[1],
            initial_log_std=-2.0,
            as_monet=updates // 4,
        ),
        training=TrainingConfig(
            updates=updates,
            batch=4,
            segment=6,
            weights=_weights(beta=1.0, gamma=constant(2.0)),
            optimizer=OptimizerConfig(groups=one_group(laptop_rate(3e-4, updates), clip=10.0)),
            replay=None,
        ),
    )
