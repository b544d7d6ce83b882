"""`vonet list`: experiments with their cost and scores."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vonet.errors import BadInput

if TYPE_CHECKING:
    from vonet.experiments import Experiment

ABOUT = "list the experiments with their cost and scores"
DESCRIPTION = (
    "vonet list savi shows the experiments whose names contain savi; several words must all occur. Ablations are "
    "hidden unless --ablations is given or one is named in full."
)
FACTS = ("name", "summary", "dataset", "cost", "measured", "paper")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="show only names that contain every WORD")
    parser.add_argument("--level", help="show only experiments on this level, a to e, of MOVi or of generated videos")
    parser.add_argument("--ablations", action="store_true", help="show ablations too")
    parser.add_argument("--config", action="store_true", help="print every option of the one experiment that is named")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(arguments: Namespace) -> None:
    from vonet import experiments
    from vonet.experiments.weights import described

    if arguments.config:
        if len(arguments.words) != 1:
            raise BadInput(f"--config needs the name of one experiment, got {len(arguments.words)}")
        print(json.dumps(described(experiments.get(arguments.words[0])), indent=2))
        return
    chosen = list(_chosen(arguments))
    if arguments.json:
        print(json.dumps([{fact: getattr(e, fact) for fact in FACTS} for e in chosen], indent=1))
        return
    for e in chosen:
        print(_line(e))


def _chosen(arguments: Namespace) -> Iterator[Experiment]:
    from vonet import experiments
    from vonet.experiments.paper_scores import LEVELS

    level = arguments.level.lower() if arguments.level else None
    if level is not None and level not in LEVELS:
        raise BadInput(f"--level is {arguments.level!r}; expected one of {', '.join(LEVELS)}")
    everything = experiments.names()
    if len(arguments.words) == 1 and arguments.words[0] in everything:
        names = arguments.words
    else:
        names = [
            n
            for n in experiments.names(arguments.ablations)
            if all(word.lower() in n.lower() for word in arguments.words)
        ]
    found = [experiments.get(name) for name in names]
    found = [e for e in found if level is None or e.dataset.endswith(f"-{level}")]
    if not found:
        asked = " ".join([*arguments.words, *([f"--level {level}"] if level else [])])
        raise BadInput(f"no experiment matches {asked!r}: vonet list shows all, --ablations adds the ablations")
    yield from found


def _line(e: Experiment) -> str:
    told = [f"{e.name}\n    {e.summary}; cost: {e.cost}"]
    for who, scores in (("measured", e.measured), ("paper", e.paper)):
        if scores:
            told.append(f"{who}: " + ", ".join(f"{name} {value}" for name, value in scores.items()))
    return "; ".join(told)
