"""Exit codes other than 0."""

from __future__ import annotations

import sys
from typing import NoReturn

MISTAKE, STOPPED, UNREAD = 2, 130, 141
"""Exit codes for a mistake or unusable input, for Ctrl-C, and for an output whose reader is gone."""


def leave(code: int, sentence: str) -> NoReturn:
    """Print a sentence to standard error and end the process."""
    print(f"vonet: {sentence}", file=sys.stderr)
    sys.exit(code)
