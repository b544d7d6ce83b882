"""Evaluations side by side: a table for Markdown and LaTeX, and bars."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vonet.experiments import paper_scores
from vonet.figures.names import plain_name, spoken_method
from vonet.figures.plots import SCORES, WIDTH, plotting, saved
from vonet.figures.sheet import colours
from vonet.writing import written_aside

Score = tuple[float, float | None]
"""Mean and, if there is one, standard deviation."""


@dataclass
class Comparison:
    """Scores for each method, dataset and metric.

    Attributes:
        datasets: The columns.
        groups: Methods, grouped by origin.
    """

    datasets: list[str] = field(default_factory=list)
    groups: dict[str, dict[str, dict[tuple[str, str], Score]]] = field(default_factory=dict)

    def set(self, group: str, method: str, dataset: str, scores: Mapping[str, Score]) -> None:
        methods = self.groups.setdefault(group, {})
        methods.setdefault(method, {}).update({(name, dataset): score for name, score in scores.items()})

    def best(self, name: str, dataset: str) -> float:
        """The highest mean of all methods evaluated here, without perfect masks and the paper's scores."""
        found = (self.groups[group] for group in ("ours", "trivial") if group in self.groups)
        means = [m[name, dataset][0] for methods in found for m in methods.values() if (name, dataset) in m]
        return max(means, default=float("nan"))


def compared(evaluations: Sequence[Mapping[str, Any]]) -> Comparison:
    """Collects evaluations. Runs of one experiment count as its seeds: their mean and standard deviation are used. A
    single run has the standard deviation over draws of its slots' noise, if it was evaluated with several."""
    chosen: dict[tuple[str, str], Mapping[str, Any]] = {}
    for about in evaluations:  # of the same weights on the same videos, the evaluation that says most
        key = about["weights"], dataset_name(about)
        if key not in chosen or (about["videos"], about["seeds"]) > (chosen[key]["videos"], chosen[key]["seeds"]):
            chosen[key] = about
    runs = defaultdict(list)
    for (_, dataset), about in chosen.items():
        runs[method_name(about), dataset].append(about)
    found = Comparison(datasets=list(dict.fromkeys(dataset for _, dataset in runs)))
    for (method, dataset), seeds in runs.items():
        found.set("ours", method, dataset, {name: _over_runs(name, seeds) for name in SCORES})
        for trivial, scores in seeds[0]["trivial"].items():
            found.set("trivial", trivial, dataset, {name: (scores[name], None) for name in SCORES})
        if level := _movi_level(seeds[0]):
            for other in paper_scores.METHODS:
                found.set("paper", f"{other} (paper)", dataset, dict(paper_scores.scores(other, level)))
    return found


def method_name(about: Mapping[str, Any]) -> str:
    """The experiment's name without its dataset, so that a method has one row for all datasets."""
    return about["experiment"].replace(f"-{about.get('dataset')}", "")


def dataset_name(about: Mapping[str, Any]) -> str:
    """The name of the evaluated videos in tables and figures."""
    level = _movi_level(about)
    name = f"MOVi-{level.upper()}" if level else Path(about["data"]).name
    rest = [about["split"] or "all"] if about["split"] != "validation" else []
    rest += [about["protocol"]] if about["protocol"] != "vonet" else []
    return f"{name} ({', '.join(rest)})" if rest else name


def _movi_level(about: Mapping[str, Any]) -> str | None:
    """The level if the videos are MOVi's own, not those of a similar generated world."""
    found = re.search(r"movi_([a-e])", about.get("layout", ""))
    return found.group(1) if found else None


def _over_runs(name: str, runs: Sequence[Mapping[str, Any]]) -> Score:
    if len(runs) == 1:
        return runs[0][name], runs[0]["std"].get(name)
    values = [run[name] for run in runs]
    return float(np.mean(values)), float(np.std(values, ddof=1))


# ---- tables --------------------------------------------------------------------------------------------------------


