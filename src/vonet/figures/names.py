"""Names of methods as a paper writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

METHODS = {
    "vonet": "VONet",
    "monet": "MONet",
    "vimon": "ViMON",
    "scalor": "SCALOR",
    "savi": "SAVi",
    "steve": "STEVE",
    "simone": "SIMONe",
}
PARTS = {
    "wo-unet": "w/o U-Net",
    "wo-kld": "w/o KL",
    "wo-klbal": "w/o KL balancing",
    "wo-replay": "w/o replay",
    "kl-20": "KL / 20",
    "kl-200": "KL / 200",
    "kl-20k": "KL / 20k",
}
"""Names for what ablations change."""


def spoken_method(name: str) -> str:
    """Formats a method name for papers, such as VONet (closeup) for vonet-closeup. A name that is not ours is returned
    unchanged."""
    if name in PARTS:
        return PARTS[name]
    method, _, rest = name.partition("-")
    if method not in METHODS:
        return name
    return f"{METHODS[method]} ({PARTS.get(rest, rest)})" if rest else METHODS[method]


def plain_name(reference: str) -> str:
    """Removes the suffix "(no learning)" from a name, for places where the context already says it."""
    return reference.removesuffix(" (no learning)")


def distinct_names(spoken: Mapping[str, str]) -> dict[str, str]:
    """The formatted name of each run; the run's own name is added if several have the same."""
    shared: Sequence[str] = list(spoken.values())
    return {run: name if shared.count(name) == 1 else f"{name}, {run}" for run, name in spoken.items()}
