"""`make results`: write the tables of the README and of docs/ablations.md anew, from the scores of each video here.

results/EXPERIMENT/seedN.csv is what `vonet evaluate` wrote, a line for each video and method; so is
results/ablations/EXPERIMENT/seedN.csv.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
ABLATIONS = HERE.parent / "docs" / "ablations.md"
BASE = "laptop-quick"
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
    return "\n".join([*head, *(line for folder in folders(HERE) for line in lines(folder))]) + "\n"


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


def with_table(page: str, table: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table + END + rest.split(END)[1]


if __name__ == "__main__":
    for page, written in ((README, table()), (ABLATIONS, ablation_table())):
        page.write_text(with_table(page.read_text(encoding="utf-8"), written), encoding="utf-8")
        print(written)
