"""Exports the streaming step of a model to files that other programs can run without vonet: ONNX, or programs of
`torch.export`.

::

    initial:  noise B K D                   ─►  slots B K D
    step:     frame B 3 H W, slots B K D    ─►  masks B K H W, next_slots B K D

The state consists only of the slots. The batch B and the number of slots K are free; the size of the frames is the
model's. Values are not checked inside the exported programs.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vonet.errors import BadInput, check_choice, missing_package
from vonet.experiments import weights as stored
from vonet.interface import SlotState, StreamingModel
from vonet.writing import folder_written_aside

Format = Literal["onnx", "torch"]
Run = Callable[..., Sequence[Tensor]]
"""A written file as a function of its inputs."""

ABOUT = "about.json"
TRACED = (2, 3)
"""Batch and number of slots of the example that is traced. Both stay free."""


class InitialSlots(nn.Module):
    """Fresh slots, from unit Gaussian noise."""

    name: ClassVar[str] = "initial"
    inputs: ClassVar[tuple[str, ...]] = ("noise",)
    outputs: ClassVar[tuple[str, ...]] = ("slots",)

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, noise: Float[Tensor, "B K D"]) -> tuple[Float[Tensor, "B K D"]]:
        begins = torch.ones(noise.shape[0], dtype=torch.bool, device=noise.device)
        return (self.model.restart(SlotState(slots=noise, noise=noise), begins).slots,)


class FlatStep(nn.Module):
    """`model.step` on plain tensors."""

    name: ClassVar[str] = "step"
    inputs: ClassVar[tuple[str, ...]] = ("frame", "slots")
    outputs: ClassVar[tuple[str, ...]] = ("masks", "next_slots")

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(
        self, frame: Float[Tensor, "B 3 H W"], slots: Float[Tensor, "B K D"]
    ) -> tuple[Float[Tensor, "B K H W"], Float[Tensor, "B K D"]]:
        output, state = self.model.step(frame, SlotState(slots=slots, noise=slots))
        return output.masks, state.slots


Part = InitialSlots | FlatStep


@dataclass(frozen=True)
class Exported:
    """The written files, and the largest difference between their results and the model's on random frames; None if
    onnxruntime is not installed."""

    files: tuple[Path, ...]
    difference: float | None

    def __str__(self) -> str:
        compared = "not compared with the model: onnxruntime is not installed"
        if self.difference is not None:
            compared = f"largest difference from the model on random frames: {self.difference:.0e}"
        return f"wrote {', '.join(map(str, self.files))}; {compared}"


def export(weights: Path | str, out: Path | str, format: str = "onnx") -> Exported:
    """Write the initial slots and the streaming step of a model, for programs without vonet.

    Args:
        weights: What `vonet.load` takes.
        out: A folder that does not exist yet or is empty.
        format: "onnx", or "torch" for files that `torch.export.load` reads.

    Returns:
        The files, and how far their results differ from the model's.

    Raises:
        BadInput: If the model cannot be exported, a package is missing, or `out` is in use.
    """
    check_choice("format", format, Format)
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists already: choose another folder, or remove it")
    save, read, suffix = (_save_onnx, _read_onnx, ".onnx") if format == "onnx" else (_save_torch, _read_torch, ".pt2")
    if format == "onnx" and not _installed("onnx", "onnxscript"):
        raise missing_package("--format onnx", "onnx", "onnxscript")
    model, experiment = stored.load(weights)
    slot_dim = _slot_dim(model)
    parts: tuple[Part, ...] = (InitialSlots(model), FlatStep(model))
    about = {"experiment": experiment.name, "weights": stored.checksum(weights), "size": model.size}
    about |= {"fit": experiment.fit, "slots": model.slots, "slot_dim": slot_dim}
    with folder_written_aside(out) as folder, torch.no_grad(), _traceable(model):
        for part in parts:
            try:
                save(part, _random(part, slot_dim, *TRACED), folder / f"{part.name}{suffix}")
            except OSError:
                raise
            except Exception as error:  # whatever the tracer raises for a model of a user's own
                raise BadInput(f"{type(model).__name__} cannot be exported: {_reason(error)}") from error
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    files = tuple(out / f"{part.name}{suffix}" for part in parts)
    comparable = format == "torch" or _installed("onnxruntime")
    difference = max(map(_difference, parts, map(read, files), [slot_dim] * len(parts))) if comparable else None
    return Exported((*files, out / ABOUT), difference)


def _slot_dim(model: Any) -> int:
    """The width of the model's slots; refuses a model whose state contains more than slots."""
    streams = isinstance(model, StreamingModel) and hasattr(model, "restart")
    state = model.initial_state(1) if streams else None
    if not isinstance(state, SlotState):
        raise BadInput(
            f"{type(model).__name__} cannot be exported: use a model that works frame by frame and keeps only slots "
            "between frames, such as VONet, SAVi or STEVE"
        )
    return state.slots.shape[-1]


def _reason(error: BaseException) -> str:
    """The first line of the original error, because tracers wrap it in long messages."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _installed(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


@contextmanager
def _traceable(model: nn.Module) -> Iterator[None]:
    """Switches modules with a fast form for torch to their portable form, turns off torch's fused transformer layer,
    and silences the tracers."""
    choosing: list[Any] = [module for module in model.modules() if hasattr(module, "portable")]
    was_fused, level = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    for module in choosing:
        module.portable = True
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch.backends.mha.set_fastpath_enabled(was_fused)
        for module in choosing:
            module.portable = False


def _random(part: Part, slot_dim: int, batch: int, slots: int) -> tuple[Tensor, ...]:
    frame = torch.rand(batch, 3, *part.model.size)
    return tuple(frame if name == "frame" else torch.randn(batch, slots, slot_dim) for name in part.inputs)


def _free_shapes(part: Part) -> dict[str, dict[int, Any]]:
    batch, slots = torch.export.Dim("batch", min=1), torch.export.Dim("slots", min=1)
    return {name: {0: batch} if name == "frame" else {0: batch, 1: slots} for name in part.inputs}


def _save_torch(part: Part, example: tuple[Tensor, ...], path: Path) -> None:
    program = torch.export.export(part, example, dynamic_shapes=_free_shapes(part), strict=False)
    unused = {node.name for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    for placeholder, parameter in program.graph_signature.inputs_to_parameters.items():
        if placeholder in unused:  # the decoder's, which would be half of the file
            program.state_dict[parameter] = nn.Parameter(torch.empty(0))
    torch.export.save(program, path)


def _read_torch(path: Path) -> Run:
    return torch.export.load(path).module()


def _save_onnx(part: Part, example: tuple[Tensor, ...], path: Path) -> None:
    torch.onnx.export(
        part,
        example,
        path,
        input_names=part.inputs,
        output_names=part.outputs,
        dynamic_shapes=_free_shapes(part),
        dynamo=True,
        external_data=False,
        artifacts_dir=path.parent,
        verbose=False,
    )


def _read_onnx(path: Path) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        given = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.from_numpy(found) for found in session.run(None, given)]

    return run


def _difference(part: Part, written: Run, slot_dim: int) -> float:
    """Random inputs of one video with the model's number of slots, and of three videos with one slot more."""
    differences = [0.0]
    for batch, slots in ((1, part.model.slots), (3, part.model.slots + 1)):
        inputs = _random(part, slot_dim, batch, slots)
        with torch.no_grad():
            pairs = zip(part(*inputs), written(*inputs), strict=True)
            differences += [(ours - theirs).abs().max().item() for ours, theirs in pairs]
    return max(differences)
