"""Changes options of experiments from the command line: `training.batch=16 model.slots=7`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

from vonet.errors import BadInput
from vonet.experiments.descriptions import check_option, type_hints
from vonet.experiments.experiment import Experiment
from vonet.experiments.registry import RENAMED_OPTIONS
from vonet.experiments.trial import trial_model


def overridden(experiment: Experiment, changes: Sequence[str]) -> Experiment:
    """Each change names an option by its path and gives a value of the same type. The result must describe a model that
    can be built."""
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals:
            raise BadInput(f"the change is {change!r}; it must be OPTION=VALUE, such as training.batch=16")
        experiment = _changed(experiment, path.split("."), text, path)
    if changes:
        try:
            trial_model(experiment)
        except BadInput as error:
            raise BadInput(f"{' '.join(changes)} is refused: {error}") from None
    return experiment


def _changed(part: Any, path: Sequence[str], text: str, whole: str, optional: bool = False) -> Any:
    if not path:
        return _value(part, text, whole, optional)
    name, *rest = path
    if is_dataclass(part) and name in {option.name for option in fields(part)}:
        hint = type_hints(type(part)).get(name, Any)
        changed = _changed(getattr(part, name), rest, text, whole, type(None) in get_args(hint))
        try:
            made = replace(part, **{name: changed})  # type: ignore[type-var]
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            check_option(whole, changed, hint)
            kind = type(part).__name__
            raise BadInput(f"{whole}={text} is refused by {kind} ({error}): give another value") from None
        check_option(whole, changed, hint)  # after the part's own checks, whose sentences say more
        return made
    if isinstance(part, Mapping) and name in part:
        return {**part, name: _changed(part[name], rest, text, whole)}
    if part is None:
        raise BadInput(f"there is no option {whole!r}: that part is null in this experiment")
    renamed = RENAMED_OPTIONS.get(type(part).__name__, {})
    if name in renamed:
        raise BadInput(f"there is no option {whole!r}: {name!r} is now {renamed[name]!r}")
    possible = [o.name for o in fields(part)] if is_dataclass(part) else list(part) if isinstance(part, Mapping) else []
    raise BadInput(f"there is no option {whole!r}: {name!r} is not among {', '.join(possible) or 'any'}")


def _value(old: Any, text: str, whole: str, optional: bool) -> Any:
    """The text as a value of the old value's type; `null` where the option may be None."""
    if optional and text == "null":
        return None
    if isinstance(old, str):
        return text
    try:
        new = json.loads(text)
    except (ValueError, RecursionError):
        new = text
    if isinstance(old, tuple) and isinstance(new, list):
        return _tuple(new)
    if isinstance(old, float) and isinstance(new, int) and not isinstance(new, bool):
        return float(new)
    if type(new) is type(old) and not isinstance(new, dict) and new == new:
        return new
    if old is None and optional and isinstance(new, int | float):
        return float(new)
    if is_dataclass(old) or isinstance(old, Mapping) or old is None:
        raise BadInput(f"{whole} is a part and not a value; name one of its options" + ", or null" * optional)
    kind = "a list, such as [64, 64]" if isinstance(old, tuple) else f"of type {type(old).__name__}"
    raise BadInput(f"{whole} is {old!r} and {text!r} was given; it must be {kind}" + ", or null" * optional)


def _tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuple(value) if isinstance(value, list) else value for value in values)
