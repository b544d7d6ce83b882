"""Independent jobs on several processes with a progress bar, and signals that stop them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

from vonet.errors import BadInput

Job = TypeVar("Job")
Result = TypeVar("Result")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int) -> None:
    if workers < 1:
        raise BadInput(f"{workers} workers were asked for; at least 1 is needed")


def for_each(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int, done: int, what: str
) -> Iterator[tuple[Job, Result]]:
    """Calls the function on each job, on `workers` processes; gives the results as they come, in any order.

    `done` jobs were finished earlier: the bar begins there, its rate and time left do not count them.
    """
    begin = time.monotonic()
    bar = tqdm(
        total=len(jobs) + done,
        initial=done,
        desc=what,
        mininterval=0.2 if sys.stderr.isatty() else 10,
        bar_format="{desc} {percentage:3.0f}% |{bar:30}| {n_fmt}/{total_fmt} videos{postfix}",
    )
    bar.set_postfix_str("starting")
    with bar:
        for number, (job, result) in enumerate(_results(function, jobs, workers), start=1):
            yield job, result
            rate = number / (time.monotonic() - begin)
            left = tqdm.format_interval((len(jobs) - number) / rate)
            bar.set_postfix_str(f"{60 * rate:.0f} per minute, {left} left", refresh=False)
            bar.update()


def _results(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    workers = min(workers, len(jobs))
    if workers <= 1:
        yield from ((job, _done(function, job)) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    remaining = iter(jobs)
    with ProcessPoolExecutor(workers, context, initializer=_end_with_parent, initargs=(os.getpid(),)) as pool:
        running: dict[Future[Result], Job] = {}
        try:
            while True:
                while len(running) < 3 * workers and (job := next(remaining, None)) is not None:
                    running[pool.submit(_done, function, job)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise BadInput(
                "a worker process died: run the command again. If it dies again, memory may be short (ask for fewer "
                "workers), or your script lacks `if __name__ == '__main__':`"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _done(function: Callable[[Job], Result], job: Job) -> Result:
    """Afterwards the memory that jobs of different sizes leave in fragments goes back to the system, so that a process
    does not grow with the number of its jobs (measured with glibc; elsewhere nothing is done)."""
    result = function(job)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return result


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed must not live on. Ctrl-C is the parent's to handle."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def stop_signals() -> Iterator[dict[str, bool]]:
    """Ctrl-C and SIGTERM ask the work to stop at its next check; a second Ctrl-C stops it at once."""
    stop = {"asked": False}

    def ask(number: int, frame: object) -> None:
        if stop["asked"] and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop["asked"] = True

    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
