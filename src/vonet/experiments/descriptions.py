"""Converts experiments to JSON and back. Every option that is read is checked against the type hint of its
dataclass."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vonet.errors import BadInput
from vonet.experiments import registry
from vonet.experiments.experiment import Experiment

LARGEST_INTEGER = 10**9
"""Largest absolute value of an integer option."""


def described(value: Any) -> Any:
    """The experiment as JSON; each part stores its class name, because some parts have no options."""
    if is_dataclass(value):
        options = {option.name: described(getattr(value, option.name)) for option in fields(value)}
        return {"part": type(value).__name__, **options}
    if isinstance(value, Mapping):
        return {name: described(item) for name, item in value.items()}
    return [described(item) for item in value] if isinstance(value, tuple) else value


def read_experiment(text: str) -> Experiment:
    """The experiment that a text from `described` describes. Anything else raises `BadInput`: an unknown part, an
    unknown option, or a value of another type. An option that the text lacks takes its default."""
    try:
        experiment = _built(json.loads(text))
    except BadInput:
        raise
    except Exception as error:  # broken JSON, missing options, and whatever the checks of a part stumble over
        raise BadInput(f"{type(error).__name__}: {error}") from None
    if not isinstance(experiment, Experiment):
        raise BadInput("it describes no experiment")
    return experiment


def _built(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_built(item) for item in value)
    if not isinstance(value, dict):
        return value
    built = {name: _built(item) for name, item in value.items() if name != "part"}
    if "part" not in value:
        return built
    part = registry.part(value["part"])
    if part is None and value["part"] in registry.RENAMED_PARTS:
        raise BadInput(f"the part {value['part']}, which is now {registry.RENAMED_PARTS[value['part']]}")
    if part is None:
        raise BadInput(f"the unknown part {value['part']} (if it is of your own making: vonet --with YOURS.py)")
    unknown = set(built) - {option.name for option in fields(part)}
    if unknown:
        now = registry.RENAMED_OPTIONS.get(value["part"], {})
        named = (f"{name} (now {now[name]})" if name in now else name for name in sorted(unknown))
        raise BadInput(f"{value['part']} with the unknown options {', '.join(named)}")
    hints = type_hints(part)
    for name, option in built.items():
        check_option(f"{part.__name__}.{name}", option, hints.get(name, Any))
    return part(**built)


def type_hints(part: type) -> Mapping[str, Any]:
    """The types of a part's options; empty for a user's part whose type hints cannot be resolved."""
    try:
        return get_type_hints(part)
    except NameError:
        return {}


def check_option(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that does not have the hinted type."""
    if not fits(value, hint):
        text = f"{{'part': {type(value).__name__!r}}}" if is_dataclass(value) else repr(value)
        given = text if len(text) <= 60 else f"{text[:60]}..."
        wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
        raise BadInput(f"{name} is {given}; it must be of type {wanted}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the hinted type. Numbers must be finite, integers must have a reasonable size, and a whole
    number is also a float. A type hint of an unknown kind accepts every value."""
    if isinstance(hint, TypeVar):
        hint = hint.__bound__ or Any
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e30
    if hint is int:
        return type(value) is int and abs(value) <= LARGEST_INTEGER
    if hint in (bool, str):
        return type(value) is hint
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(value, arguments)
    if origin is list:
        return isinstance(value, list) and all(fits(one, arguments[0]) for one in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _, item = arguments
        return isinstance(value, Mapping) and all(fits(one, item) for one in value.values())
    kind = origin or hint
    try:
        return isinstance(value, kind) if isinstance(kind, type) else True
    except TypeError:  # a protocol that cannot be asked
        return True


def _tuple_fits(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(one, hints[0]) for one in value)
    return len(value) == len(hints) and all(fits(one, hint) for one, hint in zip(value, hints, strict=True))
