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
from typing import Any

from vonet import experiments
from vonet.evaluation.spmot import PUBLISHED, TRACKING_SCORES
from vonet.experiments import paper_scores

HERE = Path(__file__).parent
RETIRED = HERE / "retired"
README, DOCS = HERE.parent / "README.md", HERE.parent / "docs"
METHODS, LOG = DOCS / "methods", DOCS / "log"
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


CORRECTED = {
    "": "corrected by colours",
    "combined": "attention and decoder, without colours",
    "attention": "attention alone",
}
"""The kinds of masks that `vonet-closeup-corrected` is scored by: the first part of a file's name, and a column."""


def corrected_table() -> str:
    """The masks of `vonet-closeup-corrected`, with and without correction, each beside the same model untrained."""
    folder, rows = HERE / "vonet-closeup-corrected", []
    for kind, spoken in CORRECTED.items():
        prefix = f"{kind}-" if kind else ""
        trained = [means_of(path) for path in sorted(folder.glob(f"{prefix}seed*.csv"))]
        untrained = means_of(folder / f"{prefix}untrained.csv")
        rows.append([spoken, "trained", *_cells(trained, "model")])
        rows.append([spoken, "untrained", *_cells([untrained], "model")])
    of_closeup = seeds_of(HERE / "vonet-closeup")
    rows.append(["`vonet-closeup`, attention alone", "trained", *_cells(of_closeup, "model")])
    others = ("mixture (no learning)", "k-means", "blocks")
    rows += [[method, "–", *_cells(of_closeup[:1], method)] for method in others]
    return _table(["masks", "weights"], SCORES.values(), rows)


PAINTED = ("objects", "background")
PAINTED_OF = [(source, pixels) for source in ("posterior", "prior") for pixels in PAINTED]


def _pictures(folder: Path) -> dict[str, Any]:
    """Of each run: its scores, and the shares of object and background pixels that its decoder paints."""
    return json.loads((folder / "pictures.json").read_text(encoding="utf-8"))


def painted_table() -> str:
    """Each training of `vonet-closeup-tokens` with the shares of pixels that its decoder paints in their colour."""
    spoken = {
        "seed0": "seed 0",
        "seed1": "seed 1",
        "taught0": "seed 0 at update 2,500, with the curriculum's help still on",
        "taught1": "seed 1 at update 2,500, with the help still on",
        "first prior": "seed 0 of an earlier version, in which the prior predicts the place from scratch",
        "untrained": "that version untrained",
    }
    found, rows = _pictures(HERE / "vonet-closeup-tokens"), []
    for name, told in spoken.items():
        one = found[name]
        both = [f"{100 * of['fg_ari']:.1f} / {100 * of['miou']:.1f}" for of in (one, one["offline"])]
        rows.append([told, *both, *(f"{100 * one['painted'][source][pixels]:.1f}" for source, pixels in PAINTED_OF)])
    columns = ["FG-ARI / mIoU", "offline", *(f"{pixels}, {source}" for source, pixels in PAINTED_OF)]
    return _table(["training"], columns, rows)


def token_ablations_table() -> str:
    """`vonet-closeup-tokens` beside its ablations, streaming: both seeds, and the mean shares of painted pixels."""
    base, rows = "vonet-closeup-tokens", []
    folders_ = {base: HERE / base, **{label: HERE / "ablations" / f"{base}-{label}" for label in TOKEN_ABLATIONS}}
    for label, folder in folders_.items():
        pictures = [one for name, one in _pictures(folder).items() if name.startswith("seed")]
        painted = [mean(100 * one["painted"]["posterior"][pixels] for one in pictures) for pixels in PAINTED]
        rows.append([f"`{label}`", *_cells(seeds_of(folder), "model"), *(f"{share:.1f}" for share in painted)])
    return _table(["experiment"], [*SCORES.values(), *(f"{pixels}, posterior" for pixels in PAINTED)], rows)


TOKEN_ABLATIONS = ("wo-unet", "wo-klbal", "wo-replay")
LEARNED = {
    "vonet-closeup-corrected": "close-ups, corrected",
    "vonet-closeup": "close-ups, 32 px",
    "vonet-closeup-tokens": "close-ups, token decoder",
    "vonet-laptop-corrected": "level A, corrected",
    "vonet-laptop": "level A, 64 px",
    "vonet-sprites": "sprites, 32 px",
}
"""results/NAME, and what the videos are called in the README."""