def markdown(found: Comparison) -> str:
    """The table of all methods and datasets, best scores in bold."""
    columns = [(name, dataset) for name in SCORES for dataset in found.datasets]
    head = ["", *(f"{SCORES[name]} {dataset}" for name, dataset in columns)]
    lines = [head, ["---", *("---:" for _ in columns)]]
    for methods in found.groups.values():
        for method, scores in methods.items():
            lines.append([spoken_method(method), *(_cell(found, scores, key, "**") for key in columns)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _cell(found: Comparison, scores: Mapping[tuple[str, str], Score], key: tuple[str, str], mark: str) -> str:
    if key not in scores:
        return ""
    mean, std = scores[key]
    text = _percent(mean) + ("" if std is None else f" ± {_percent(std)}")
    return f"{mark}{text}{mark}" if mean == found.best(*key) else text


def latex(found: Comparison) -> str:
    """The table in LaTeX, in the format of the paper's table; it needs no LaTeX package."""
    number = len(found.datasets)
    lines = [
        rf"\begin{{tabular}}{{l{('|' + 'c' * number) * len(SCORES)}}}",
        r"\hline",
        " & ".join(["", *(rf"\multicolumn{{{number}}}{{c}}{{{name}}}" for name in SCORES.values())]) + r" \\",
        " & ".join(["Method", *(_escaped(dataset) for dataset in found.datasets * len(SCORES))]) + r" \\",
    ]
    columns = [(name, dataset) for name in SCORES for dataset in found.datasets]
    for methods in found.groups.values():
        lines.append(r"\hline")
        for method, scores in methods.items():
            cells = [_escaped(spoken_method(method)), *(_formula(found, scores, key) for key in columns)]
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _formula(found: Comparison, scores: Mapping[tuple[str, str], Score], key: tuple[str, str]) -> str:
    if key not in scores:
        return ""
    mean, std = scores[key]
    text = _percent(mean) + ("" if std is None else rf"{{\scriptstyle \pm {_percent(std)}}}")
    return rf"$\mathbf{{{text}}}$" if mean == found.best(*key) else f"${text}$"


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def _escaped(text: str) -> str:
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def write_tables(path: Path, found: Comparison) -> list[Path]:
    """Write the table as Markdown and LaTeX beside `path`, and return both paths."""
    paths = []
    for ending, text in ((".md", markdown(found)), (".tex", latex(found))):
        paths.append(path.with_name(path.name + ending))
        with written_aside(paths[-1]) as aside:
            aside.write_text(text, encoding="utf-8")
    return paths


# ---- bars ----------------------------------------------------------------------------------------------------------


def write_bars(path: Path, found: Comparison) -> list[Path]:
    """The paper's ablation figure: a group of bars for each dataset, one bar per method of ours, with error bars where
    there is a standard deviation. The dotted line is the best method without learning."""
    methods = found.groups["ours"]
    labels = {method: spoken_method(label) for method, label in ablation_labels(list(methods)).items()}
    others = _best_without_learning(found)
    width = min(0.8 / len(methods), 0.25)
    paints = colours(len(methods)) / 255  # matplotlib's own ten would come again
    with plotting() as pyplot:
        figure, panels = pyplot.subplots(1, len(SCORES), figsize=(WIDTH, 2.2), layout="constrained")
        for axes, (name, spoken) in zip(panels, SCORES.items(), strict=True):
            for place, (method, scores) in enumerate(methods.items()):
                known = [i for i, dataset in enumerate(found.datasets) if (name, dataset) in scores]
                places = {i: i + (place - (len(methods) - 1) / 2) * width for i in known}
                means = {i: scores[name, found.datasets[i]][0] for i in known}
                spreads = {i: std for i in known if (std := scores[name, found.datasets[i]][1]) is not None}
                heights = [100 * means[i] for i in known]
                axes.bar(list(places.values()), heights, width * 0.9, color=paints[place], label=labels[method])
                if spreads:
                    line = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 1.5}
                    at, middles = [places[i] for i in spreads], [100 * means[i] for i in spreads]
                    axes.errorbar(at, middles, [100 * std for std in spreads.values()], **line)
            for i, dataset in enumerate(found.datasets):
                if (name, dataset) in others:
                    label = f"best without learning ({_listed(others.values())})" if i == 0 else None
                    line = {"color": "black", "linestyle": ":", "linewidth": 1, "label": label}
                    best = found.groups["trivial"][others[name, dataset]][name, dataset][0]
                    axes.plot([i - 0.45, i + 0.45], [100 * best] * 2, **line)
            axes.set_xticks(range(len(found.datasets)), found.datasets)
            axes.set_xlim(-0.6, len(found.datasets) - 0.4)
            axes.set(title=spoken, ylim=(0, 100), ylabel="percent" if axes is panels[0] else "")
            axes.grid(visible=False, axis="x")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return saved(figure, path)


def _best_without_learning(found: Comparison) -> dict[tuple[str, str], str]:
    """For each score and dataset, the method without learning that has the highest mean."""
    best: dict[tuple[str, str], str] = {}
    methods = found.groups.get("trivial", {})
    for method, scores in methods.items():
        for key, (mean, _) in scores.items():
            if key not in best or mean > methods[best[key]][key][0]:
                best[key] = method
    return best


def _listed(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(plain_name(name) for name in names))


def ablation_labels(methods: Sequence[str]) -> dict[str, str]:
    """Names a variant by the suffix that it adds to the name of its base method."""
    labels = {}
    for method in methods:
        bases = [other for other in methods if method.startswith(f"{other}-")]
        labels[method] = method.removeprefix(f"{max(bases, key=len)}-") if bases else method
    return labels
