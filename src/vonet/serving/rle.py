"""COCO's run-length encoding of masks: run lengths along the columns, alternating between outside and inside. Each
length is stored as the difference from the one two before, in characters of five bits and a continuation bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Integer

from vonet.data.store import run_lengths


def encoded(ids: Integer[np.ndarray, "H W"]) -> dict[int, dict[str, Any]]:
    """The mask of each id except 0. The picture is scanned only once for all ids."""
    values, lengths, _ = run_lengths(np.ascontiguousarray(ids.T)[None])
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    found = {}
    for one in np.unique(values):
        if one:
            mine = values == one
            turns = np.column_stack([starts[mine], ends[mine]]).ravel()
            counts = np.diff(turns, prepend=0, append=ids.size)
            found[int(one)] = {"size": [*ids.shape], "counts": packed(counts[: len(counts) - (counts[-1] == 0)])}
    return found


def packed(counts: Sequence[int] | Integer[np.ndarray, " n"]) -> str:
    """Run lengths as the characters of COCO's compressed RLE."""
    whole = [int(count) for count in counts]
    letters = []
    for at, count in enumerate(whole):
        rest = count - whole[at - 2] if at > 2 else count
        while True:
            bits, rest = rest & 31, rest >> 5
            is_last = rest == (-1 if bits & 16 else 0)
            letters.append(chr(48 + (bits if is_last else bits | 32)))
            if is_last:
                break
    return "".join(letters)
