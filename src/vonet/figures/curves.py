"""Learning curves, from a run's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vonet.figures.names import plain_name
from vonet.figures.plots import SCORES
from vonet.writing import written_aside

MANY_TIMES = 30
"""Ratio of the largest to the smallest loss above which the axis is logarithmic."""


def write_curves(path: Path, log: Sequence[Mapping[str, Any]], trivial: Mapping[str, Mapping[str, float]]) -> None:
    """One panel per loss, and one for the scores on the validation videos, with the best method without learning as a
    dotted line."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    losses = [entry for entry in log if "losses" in entry]
    scores = [entry for entry in log if SCORES.keys() <= entry.get("scores", {}).keys()]
    names = list(losses[-1]["losses"]) if losses else []
    figure, panels = pyplot.subplots(1, len(names) + 1, figsize=(4 * (len(names) + 1), 3.5), squeeze=False)
    for panel, name in zip(panels[0], names, strict=False):
        values = [entry["losses"][name] for entry in losses]
        panel.plot([entry["update"] for entry in losses], values, linewidth=1)
        panel.set_title(f"loss: {name}")
        if min(values) > 0 and max(values) > MANY_TIMES * min(values):
            panel.set_yscale("log")
    for colour, (name, spoken) in zip(("C0", "C1"), SCORES.items(), strict=True):
        updates, values = [e["update"] for e in scores], [e["scores"][name] for e in scores]
        panels[0][-1].plot(updates, values, "o-", color=colour, label=spoken)
        if trivial:
            best = max(trivial, key=lambda method: trivial[method][name])
            label = f"{spoken} of {plain_name(best)}, the best without learning"
            panels[0][-1].axhline(trivial[best][name], color=colour, linestyle=":", label=label)
    panels[0][-1].set_title("scores on validation videos")
    panels[0][-1].set_ylim(-0.05, 1.05)
    panels[0][-1].legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.25))  # where it hides no line
    for panel in panels[0]:
        panel.set_xlabel("update")
        panel.grid(alpha=0.3)
    figure.tight_layout()
    with written_aside(path) as aside:
        figure.savefig(aside, format="png", dpi=100)
    pyplot.close(figure)
