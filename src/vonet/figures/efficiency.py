"""Efficiency: scores against training time, and time of attention against the number of slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vonet.figures.plots import SCORES, WIDTH, plotting, saved


def write_efficiency(path: Path, logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Path]:
    """Scores against minutes of training, one curve for each run that was scored during training, if there are any."""
    curves = {
        run: [entry for entry in log if SCORES.keys() <= entry.get("scores", {}).keys()] for run, log in logs.items()
    }
    curves = {run: entries for run, entries in curves.items() if entries}
    if not curves:
        return []
    with plotting() as pyplot:
        figure, panels = pyplot.subplots(1, len(SCORES), figsize=(WIDTH, 2.2), layout="constrained")
        for axes, (name, spoken) in zip(panels, SCORES.items(), strict=True):
            for run, entries in curves.items():
                minutes = [entry["seconds"] / 60 for entry in entries]
                axes.plot(minutes, [100 * entry["scores"][name] for entry in entries], "o-", markersize=2.5, label=run)
            axes.set(title=spoken, xlabel="minutes of training", xlim=(0, None), ylim=(0, 100))
        panels[0].set_ylabel("percent")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return saved(figure, path)


def write_attention(path: Path, slots: Sequence[int], milliseconds: Mapping[str, Sequence[float]]) -> list[Path]:
    """The paper's figure of efficiency: time of attention for a frame against the number of slots, by method."""
    with plotting() as pyplot:
        figure, axes = pyplot.subplots(figsize=(WIDTH / 2, 2.4), layout="constrained")
        for label, times in milliseconds.items():
            axes.plot(slots, times, "o-", markersize=3, label=label)
        axes.set(xlabel="slots K", ylabel="milliseconds per frame", ylim=(0, None))
        axes.legend()
        return saved(figure, path)
