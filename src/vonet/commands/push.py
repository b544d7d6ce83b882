"""`vonet push`: share weights on the Hugging Face Hub."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

ABOUT = "share weights on the Hugging Face Hub"
DESCRIPTION = (
    "Uploads the weights, their description and SHA-256 sums, and nothing else of the run. Others use them as "
    "hf:OWNER/NAME wherever weights are given. Log in first: hf auth login."
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("weights", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument("name", metavar="OWNER/NAME", help="the repository; it is created if it does not exist")
    parser.add_argument("--private", action="store_true", help="make a repository that only its owner sees")


def run(arguments: Namespace) -> None:
    from vonet.experiments.weights import push

    name = arguments.name.removeprefix("hf:")
    url = push(arguments.weights, name, private=arguments.private)
    print(f"{url} has the weights. Others use them with: vonet segment clip.mp4 --weights hf:{name}")
