"""As if in a new process: what a file of the user's own has added is gone afterwards."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vonet.data import find
from vonet.evaluation import protocol
from vonet.experiments import registry


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    known = [registry._OWN, find._OWN, protocol._OWN]
    known += [protocol.SCORES, protocol.COUNTS, protocol.LESS_IS_BETTER]
    before, modules, path = [names.copy() for names in known], set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        for names, old in zip(known, before, strict=True):
            names.clear()
            names.update(old)
        for name in set(sys.modules) - modules:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(Path.cwd()):
                del sys.modules[name]
        sys.path[:] = path
