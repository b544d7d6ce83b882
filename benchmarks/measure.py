"""Timing by taking turns, so that a slow moment of the machine hits all competitors alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def take_turns(competitors: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """The median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for i in range(warm_up + rounds):
        for name, run in competitors.items():
            start = time.perf_counter()
            run()
            if i >= warm_up:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}