def readme_table() -> str:
    """Each trained VONet beside itself untrained and beside methods without learning: FG-ARI / mIoU, or MOTA."""

    def both(seeds: list[Means], method: str) -> str:
        return " / ".join(_cells(seeds, method)[: len(PERCENT)])

    rows = []
    for experiment, videos in LEARNED.items():
        trained, untrained = seeds_of(HERE / experiment), [means_of(HERE / experiment / "untrained.csv")]
        others = [both(trained[:1], method) for method in ("mixture (no learning)", "k-means")]
        rows.append([videos, both(trained, "model"), both(untrained, "model"), *others])
    seeds, others = _spmot_scores()
    motas = [one["mota"] for one in seeds]
    references = [others["references"][method]["mota"] for method in ("mixture (no learning)", "k-means")]
    spread = f" ± {stdev(motas):.1f}" if len(motas) > 1 else ""
    cells = [f"{value:.1f}" for value in (others["untrained"]["mota"], *references)]
    rows.append(["Sprites-MOT, 64 px (MOTA)", f"{mean(motas):.1f}{spread}", *cells])
    return _table(["videos"], ["VONet, trained", "untrained", "`mixture`", "k-means"], rows)


def _spmot_scores() -> tuple[list[Mapping[str, float]], dict[str, Any]]:
    """Of the trained models, and of `start`, `untrained` and the methods without learning."""
    folder = HERE / "vonet-spmot"
    seeds = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seed*.json"))]
    names = ("quick0", "quick1", "start", "untrained", "references")
    return seeds, {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def spmot_table() -> str:
    """`vonet-spmot` on the test clips, beside the published table, itself untrained, and methods without learning."""
    seeds, others = _spmot_scores()

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
        row("`vonet-spmot-quick` (ours)", [others["quick0"], others["quick1"]]),
        row("the weights of `vonet-closeup`", [others["start"]]),
        row("the same, untrained", [others["untrained"]]),
        *(
            row(f"{method}", [others["references"][method]])
            for method in ("mixture (no learning)", "k-means", "blocks")
        ),
    ]
    return _table(["method"], TRACKING_SCORES.values(), rows)


def methods_table(chosen: Iterable[str]) -> str:
    """The laptop trainings of other methods, streaming."""
    rows = []
    for experiment in chosen:
        name = OTHERS[experiment]
        cost = json.loads((HERE / experiment / "cost.json").read_text(encoding="utf-8"))
        costs = [f"{cost['milliseconds']:.1f}", f"{cost['parameters']:,}", f"{cost['minutes']:.1f}"]
        rows.append([f"{name}, `{experiment}`", *_cells(seeds_of(HERE / experiment), "model"), *costs])
    trivial = seeds_of(RETIRED / "laptop-quick")[:1]
    rows += [[method, *_cells(trivial, method), *("–" for _ in COSTS)] for method in TRIVIAL]
    return _table(["method"], [*SCORES.values(), *COSTS.values()], rows)


def paper_table(method: str) -> str:
    """What the VONet paper reports of a method: Table 1, or Table 4 for the method of single frames."""
    of_level = paper_scores.of_videos if method in paper_scores.METHODS else paper_scores.of_single_frames
    found = {level: of_level(method, level) for level in paper_scores.LEVELS}
    cells = {
        level: " / ".join(f"{score:.1f}" for score in scores.values()) for level, scores in found.items() if scores
    }
    return _table([method], [f"MOVi-{level.upper()}" for level in cells], [["the paper", *cells.values()]])


def tables() -> dict[Path, dict[str, str]]:
    """What each page shows, by the name in its marker."""
    closeup, laptop = learned_table("vonet-closeup"), learned_table("vonet-laptop")
    corrected, corrected_laptop = corrected_table(), learned_table("vonet-laptop-corrected")
    pages = {
        README: {"learned": readme_table()},
        METHODS / "vonet.md": {
            "corrected": corrected,
            "closeup": closeup,
            "corrected laptop": corrected_laptop,
            "laptop": laptop,
            "paper": paper_table("VONet"),
        },
        METHODS / "mixture.md": {"mixture": mixture_table(MIXTURE)},
        LOG / "closeup.md": {"corrected": corrected, "closeup": closeup},
        LOG / "laptop.md": {"corrected laptop": corrected_laptop, "laptop": laptop},
        LOG / "tokens.md": {
            "tokens": learned_table("vonet-closeup-tokens"),
            "painted": painted_table(),
            "token ablations": token_ablations_table(),
        },
        LOG / "sprites-mot.md": {"spmot": spmot_table()},
        LOG / "sprites.md": {"sprites": sprites_table()},
        LOG / "methods.md": {"methods": methods_table(OTHERS)},
    }
    for experiment, name in OTHERS.items():
        pages[METHODS / f"{name.lower()}.md"] = {"ours": methods_table([experiment]), "paper": paper_table(name)}
    return pages


def with_table(page: str, name: str, table: str) -> str:
    """The page with this table between its markers."""
    begin, end = f"<!-- results {name} -->\n\n", "<!-- /results -->\n"
    before, rest = page.split(begin)
    return before + begin + table + "\n" + end + rest.split(end, 1)[1]


if __name__ == "__main__":
    for path, named in tables().items():
        text = path.read_text(encoding="utf-8")
        for name, table in named.items():
            text = with_table(text, name, table)
            print(table)
        path.write_text(text, encoding="utf-8")
