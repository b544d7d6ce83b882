"""Timing by taking turns, so that a slow moment of the machine hits all competitors alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def take_turns(
    competitors: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds of each. With `time.process_time` as the clock, other processes do not count."""
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for i in range(warm_up + rounds):
        for name, run in competitors.items():
            start = clock()
            run()
            if i >= warm_up:
                times[name].append(clock() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}
