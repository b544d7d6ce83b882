"""The exception for mistakes of the user. This module imports nothing heavy, so that commands without torch start at
once."""

from __future__ import annotations

from typing import get_args


class BadInput(ValueError):
    """A user's mistake. The message is one sentence: what was given, what is accepted, what to do."""


def missing_package(wanted_by: str, *packages: str) -> BadInput:
    """The error if an optional part of vonet lacks its packages."""
    return BadInput(f"{wanted_by} needs {' and '.join(packages)}. Install with: pip install {' '.join(packages)}")


def check_choice(option: str, given: str, choices: object) -> None:
    """Refuse a value that is not among those of a `Literal`."""
    if given not in get_args(choices):
        raise BadInput(f"{option} is {given!r}; expected one of {', '.join(map(repr, get_args(choices)))}")
