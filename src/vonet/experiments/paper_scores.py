"""Scores that the VONet paper prints, in percent. Each number is defined only here."""

from __future__ import annotations

LEVELS = tuple("abcde")

# Table 1: for each method FG-ARI and mIoU of whole videos of MOVi-A to E, mean and standard deviation of three seeds.
_TABLE = {
    "SAVi": (
        ((45.1, 1.3), (31.8, 1.2), (22.9, 1.3), (29.4, 0.5), (36.0, 3.3)),
        ((32.2, 1.7), (31.2, 4.3), (15.9, 0.7), (15.6, 0.3), (15.8, 2.2)),
    ),
    "SIMONe": (
        ((50.2, 6.2), (36.5, 0.5), (19.5, 0.1), (34.8, 0.2), (41.3, 0.3)),
        ((37.6, 1.0), (35.5, 0.8), (20.2, 0.1), (22.7, 0.1), (20.8, 0.2)),
    ),
    "SCALOR": (
        ((68.1, 1.4), (45.3, 0.6), (21.3, 2.3), (33.5, 2.8), (39.6, 0.5)),
        ((59.8, 0.9), (46.6, 0.1), (14.3, 0.8), (14.2, 1.1), (12.1, 0.2)),
    ),
    "ViMON": (
        ((62.8, 2.3), (26.2, 4.4), (18.0, 2.1), (22.5, 5.7), (17.7, 1.5)),
        ((50.0, 1.5), (34.4, 5.0), (27.1, 0.9), (19.6, 1.5), (17.8, 1.2)),
    ),
    "STEVE": (
        ((47.8, 8.2), (29.6, 0.3), (38.1, 0.3), (42.9, 2.8), (49.7, 1.0)),
        ((53.3, 3.1), (42.7, 0.1), (30.5, 0.2), (23.8, 3.7), (26.2, 1.3)),
    ),
    "VONet": (
        ((91.0, 1.5), (60.6, 0.8), (45.3, 0.4), (50.7, 1.1), (56.3, 0.5)),
        ((60.5, 2.0), (59.7, 2.9), (42.8, 0.5), (37.7, 0.3), (36.4, 0.7)),
    ),
}

# Table 4: image FG-ARI and image mIoU of models for single frames, by level.
_SINGLE_FRAMES = {
    "VONet": {"c": (47.0, 36.2), "d": (51.0, 28.5), "e": (50.3, 18.1)},
    "MONet": {"c": (24.8, 34.8), "d": (22.0, 17.4), "e": (18.8, 13.6)},
}

METHODS = tuple(_TABLE)
"""The methods of Table 1."""


def scores(method: str, level: str) -> dict[str, tuple[float, float]]:
    """Table 1: mean and standard deviation of FG-ARI and mIoU, as shares between 0 and 1 like ours."""
    fg_ari, miou = (row[LEVELS.index(level)] for row in _TABLE[method])
    return {
        "fg_ari": (fg_ari[0] / 100, fg_ari[1] / 100),
        "miou": (miou[0] / 100, miou[1] / 100),
    }


def of_videos(method: str, level: str) -> dict[str, float]:
    """Table 1: the means, in percent."""
    fg_ari, miou = (row[LEVELS.index(level)][0] for row in _TABLE[method])
    return {"fg_ari": fg_ari, "miou": miou}


def of_single_frames(method: str, level: str) -> dict[str, float]:
    """Table 4, in percent; empty for a level that is not in the table."""
    return dict(zip(("image_fg_ari", "image_miou"), _SINGLE_FRAMES[method].get(level, ()), strict=False))
