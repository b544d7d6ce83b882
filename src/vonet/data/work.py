"""Independent jobs on several processes with a progress bar, and signals that stop them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as connection_wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from tqdm import tqdm

from vonet.errors import BadInput

Job = TypeVar("Job")
Result = TypeVar("Result")

WAKE_SECONDS = 0.2
"""Seconds to wait for workers before signals are checked again."""


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int) -> None:
    """Refuse a number of processes below one."""
    if workers < 1:
        raise BadInput(f"{workers} workers were asked for; at least 1 is needed")


def for_each(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int, done: int, what: str
) -> Generator[tuple[Job, Result], None, None]:
    """Calls the function on each job in `workers` processes, and yields results as they finish, in any order. Close the
    iterator (`contextlib.closing`) if results are used in between: this ends the processes after an error, too.

    `done` jobs were finished earlier: the progress bar starts there, and its rate and remaining time ignore them.
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
    with bar, closing(_results(function, jobs, workers)) as results:
        for number, (job, result) in enumerate(results, start=1):
            yield job, result
            rate = number / (time.monotonic() - begin)
            left = tqdm.format_interval((len(jobs) - number) / rate)
            bar.set_postfix_str(f"{60 * rate:.0f} per minute, {left} left", refresh=False)
            bar.update()


def _results(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Generator[tuple[Job, Result], None, None]:
    workers = min(workers, len(jobs))
    if workers <= 1:
        yield from ((job, _done(function, job)) for job in jobs)
        return
    with _Workers(function, workers) as pool:
        yield from pool.results(jobs)


class _Workers:
    """Processes that do one job after the other.

    The first Ctrl-C lets running jobs finish, starts no new ones, and then raises KeyboardInterrupt. The second one
    kills the processes and raises at once. It is raised only between results, never in the signal handler, where code
    that swallows exceptions could lose it. No threads are started, because the interpreter would wait for them at exit.
    """

    def __init__(self, function: Callable[[Any], Any], count: int):
        self._context = multiprocessing.get_context("spawn")
        self._function, self._count = function, count
        self._processes: dict[Connection, BaseProcess] = {}
        self._interrupted, self._killed = False, False
        self._before: Any = None

    def __enter__(self) -> _Workers:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            resource_tracker.ensure_running()  # now: its start would let signals through while workers start
            for _ in range(self._count):
                with _without_interrupts():
                    self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        arguments = (self._function, theirs, os.getpid())
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process

    def __exit__(self, *_: object) -> None:
        """At this point all workers are idle or no longer needed. They are killed before their connections are closed,
        so that they print nothing."""
        for process in self._processes.values():
            process.kill()
        for connection, process in self._processes.items():
            process.join()
            connection.close()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: object) -> None:
        if not self._interrupted:
            self._interrupted = True
            return
        self._killed = True
        for process in self._processes.values():
            process.kill()

    def results(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Each job with its result, in the order in which jobs finish."""
        remaining = iter(jobs)
        running: dict[Connection, Job] = {}
        idle = list(self._processes)
        told = False
        while not self._killed:
            if self._interrupted and running and not told:
                tqdm.write("vonet: finishing what is under way; Ctrl-C again stops at once", file=sys.stderr)
                told = True
            self._hand_out(remaining, running, idle)
            if not running:
                break
            for connection in connection_wait(list(running), timeout=WAKE_SECONDS):
                assert isinstance(connection, Connection)
                job, result = running.pop(connection), self._received(connection)
                idle.append(connection)
                self._hand_out(remaining, running, idle)  # before its result is used, so that nobody waits
                yield job, result
        if self._interrupted:
            raise KeyboardInterrupt

    def _hand_out(self, jobs: Iterator[Job], running: dict[Connection, Job], idle: list[Connection]) -> None:
        while idle and not self._interrupted and (job := next(jobs, None)) is not None:
            connection = idle.pop()
            try:
                connection.send(job)
            except OSError:
                raise self._lost_worker() from None
            running[connection] = job

    def _received(self, connection: Connection) -> Any:
        try:
            result, error = connection.recv()
        except (EOFError, OSError):
            raise self._lost_worker() from None
        if error is not None:
            raise error
        return result

    def _lost_worker(self) -> BaseException:
        """The exception for a worker that we killed or that died by itself."""
        if self._killed:
            return KeyboardInterrupt()
        return BadInput(
            "a worker process died: run the command again. If it dies again, memory may be short (ask for fewer "
            "workers), or your script lacks `if __name__ == '__main__':`"
        )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks SIGINT: processes started meanwhile never see Ctrl-C, which the parent handles, and a Ctrl-C in this
    process is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(function: Callable[[Any], Any], connection: Connection, parent: int) -> None:
    """Main loop of a worker: receives jobs, sends results or errors."""
    _end_with_parent(parent)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        told: tuple[Any, Exception | None]
        try:
            told = _done(function, job), None
        except Exception as error:
            error.add_note(traceback.format_exc())
            told = None, error
        connection.send(told)


def _done(function: Callable[[Job], Result], job: Job) -> Result:
    """Runs a job and returns freed memory to the system. Otherwise jobs of different sizes leave fragments, and a
    process grows with the number of its jobs (measured with glibc; no effect elsewhere)."""
    result = function(job)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return result


def _end_with_parent(parent: int) -> None:
    """Ends a worker whose parent was killed. Ctrl-C is ignored here, because the parent handles it."""
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
