"""`vonet compare` as a function: turns recorded evaluations into one table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vonet.errors import BadInput
from vonet.evaluation.protocol import SCORES
from vonet.evaluation.references import REFERENCES
from vonet.evaluation.report import EVALUATION, cell, read_evaluation
from vonet.evaluation.spmot import TRACKING_SCORES, tracking_table
from vonet.experiments.descriptions import fits

COMPARED = ("fg_ari", "miou", "slots_per_object", "identity_switches")
SAME = ("split", "protocol")
NOTHING = "–"


@dataclass(frozen=True)
class Line:
    """A method and its scores. `milliseconds` per frame and `parameters` are None if unknown, as for methods without
    learning."""

    method: str
    scores: Mapping[str, float]
    std: Mapping[str, float | None]
    milliseconds: float | None = None
    parameters: int | None = None
    file: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `vonet compare --json`."""
        shown = {name: self.scores[name] for name in COMPARED}
        std = {name: self.std.get(name) for name in COMPARED}
        tracking = {name: mean for name, (mean, _) in self.tracking().items()}
        about = {"milliseconds": self.milliseconds, "parameters": self.parameters, "file": self.file}
        return {"method": self.method, **shown, **tracking, "std": std, **about}

    def tracking(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of the tracking scores in percent; empty where there are none."""
        if not all(fits(self.scores.get(name), float) for name in TRACKING_SCORES):
            return {}
        return {name: (self.scores[name], _number(self.std.get(name))) for name in TRACKING_SCORES}


@dataclass(frozen=True)
class Comparison:
    """Evaluations of several methods on the same videos, one line each."""

    about: Mapping[str, Any]
    lines: Sequence[Line]

    def as_json(self) -> dict[str, Any]:
        """For `vonet compare --json`."""
        return {**self.about, "methods": [line.as_json() for line in self.lines]}

    def table(self) -> str:
        """The table in Markdown, aligned so that the text is readable too."""
        head = ["method", *(SCORES[name] for name in COMPARED), "ms per frame", "parameters"]
        rows = [head, *(self._row(line) for line in self.lines)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |" for row in rows
        ]
        rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
        said = ", ".join(f"{name} {value}" for name, value in self.about.items())
        text = "\n".join([f"In percent, except counts; {said}.", "", lines[0], rule, *lines[1:]])
        tracked = {line.method: line.tracking() for line in self.lines if line.tracking()}
        return f"{text}\n\n{tracking_table(tracked)}" if tracked else text

    @staticmethod
    def _row(line: Line) -> list[str]:
        scores = [cell(name, line.scores[name], _number(line.std.get(name))) for name in COMPARED]
        time = NOTHING if line.milliseconds is None else f"{line.milliseconds:.1f}"
        return [line.method, *scores, time, NOTHING if line.parameters is None else f"{line.parameters:,}"]


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare recorded evaluations on the same videos under the same protocol.

    Args:
        paths: Folders of runs that `vonet evaluate` has scored, or the files that it wrote. If runs were evaluated
            several times, the evaluation with the most videos that all runs have in common is used.

    Returns:
        One line for each run, and lines for the methods without learning, whose scores are those of the first run.

    Raises:
        BadInput: If no paths are given, or the videos or rules differ.
    """
    if not paths:
        raise BadInput("nothing to compare was given; give folders of runs, or files that vonet evaluate wrote")
    runs = [{file: _with_rows(file) for file in _files(path)} for path in paths]
    common = set.intersection(*({_rules(evaluation) for evaluation in of_run.values()} for of_run in runs))
    chosen = max(common, key=lambda rules: (len(rules[-1]), *map(str, rules[:-1])), default=None)
    found = dict(_one(path, of_run, chosen) for path, of_run in zip(paths, runs, strict=True))
    first_file, first = next(iter(found.items()))
    for file, other in found.items():
        for key in SAME:
            if other.get(key) != first.get(key):
                given = f"{first_file} has the {key} {first.get(key)!r} and {file} {other.get(key)!r}"
                raise BadInput(f"{given}: they cannot be compared")
        if _videos(other) != _videos(first):
            raise BadInput(f"{first_file} and {file} are about different videos: evaluate both on the same")
    names = [str(evaluation["experiment"]) for evaluation in found.values()]
    lines = []
    for (file, evaluation), name in zip(found.items(), names, strict=True):
        spoken = name if names.count(name) == 1 else f"{name} ({file.parent.parent.name or file.stem})"
        known = (evaluation.get("milliseconds"), evaluation.get("parameters"))
        lines.append(Line(spoken, evaluation, evaluation.get("std", {}), *known, str(file)))
    slots = first.get("slots")
    for method in REFERENCES:
        if method in first.get("trivial", {}):
            lines.append(Line(f"{method} (K = {slots})", first["trivial"][method], {}))
    about = {"videos": len(_videos(first)), **{key: first.get(key) for key in SAME}}
    return Comparison(about, lines)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadInput(f"there is nothing at {path}; give the folder of a run, or a file that vonet evaluate wrote")
    files = sorted((path / EVALUATION).glob("*.json"))
    if not files:
        raise BadInput(f"{path} has not been evaluated yet: vonet evaluate {path} DATA")
    return files


def _rules(evaluation: Mapping[str, Any]) -> tuple[Any, ...]:
    """Properties that must agree between compared evaluations."""
    return (*(evaluation.get(key) for key in SAME), frozenset(_videos(evaluation)))


def _one(
    path: Path, of_run: Mapping[Path, dict[str, Any]], rules: tuple[Any, ...] | None
) -> tuple[Path, dict[str, Any]]:
    """The evaluation with these properties or, if the runs have none in common, the only one."""
    fitting = {file: evaluation for file, evaluation in of_run.items() if rules in (None, _rules(evaluation))}
    if len(fitting) > 1:
        raise BadInput(f"{path} has been evaluated {len(fitting)} times; give one of {', '.join(map(str, fitting))}")
    return next(iter(fitting.items()))


def _with_rows(file: Path) -> dict[str, Any]:
    """An evaluation with the scores of each video; the output of `vonet evaluate --json` lacks these."""
    found = read_evaluation(file)
    if "rows" not in found:
        raise BadInput(
            f"{file} has no scores of single videos; give the file that vonet evaluate wrote into its folder"
        )
    whole = all(fits(row.get("split"), str) and fits(row.get("video"), str) for row in found["rows"])
    if not whole or any(not {*COMPARED} <= scores.keys() for scores in (found, *found["trivial"].values())):
        raise BadInput(f"{file} lacks some scores, or the names of its videos: run vonet evaluate again")
    return found


def _videos(evaluation: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(row["split"], row["video"]) for row in evaluation["rows"]}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
