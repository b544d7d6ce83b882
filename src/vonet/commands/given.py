"""Options that were given. Defaults stand in the library alone; a test compares what the help says of them."""

from __future__ import annotations

from argparse import Namespace
from typing import Any


def given(arguments: Namespace, *names: str) -> dict[str, Any]:
    """The options of these names that were given, for a call whose own defaults serve for the others."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}
