"""A video of four frames in which everything is known: who holds what, what switches, what is shared."""

import numpy as np

from vonet.figures.page import Contents, Method
from vonet.figures.watched import Watched

GREYS = (10, 80, 150, 220)
"""Frame t is all of one grey."""
NAME = "clip </script><b>one</b> /*SCRIPT*/"
LOG = [
    *({"update": u, "seconds": u, "losses": {"kl": 1e4 / u, "reconstruction": 3.0}} for u in (10, 20, 30, 40)),
    *({"update": u, "seconds": u, "scores": {"fg_ari": u / 100, "miou": 0.5}} for u in (20, 40)),
]


def watched(**changes) -> Watched:
    """12 x 8 pixels. Object 4, on the left, goes from slot 1 to slot 2 at frame 2; object 9, on the right, is held by
    slot 3, but shared half and half with slot 2 at frames 1 and 2. Slot 1 has the rest, and nobody the last row."""
    true = np.zeros((4, 8, 12), np.int64)
    true[:, 1:5, 1:4], true[:, 1:5, 7:11] = 4, 9
    ids = np.ones_like(true)
    ids[:, 7] = 0
    ids[2:][true[2:] == 4] = 2
    ids[true == 9] = 3
    ids[1:3, 1:5, 7:9] = 2
    grey = np.array(GREYS, np.uint8)[:, None, None, None]
    made = {
        "name": NAME,
        "slots": 3,
        "frames": np.broadcast_to(grey, (4, 8, 12, 3)).copy(),
        "true_ids": true,
        "ids": ids,
        "reconstruction": np.broadcast_to(grey // 2, (4, 8, 12, 3)).copy(),
        "prior_reconstruction": np.broadcast_to(grey // 5, (4, 8, 12, 3)).copy(),
        "divergence": np.array([[3.0, 1, 2], [1, 0.5, 2], [1, 4, 2], [1, 1, 2]]),
    }
    return Watched(**{**made, **changes})


def contents(**changes) -> Contents:
    scores = {"fg_ari": 0.75, "miou": 0.5, "identity_switches": 0.5}
    made = {
        "title": "made-up",
        "summary": "a <i>run</i> that never was",
        "verdict": "it beats every trivial method",
        "facts": {"experiment": "made-up"},
        "methods": [
            Method("this model", "model", scores, {"fg_ari": 0.01, "miou": None}),
            Method("k-means", "trivial", {"fg_ari": 0.4, "miou": 0.2, "identity_switches": 1.0}),
            Method("VONet, paper", "paper", {"fg_ari": 0.91, "miou": 0.605}, note="other videos"),
        ],
        "log": LOG,
        "videos": [watched(), watched(name="clip two", true_ids=None)],
    }
    return Contents(**{**made, **changes})
