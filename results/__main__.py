"""`make results`: write the table of the README anew, from the scores of each video that lie here.

results/EXPERIMENT/seedN.csv is what `vonet evaluate` wrote, a line for each video and method.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
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


def lines(folder: Path) -> list[str]:
    """A row for each method: mean ± standard deviation over the seeds, which trivial methods do not depend on."""
    seeds = [scores_of(path) for path in sorted(folder.glob("seed*.csv"))]
    rows = []
    for method, spoken in METHODS.items():
        cells = []
        for score in SCORES:
            values = [(100 if score in PERCENT else 1) * seed[method, score] for seed in seeds]
            digits = 1 if score in PERCENT else 2
            spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 and method in ("model", "offline") else ""
            cells.append(f"{mean(values):.{digits}f}{spread}")
        rows.append(f"| {folder.name}, {spoken} | " + " | ".join(cells) + f" | {len(seeds)} |")
    return rows


def table() -> str:
    head = ["| | " + " | ".join(SCORES.values()) + " | seeds |", "|---|" + "---|" * (len(SCORES) + 1)]
    folders = sorted(path for path in HERE.iterdir() if list(path.glob("seed*.csv")))
    return "\n".join([*head, *(line for folder in folders for line in lines(folder))]) + "\n"


def with_table(readme: str) -> str:
    before, rest = readme.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
