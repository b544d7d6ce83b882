"""VONet on generated level A from the normal camera distance, with 3 to 6 small objects, starting from the weights of
`vonet-closeup`.

The encoder is convolutional and takes any number of slots, so the close-up model works for frames of 64 px and seven
slots without changes. It finds most of the small objects before any training on them (docs/log/laptop.md).
`vonet-laptop-corrected` starts from `vonet-laptop`.
"""

from __future__ import annotations

from dataclasses import replace

from vonet.experiments.closeup import REPLAY, closeup_model, continued_training, with_correction_and_places
from vonet.experiments.experiment import Experiment
from vonet.model.vonet import VONetConfig
from vonet.schedule import constant
from vonet.variants.object_decoder import AlignmentConfig
from vonet.variants.slot_colours import CorrectionConfig


def vonet_laptop() -> Experiment[VONetConfig]:
    """Trained on `vonet generate A --objects 3 6 --train 3000 --validation 128`."""
    return Experiment(
        name="vonet-laptop",
        summary="VONet with an object decoder on generated level A at 64 px, starting from vonet-closeup",
        dataset="laptop-a",
        cost="22 minutes on one CPU core, after vonet-closeup",
        measured={"fg_ari": 77.9, "miou": 64.1},
        start="vonet-closeup",
        model=closeup_model(
            alignment=AlignmentConfig(sigma=constant(0.1)), size=(64, 64), slots=7, unet_cell=8, reduction=4
        ),
        training=continued_training(5_000, rate=5e-4, hold=0.5, area=3.0, replay=replace(REPLAY, videos=16)),
    )


def vonet_laptop_corrected() -> Experiment[VONetConfig]:
    """`vonet-laptop` whose attention learns the corrected masks, and whose slots have a signature and a place. Trained
    on `vonet generate A --objects 3 6 --train 1000 --validation 128`, the first 1,000 videos of `vonet-laptop`."""
    alignment = AlignmentConfig(correction=CorrectionConfig())
    training = continued_training(1_500, rate=5e-4, hold=0.5, area=3.0, replay=replace(REPLAY, videos=16))
    return Experiment(
        name="vonet-laptop-corrected",
        summary="vonet-laptop with signatures, places and masks corrected by colours, begun from its weights",
        dataset="laptop-a",
        cost="26 minutes on one CPU core, after vonet-laptop",
        measured={"fg_ari": 85.2, "miou": 76.4},
        start="vonet-laptop",
        model=with_correction_and_places(
            closeup_model(alignment=alignment, size=(64, 64), slots=7, unet_cell=8, reduction=4)
        ),
        training=replace(training, average=300),
    )
