"""`make results`: write the tables of the README, docs/ablations.md and docs/methods.md anew, from the scores of each
video here.

results/EXPERIMENT/seedN.csv is what `vonet evaluate` wrote, a line for each video and method; so is
results/ablations/EXPERIMENT/seedN.csv. results/EXPERIMENT/cost.json has what a comparison of methods says besides.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
ABLATIONS = HERE.parent / "docs" / "ablations.md"
METHODS_PAGE = HERE.parent / "docs" / "methods.md"
BASE = "laptop-quick"
OTHERS = {f"{name.lower()}-laptop-a": name for name in ("MONet", "ViMON", "SCALOR", "SAVi", "STEVE", "SIMONe")}
TRIVIAL = ("one segment", "random", "blocks", "k-means")
COSTS = {"milliseconds": "ms per frame", "parameters": "parameters", "minutes": "minutes of training"}
BEGIN, END = "<!-- results -->\n", "<!-- /results -->\n"
SCORES = {"fg_ari": "FG-ARI", "miou": "mIoU", "slots_per_object": "slots per object", "identity_switches": "switches"}
PERCENT = ("fg_ari", "miou")
METHODS = {"model": "streaming", "offline": "offline", "k-means": "k-means", "blocks": "blocks"}


def scores_of(path: Path) -> dict[tuple[str, str], float]:
    """The mean over the videos, for each method and score."""
    found = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for score in SCORES:
                found[row["method"], score].append(float(row[score]))
    return {key: mean(values) for key, values in found.items()}


def seeds_of(folder: Path) -> list[dict[tuple[str, str], float]]:
    return [scores_of(path) for path in sorted(folder.glob("seed*.csv"))]


def folders(within: Path) -> list[Path]:
    return sorted(path for path in within.iterdir() if list(path.glob("seed*.csv")))


def _cell(values: list[float], score: str, trained: bool) -> str:
    """Mean ± standard deviation over the seeds, which trivial methods do not depend on."""
    scale, digits = (100, 1) if score in PERCENT else (1, 2)
    values = [scale * value for value in values]
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 and trained else ""
    return f"{mean(values):.{digits}f}{spread}"


def lines(folder: Path) -> list[str]:
    """A row for each method."""
    seeds = seeds_of(folder)
    rows = []
    for method, spoken in METHODS.items():
        if (method, "miou") in seeds[0]:
            trained = method in ("model", "offline")
            cells = [_cell([seed[method, score] for seed in seeds], score, trained) for score in SCORES]
            rows.append(f"| {folder.name}, {spoken} | " + " | ".join(cells) + f" | {len(seeds)} |")
    return rows


def table() -> str:
    head = ["| | " + " | ".join(SCORES.values()) + " | seeds |", "|---|" + "---|" * (len(SCORES) + 1)]
    ours = [folder for folder in folders(HERE) if folder.name not in OTHERS]
    return "\n".join([*head, *(line for folder in ours for line in lines(folder))]) + "\n"


def ablation_table() -> str:
    """A row for each variant: streaming, offline, and by how much it differs from the base, mean of both seeds."""
    found = {folder.name: seeds_of(folder) for folder in [HERE / BASE, *folders(HERE / "ablations")]}
    rows = [
        "| | streaming: FG-ARI | mIoU | offline: FG-ARI | mIoU | seeds | difference, all four |",
        "|---|---|---|---|---|---|---|",
    ]
    columns = [(method, score) for method in ("model", "offline") for score in PERCENT]
    for name in sorted(found, key=lambda name: (name != BASE, name)):
        seeds = found[name]
        cells = [_cell([seed[column] for seed in seeds], column[1], trained=True) for column in columns]
        away = mean(100 * (mean(s[c] for s in seeds) - mean(s[c] for s in found[BASE])) for c in columns)
        spoken = "as it is" if name == BASE else name.removeprefix(f"{BASE}-")
        rows.append(f"| {spoken} | " + " | ".join(cells) + f" | {len(seeds)} | {away:+.1f} |")
    return "\n".join(rows) + "\n"


def methods_table() -> str:
    """What `vonet compare` says of VONet and the other methods, streaming, and for how long each was trained."""
    columns = [*SCORES.values(), *COSTS.values()]
    rows = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for experiment, spoken in {BASE: "VONet", **OTHERS}.items():
        folder = HERE / experiment
        seeds, cost = seeds_of(folder), json.loads((folder / "cost.json").read_text(encoding="utf-8"))
        cells = [_cell([seed["model", score] for seed in seeds], score, trained=True) for score in SCORES]
        cells += [f"{cost['milliseconds']:.1f}", f"{cost['parameters']:,}", f"{cost['minutes']:.1f}"]
        rows.append(f"| {spoken}, `{experiment}` | " + " | ".join(cells) + " |")
    trivial = seeds_of(HERE / BASE)[0]
    for method in TRIVIAL:
        cells = [_cell([trivial[method, score]], score, trained=False) for score in SCORES]
        rows.append(f"| {method} | " + " | ".join([*cells, *("–" for _ in COSTS)]) + " |")
    return "\n".join(rows) + "\n"


def with_table(page: str, table: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table + END + rest.split(END)[1]


if __name__ == "__main__":
    for page, written in ((README, table()), (ABLATIONS, ablation_table()), (METHODS_PAGE, methods_table())):
        page.write_text(with_table(page.read_text(encoding="utf-8"), written), encoding="utf-8")
        print(written)
