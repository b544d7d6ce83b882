"""How a long work is asked to stop, so that what it has done can be finished properly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[dict[str, bool]]:
    """Ctrl-C and SIGTERM ask to stop when it suits; a second Ctrl-C stops at once."""
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
