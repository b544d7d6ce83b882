"""Memory settings for CPU processes, and time per frame."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's names for mallopt
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_HUGE_PAGES, _HUGE_PAGE = 14, 2 * 2**20  # Linux's name for madvise, and their size
_HEAP = 2**30
"""Bytes of address space, not of memory, that get huge pages."""


def keep_freed_memory() -> bool:
    """Ask glibc to reuse freed blocks instead of returning them to the system after each operation, and Linux to use 2
    MB pages for them.

    Feature maps are a few megabytes each; by default every one is mapped, zeroed page by page, and unmapped again.
    Keeping them saves 0 to 7 % of a step, depending on the machine, and large pages 2 to 4 % where the system offers
    them on request. Programs call this once at their start; a library should not do it for others.
    Returns whether it took effect (on Linux with glibc).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: _HEAP}
    kept = all(mallopt(name, value) for name, value in settings.items())
    _ask_for_huge_pages()
    return kept and bool(mallopt(_TOP_PAD, 64 * 2**20))


def _ask_for_huge_pages() -> None:
    """Requests large pages for the heap and its next growth. Feature maps span hundreds of small pages each."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    before = libc.sbrk(0)
    libc.free(libc.malloc(_LARGEST_MMAP_THRESHOLD // 2))  # larger than what is free: the heap grows
    begin = -(-before // _HUGE_PAGE) * _HUGE_PAGE
    if (end := libc.sbrk(0)) > begin:
        libc.madvise(begin, end - begin, _HUGE_PAGES)


def milliseconds_per_frame(model: Any, frames: Any, slots: int | None = None) -> float:
    """Median time per frame in milliseconds over the frames `T 3 H W`, without the first two. A model that needs the
    whole clip is timed on three unrolls of it."""
    import torch

    from vonet.interface import Clip

    def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
        begin = time.perf_counter()
        done = run()
        if frames.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin, done

    with torch.inference_mode():
        state = model.initial_state(1, slots, generator=torch.Generator().manual_seed(0))
        if not hasattr(model, "step"):
            clip = Clip(frames[None])
            return (
                1e3 / len(frames) * statistics.median(seconds(partial(model.unroll, clip, state))[0] for _ in range(3))
            )
        times = []
        for frame in frames:
            took, (_, state) = seconds(partial(model.step, frame[None], state))
            times.append(took)
    return 1e3 * statistics.median(times[2:] or times)
