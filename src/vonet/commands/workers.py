"""The option `--workers`, which several commands share."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace


def add_workers(parser: ArgumentParser, note: str = "") -> None:
    parser.add_argument("--workers", type=int, help=f"processes (default: one per core){note}")


def workers(arguments: Namespace) -> int:
    from vonet.data.work import cores

    return cores() if arguments.workers is None else arguments.workers
