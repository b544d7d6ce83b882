"""How the process ends when not with 0."""

from __future__ import annotations

import sys
from typing import NoReturn

MISTAKE, STOPPED, UNREAD = 2, 130, 141
"""The input cannot be used; Ctrl-C; nobody reads the output any more."""


def leave(code: int, sentence: str) -> NoReturn:
    print(f"vonet: {sentence}", file=sys.stderr)
    sys.exit(code)
