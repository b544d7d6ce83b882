"""Selects the options that the user gave. Defaults are defined only in the library; a test compares them with the help
texts."""

from __future__ import annotations

from argparse import Namespace
from typing import Any


def given(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Those of the named options that were given, as keyword arguments; the called function has defaults for the
    others."""
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}
