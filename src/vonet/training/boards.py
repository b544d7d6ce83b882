"""Logs to TensorBoard and Weights & Biases the same numbers as the run's own log, and the pictures of the masks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vonet.errors import BadInput, missing_package
from vonet.writing import written_aside

MASKS = "masks"
WANDB_ID = "wandb-id.txt"
"""File beside the run's log, with which a resumed run continues under the same name."""


@runtime_checkable
class Board(Protocol):
    """A service that shows numbers and pictures of a training."""

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """Record values by name at an update."""

    def picture(self, update: int, path: Path) -> None:
        """`path`: a PNG file."""

    def close(self) -> None:
        """Write what is pending and stop."""


class TensorBoard:
    """RUN/tensorboard. Continues after `update`: later entries of an earlier process are hidden."""

    def __init__(self, out: Path, update: int):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_package("--tensorboard", "tensorboard") from None
        self._writer = SummaryWriter(str(out / "tensorboard"), purge_step=update)

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """Record values by name at an update."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def picture(self, update: int, path: Path) -> None:
        """Record the picture of the masks."""
        import numpy as np
        from PIL import Image

        with Image.open(path) as picture:
            self._writer.add_image(MASKS, np.asarray(picture.convert("RGB")), update, dataformats="HWC")

    def close(self) -> None:
        """Write what is pending and stop."""
        self._writer.close()


class WeightsAndBiases:
    """Logs to a run of wandb, whose files are in RUN/wandb. Project, account and mode are wandb's own settings: the
    environment variables WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE (offline: nothing leaves the machine)."""

    def __init__(self, out: Path, about: Mapping[str, Any]):
        try:
            import wandb
        except ImportError:
            raise missing_package("--wandb", "wandb") from None
        self._picture = wandb.Image
        kept = out / WANDB_ID
        name = kept.read_text(encoding="utf-8").strip() if kept.exists() else None
        settings = wandb.Settings(console="off")
        try:
            self._run = wandb.init(
                dir=str(out), name=out.name, id=name, resume="allow", config=dict(about), settings=settings
            )
        except wandb.Error as error:
            raise BadInput(
                f"wandb cannot start ({str(error).splitlines()[0]}): run `wandb login`, or set WANDB_MODE=offline"
            ) from None
        with written_aside(kept) as aside:
            aside.write_text(f"{self._run.id}\n", encoding="utf-8")
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """Record values by name at an update."""
        self._run.log({"update": update, **values})

    def picture(self, update: int, path: Path) -> None:
        """Record the picture of the masks."""
        self._run.log({"update": update, MASKS: self._picture(str(path))})

    def close(self) -> None:
        """Write what is pending and stop."""
        self._run.finish()
