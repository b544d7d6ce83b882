"""The result of an evaluation: JSON, CSV, a table and a verdict."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vonet.errors import BadInput
from vonet.evaluation.protocol import COUNTS, SCORES
from vonet.evaluation.references import MIXTURE, REFERENCES
from vonet.evaluation.run import MODEL, OFFLINE, PERFECT, Row, summary, tracking_summary
from vonet.evaluation.spmot import tracking_table
from vonet.evaluation.trivial import TRIVIAL
from vonet.experiments.descriptions import fits
from vonet.writing import csv_cell, only_writer, remove_abandoned, written_aside

HEADLINES = ("fg_ari", "miou")
EVALUATION = "evaluation"
"""The folder beside the weights that holds scores."""
HEADING = ("experiment", "data", "split", "videos", "protocol", "seeds", "slots", "masks")


@dataclass(frozen=True)
class Report:
    """The scores of an evaluation.

    Attributes:
        about: Everything that the scores depend on.
        rows: One row per video (or window), seed and method.
        paper: The paper's scores in percent, if experiment and data are the paper's.
    """

    about: Mapping[str, Any]
    rows: Sequence[Row]
    paper: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """The model's mean scores by name; `std` holds standard deviations over the seeds; other methods follow.
        Tracking scores are in percent, all others are shares or counts."""
        found = self._summary()
        means = {method: {name: mean for name, (mean, _) in scores.items()} for method, scores in found.items()}
        return {
            **means[MODEL],
            "std": {name: None if math.isnan(std) else std for name, (_, std) in found[MODEL].items()},
            "offline": means.get(OFFLINE, {}),
            "trivial": {method: means[method] for method in REFERENCES if method in means},
            "ceiling": means.get(PERFECT, {}),
            "paper": {name: value / 100 for name, value in self.paper.items()},
            "verdict": self.verdict(),
            **self.about,
        }

    def _summary(self) -> dict[str, dict[str, tuple[float, float]]]:
        tracking = tracking_summary(self.rows)
        return {method: {**scores, **tracking.get(method, {})} for method, scores in summary(self.rows).items()}

    def verdict(self) -> str:
        """Whether the model beats the trivial methods and `mixture` in both of the paper's scores."""
        found = summary(self.rows)
        if not any(method in found for method in REFERENCES):
            return "not compared with methods without learning"
        if self.about.get("parameters") == 0:
            return f"it has no parameters and does not learn: {self._leads(REFERENCES)[0]}"
        said, trivial = self._leads(tuple(TRIVIAL))
        if max(trivial) <= 0:
            return f"it beats no trivial method, so it shows no learning: {said}"
        if min(trivial) <= 0:
            return f"it does not beat every trivial method: {said}"
        if MIXTURE not in found:
            return f"it beats every trivial method: {said}"
        said, leads = self._leads((MIXTURE,))
        if min(leads) > 0:
            return f"it beats every method without learning: {said}"
        return f"it beats every trivial method, but not {MIXTURE}: {said}"

    def _leads(self, methods: Sequence[str]) -> tuple[str, list[float]]:
        """The model's lead over the best of these methods as text, in points, for each of the paper's scores."""
        found = summary(self.rows)
        leads = {}
        for name in HEADLINES:
            rivals = {method: found[method][name][0] for method in methods if method in found}
            rival = max(rivals, key=lambda method: rivals[method])
            lead = round(100 * (found[MODEL][name][0] - rivals[rival]), 1)
            place = "ahead of" if lead > 0 else "behind" if lead < 0 else "level with"
            leads[f"{abs(lead):.1f} points in {SCORES[name]} {place} {rival}"] = lead
        return " and ".join(leads), list(leads.values())

    def table(self) -> str:
        """The table: what was evaluated, then scores in rows (in percent, except counts) and methods in columns, with
        the paper's beside ours. Tracking scores and the published ones follow if the protocol has them."""
        found = summary(self.rows)
        methods = [MODEL, *(method for method in [OFFLINE, *REFERENCES, PERFECT] if method in found)]
        lines = [["", *methods]]
        for name, spoken in SCORES.items():
            lines.append([spoken, *(cell(name, *found[method][name]) for method in methods)])
        if self.paper:
            told = [f"{self.paper[name]:.1f}" if name in self.paper else "" for name in SCORES]
            lines = [[*line[:2], paper, *line[2:]] for line, paper in zip(lines, ["paper", *told], strict=True)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        head, *rest = ["  ".join(_aligned(line, widths)) for line in lines]
        about = ", ".join(f"{key} {value}" for key, value in self.about.items() if key in HEADING)
        text = "\n".join([f"In percent, except counts. {about}".strip(), head, "─" * len(head), *rest])
        tracking = tracking_summary(self.rows)
        return f"{text}\n\n{tracking_table({m: tracking[m] for m in methods})}" if tracking else text

    def write(self, folder: Path, name: str) -> list[Path]:
        """Writes `name.json` with everything, and `name.csv` with one line per video and method."""
        texts = {".json": self._json_text(), ".csv": self._csv_text()}
        paths = []
        with only_writer(folder, patience=60.0):  # so that both files are of one evaluation
            remove_abandoned(folder)
            for suffix, text in texts.items():
                path = folder / f"{name}{suffix}"
                with written_aside(path) as aside:
                    aside.write_text(text, encoding="utf-8")
                paths.append(path)
        return paths

    def write_beside(self, weights: Path | str, folder: Path | None = None) -> list[Path]:
        """Writes into `folder`, by default EVALUATION beside the weights. The file name contains data and options, so
        that another evaluation does not overwrite it."""
        about, given = self.about, Path(weights)
        beside = given if given.is_dir() else given.parent if given.exists() else Path()
        data = [part for part in Path(about["data"]).resolve().parts if any(c.isalpha() for c in part)][-2:]
        name = "-".join(
            [
                *([] if given.exists() else [about["experiment"]]),  # a method by its name, which has no folder
                *data,
                *(str(about[key]) for key in ("split", "protocol", "masks")),
                *(f"{about[key]}{key}" for key in ("videos", "slots", "seeds")),
            ]
        )
        return self.write(folder or beside / EVALUATION, name)

    def _json_text(self) -> str:
        return (
            json.dumps({**self.as_json(), "rows": [_as_dict(row) for row in self.rows]}, indent=1, allow_nan=False)
            + "\n"
        )

    def _csv_text(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["method", "video", "split", "seed", "start", *SCORES])
        for row in self.rows:
            names = map(csv_cell, (row.method, row.video, row.split))
            writer.writerow([*names, row.seed, row.start, *(row.scores[n] for n in SCORES)])
        return text.getvalue()


Scores = Mapping[str, float]
EXPECTED: dict[str, Any] = {
    **dict.fromkeys(SCORES, float),
    "std": Mapping[str, float | None],
    "offline": Scores,
    "trivial": Mapping[str, Scores],
    "ceiling": Scores,
    "paper": Scores,
    **dict.fromkeys(("experiment", "weights", "data", "protocol", "checksum", "found_at", "verdict", "layout"), str),
    **dict.fromkeys(("split", "dataset"), str | None),
    **dict.fromkeys(("videos", "seeds", "slots", "parameters"), int),
    "milliseconds": float | None,
    "rows": list[Mapping[str, Any]],
}
"""Types of the values in the files of `vonet evaluate`; values may be missing."""


def read_evaluation(path: Path) -> dict[str, Any]:
    """Reads a file that `vonet evaluate` wrote. Values of unexpected types are refused."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{path} cannot be read; expected a JSON file that vonet evaluate wrote") from None
    wanted = {*HEADLINES, *HEADING, "std", "offline", "trivial", "ceiling", "paper", "weights"}
    if not isinstance(found, dict) or not wanted <= found.keys():
        raise BadInput(f"{path} is not an evaluation; give a JSON file that vonet evaluate wrote")
    wrong = [name for name, hint in EXPECTED.items() if name in found and not fits(found[name], hint)]
    if "trivial" not in wrong:
        wrong += [f"trivial {name}" for name, scores in found["trivial"].items() if not {*HEADLINES} <= scores.keys()]
    if wrong:
        raise BadInput(f"{path} has damaged values of {', '.join(wrong)}: run vonet evaluate again")
    return found


def _as_dict(row: Row) -> dict[str, Any]:
    """A row as JSON, without tracking events if there are none."""
    return {name: value for name, value in asdict(row).items() if value is not None}


def cell(name: str, mean: float, std: float) -> str:
    """A score as text: counts as they are, all others in percent."""
    scale, digits = (1, 2) if name in COUNTS else (100, 1)
    spread = "" if math.isnan(std) else f" ± {scale * std:.{digits}f}"
    return f"{scale * mean:.{digits}f}{spread}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Aligns a table: names to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
