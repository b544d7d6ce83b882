"""The command line: parse and call, nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from vonet.errors import BadInput


def main() -> None:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except BadInput as error:
        sys.exit(f"vonet: {error}")
    except KeyboardInterrupt:
        sys.exit("vonet: stopped")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vonet", description="Objects from videos, without labels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train a small VONet on a toy world and draw what it finds")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures (default: demo)")
    demo.add_argument("--updates", type=int, help="how long to train (default: as the experiment says)")
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=_demo)

    experiments = commands.add_parser("experiments", help="list the experiments, or show one in full")
    experiments.add_argument("name", nargs="?")
    experiments.set_defaults(run=_experiments)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    from vonet.demo import run

    run(arguments.out, arguments.updates, arguments.seed)


def _experiments(arguments: argparse.Namespace) -> None:
    from vonet import experiments

    if arguments.name is None:
        chosen = [experiments.get(name) for name in experiments.names()]
        width = max(len(e.name) for e in chosen)
        print("\n".join(f"{e.name:{width}}  {e.summary}" for e in chosen))
    else:
        print(json.dumps(_described(experiments.get(arguments.name)), indent=2))


def _described(value: Any) -> Any:
    """As JSON; each part says what it is, for some have no options of their own."""
    if is_dataclass(value):
        options = {option.name: _described(getattr(value, option.name)) for option in fields(value)}
        return {"part": type(value).__name__, **options}
    return {k: _described(v) for k, v in value.items()} if isinstance(value, Mapping) else value
