"""`make results`: write the tables of the documentation from the scores of each video in this folder.

A .csv file is what `vonet evaluate` wrote: a line for each video and method. results/README.md says how each was made.
Tables stand between `<!-- results NAME -->` and `<!-- /results -->`; tests/test_results.py holds pages and files equal.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev

from vonet import experiments
from vonet.evaluation.spmot import PUBLISHED, TRACKING_SCORES

HERE = Path(__file__).parent
RETIRED = HERE / "retired"
README, METHODS, LOG = (HERE.parent / name for name in ("README.md", "docs/methods.md", "docs/log.md"))
SCORES = {"fg_ari": "FG-ARI", "miou": "mIoU", "slots_per_object": "slots per object", "identity_switches": "switches"}
PERCENT = ("fg_ari", "miou")
COSTS = {"milliseconds": "ms per frame", "parameters": "parameters", "minutes": "minutes of training"}
TRIVIAL = ("one segment", "random", "blocks", "k-means")
OTHERS = {f"{name.lower()}-laptop-a": name for name in ("MONet", "ViMON", "SCALOR", "SAVi", "STEVE", "SIMONe")}

MIXTURE = {
    "level-a": "level A, 3 to 6 objects",
    "movi-a": "MOVi-A",
    "level-a-full": "level A, 3 to 10 objects",
    "level-c": "level C, 3 to 6 objects",
    "tuning": "level A, tuning videos",
}
"""results/mixture/NAME.csv, and what the videos are called in tables."""

Means = Mapping[tuple[str, str], float]
"""The mean over the videos, for each method and score."""


def means_of(path: Path) -> Means:
    found = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for score in SCORES:
                found[row["method"], score].append(float(row[score]))
    return {key: mean(values) for key, values in found.items()}


def seeds_of(folder: Path) -> list[Means]:
    return [means_of(path) for path in sorted(folder.glob("seed*.csv"))]


def folders(within: Path) -> list[Path]:
    return sorted(path for path in within.iterdir() if list(path.glob("seed*.csv")))


def _cells(seeds: list[Means], method: str) -> list[str]:
    """Mean over the seeds, and where there are several their standard deviation."""
    cells = []
    for score in SCORES:
        scale, digits = (100, 1) if score in PERCENT else (1, 2)
        values = [scale * seed[method, score] for seed in seeds]
        spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{mean(values):.{digits}f}{spread}")
    return cells


def _table(names: Iterable[str], columns: Iterable[str], rows: Iterable[list[str]]) -> str:
    """As mdformat writes tables: words to the left, numbers to the right."""
    names, columns = list(names), list(columns)
    lines = [[*names, *columns], [*("--" for _ in names), *("-:" for _ in columns)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def mixture_table(videos: Iterable[str]) -> str:
    """`mixture` and k-means on each set of videos."""
    spoken = {"model": "mixture, streaming", "offline": "mixture, offline", "k-means": "k-means"}
    rows = []
    for name in videos:
        found = means_of(HERE / "mixture" / f"{name}.csv")
        rows += [[MIXTURE[name], method, *_cells([found], key)] for key, method in spoken.items()]
    return _table(["videos", "method"], SCORES.values(), rows)


def sprites_table() -> str:
    """`vonet-sprites` beside the same model untrained and beside methods without learning."""
    trained, untrained = seeds_of(HERE / "vonet-sprites"), [means_of(HERE / "vonet-sprites" / "untrained.csv")]
    rows = [
        ["`vonet-sprites`", *_cells(trained, "model")],
        ["the same, untrained", *_cells(untrained, "model")],
        ["`mixture` (no learning)", *_cells(trained[:1], "mixture (no learning)")],
        ["k-means", *_cells(trained[:1], "k-means")],
    ]
    return _table(["method"], SCORES.values(), rows)


def learned_table(experiment: str) -> str:
    """A trained VONet beside the same model untrained and beside methods without learning. `start`: before its own
    training, with the weights that it starts from."""
    folder = HERE / experiment
    trained, untrained = seeds_of(folder), [means_of(folder / "untrained.csv")]
    rows = [
        [f"`{experiment}`, streaming", *_cells(trained, "model")],
        [f"`{experiment}`, offline", *_cells(trained, "offline")],
    ]
    if (folder / "start.csv").exists():
        start = experiments.get(experiment).start
        rows.append([f"the weights of `{start}`", *_cells([means_of(folder / "start.csv")], "model")])
    rows += [
        ["the same, untrained", *_cells(untrained, "model")],
        ["`mixture` (no learning)", *_cells(trained[:1], "mixture (no learning)")],
        ["k-means", *_cells(trained[:1], "k-means")],
        ["blocks", *_cells(trained[:1], "blocks")],
    ]
    return _table(["method"], SCORES.values(), rows)


def spmot_table() -> str:
    """`vonet-spmot` on the test clips, beside the published table, itself untrained, and methods without learning."""
    folder = HERE / "vonet-spmot"
    seeds = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seed*.json"))]
    names = ("start", "untrained", "references")
    others = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}

    def row(name: str, found: list[Mapping[str, float]]) -> list[str]:
        cells = []
        for score in TRACKING_SCORES:
            values = [one[score] for one in found]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}")
        return [name, *cells]

    rows = [
        [name, *(f"{score:.1f} ± {std:.1f}" for score, std in scores.values())] for name, scores in PUBLISHED.items()
    ]
    rows += [
        row("`vonet-spmot` (ours)", seeds),
        row("the weights of `vonet-closeup`", [others["start"]]),
        row("the same, untrained", [others["untrained"]]),
        *(
            row(f"{method}", [others["references"][method]])
            for method in ("mixture (no learning)", "k-means", "blocks")
        ),
    ]
    return _table(["method"], TRACKING_SCORES.values(), rows)


def methods_table() -> str:
    """The laptop trainings of the six other methods, streaming."""
    rows = []
    for experiment, name in OTHERS.items():
        cost = json.loads((HERE / experiment / "cost.json").read_text(encoding="utf-8"))
        costs = [f"{cost['milliseconds']:.1f}", f"{cost['parameters']:,}", f"{cost['minutes']:.1f}"]
        rows.append([f"{name}, `{experiment}`", *_cells(seeds_of(HERE / experiment), "model"), *costs])
    trivial = seeds_of(RETIRED / "laptop-quick")[:1]
    rows += [[method, *_cells(trivial, method), *("–" for _ in COSTS)] for method in TRIVIAL]
    return _table(["method"], [*SCORES.values(), *COSTS.values()], rows)


def tables() -> dict[Path, dict[str, str]]:
    """What each page shows, by the name in its marker."""
    return {
        README: {"closeup": learned_table("vonet-closeup"), "mixture": mixture_table(["level-a", "movi-a"])},
        METHODS: {"mixture": mixture_table(MIXTURE)},
        LOG: {
            "spmot": spmot_table(),
            "laptop": learned_table("vonet-laptop"),
            "sprites": sprites_table(),
            "methods": methods_table(),
        },
    }


def with_table(page: str, name: str, table: str) -> str:
    """The page with this table between its markers."""
    begin, end = f"<!-- results {name} -->\n\n", "\n<!-- /results -->\n"
    before, rest = page.split(begin)
    return before + begin + table + end + rest.split(end, 1)[1]


if __name__ == "__main__":
    for path, named in tables().items():
        text = path.read_text(encoding="utf-8")
        for name, table in named.items():
            text = with_table(text, name, table)
            print(table)
        path.write_text(text, encoding="utf-8")
