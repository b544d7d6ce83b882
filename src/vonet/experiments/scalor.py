"""SCALOR as the VONet paper ran it, and on a laptop. docs/deviations.md says which settings are the paper's."""

from __future__ import annotations

from dataclasses import replace

from vonet.baselines.scalor import BoxConfig, SCALORConfig
from vonet.experiments import paper_scores
from vonet.experiments.experiment import Experiment
from vonet.experiments.settings import NOT_RUN, SMALL_WORLDS, laptop_rate, movi_slots, one_group
from vonet.schedule import Schedule, constant
from vonet.training.config import TrainingConfig
from vonet.training.optimizer import RMSpropConfig


def scalor_movi(level: str) -> Experiment[SCALORConfig]:
    """SCALOR on MOVi: an 8x8 grid, segments of six frames and a learning rate of 10⁻⁴, as in the paper. The range of
    boxes was measured on the true ids of MOVi-A: the paper follows SAVi's suggestions and gives no numbers."""
    return Experiment(
        name=f"scalor-movi-{level}",
        summary=f"SCALOR on MOVi-{level.upper()}, as in the paper",
        dataset=f"movi-{level}",
        model=SCALORConfig(slots=movi_slots(level)),
        training=TrainingConfig(
            updates=150_000,
            batch=20,
            segment=6,
            weights={name: constant(1.0) for name in SCALORConfig.losses},
            optimizer=RMSpropConfig(groups=one_group(constant(1e-4), clip=1.0)),
            replay=None,
        ),
        cost=NOT_RUN,
        paper=paper_scores.of_videos("SCALOR", level),
    )


def scalor_laptop_a() -> Experiment[SCALORConfig]:
    """SCALOR on `vonet generate A --objects 3 6`: half a second per update on one core. The range of boxes suits the
    objects of this world, which are as large as MOVi-A's: it contains 99 % of the objects that the frame's border does
    not cut, by their true ids. The background network is small, and every cell has room for an object. Objects vanish
    early in training unless a schedule keeps them (docs/log/methods.md): at first objects are painted without the
    background, then single frames are trained with a presence of one half. Only then are objects propagated, with the
    full KL weight."""
    updates = 4_500
    paid = Schedule(((0, 0.0), (300, 0.0), (2_000, 1.0)))
    return Experiment(
        name="scalor-laptop-a",
        summary="SCALOR on generated level A with few objects, on a laptop",
        dataset="laptop-a",
        cost="50 minutes on one CPU core",
        model=SCALORConfig(
            size=(64, 64),
            slots=17,
            grid=4,
            glimpse=32,
            what_dim=16,
            background_dim=4,
            presence=Schedule(((0, 0.5), (700, 0.5), (2_500, 1e-2))),
            cooling=900,
            cut=1_500,
            curriculum=150,
            alone=1_500,
        ),
        training=TrainingConfig(
            updates=updates,
            batch=2,
            segment=4,
            weights={
                "reconstruction": constant(1.0),
                "what": paid,
                "where": paid,
                "depth": constant(1.0),
                "presence": Schedule(((0, 0.0), (149, 0.0), (150, 100.0), (700, 100.0), (1_500, 10.0), (2_500, 1.0))),
                "background": constant(1.0),
            },
            optimizer=RMSpropConfig(groups=one_group(laptop_rate(3e-4, updates), clip=1.0)),
            replay=None,
        ),
    )


def scalor_small(world: str) -> Experiment[SCALORConfig]:
    """SCALOR on the same videos at 64x64 pixels (close-ups: `vonet prepare S S-64 --size 64`), for which its networks
    are made. Background and schedules as in `scalor_laptop_a`. The boxes of close-ups contain 98 % of the objects that
    the frame's border does not cut, by their true ids."""
    base, where, updates = scalor_laptop_a(), SMALL_WORLDS[world], 7_000
    assert base.training is not None
    box = {"spmot": base.model.box, "closeup": BoxConfig(size=0.29, size_range=0.24, ratio=1.1, ratio_range=0.6)}[world]
    return replace(
        base,
        name=f"scalor-{world}",
        summary=f"SCALOR on {where.title} at 64 px, on a laptop",
        dataset=where.dataset,
        cost="not measured",
        model=replace(base.model, box=box),
        training=replace(
            base.training,
            optimizer=RMSpropConfig(groups=one_group(laptop_rate(3e-4, updates), clip=1.0)),
            updates=updates,
        ),
    )
