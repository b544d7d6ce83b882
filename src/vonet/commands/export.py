"""`vonet export`: a trained model for programs without vonet."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vonet.commands.given import given

ABOUT = "write a model as ONNX, or for torch without vonet"
DESCRIPTION = (
    "Writes two files to the folder OUT: `initial` makes slots from noise, `step` takes a frame and the slots and "
    "gives masks and the next slots. Any batch size and number of slots works. Only for VONet, SAVi and STEVE."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("weights", metavar="RUN", help="a run's folder, a file of weights, or hf:OWNER/NAME")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the files; it must be new or empty")
    parser.add_argument("--format", help="onnx (default) or torch, for torch.export.load")


def run(arguments: Namespace) -> None:
    from vonet.serving.export import export

    print(export(arguments.weights, arguments.out, **given(arguments, "format")))
